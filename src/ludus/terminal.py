"""Standard output and error that may be gone: a full disk, a closed terminal, a reader that had enough."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any


def warn(message: str) -> None:
    """One line on stderr, if anybody can still read it."""
    with contextlib.suppress(OSError):
        print(f"ludus: {message}", file=sys.stderr, flush=True)


def mute(stream: Any) -> None:
    """Let everything still to be written to a stream vanish."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
