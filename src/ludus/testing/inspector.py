"""The inspector, served to a browser that a test or a benchmark drives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ludus.inspector.server import application, server_of


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of a server over a folder of runs, which ends with the context."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = server_of(application(root), listener)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(20)
