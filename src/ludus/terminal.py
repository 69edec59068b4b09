"""Writes to standard output and error that may be closed or full."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO


def warn(message: str) -> None:
    """Print one line to stderr; a closed stderr is ignored."""
    with contextlib.suppress(OSError):
        print(f"ludus: {message}", file=sys.stderr, flush=True)


def mute(stream: IO[str]) -> None:
    """Discard everything that is still to be written to a stream."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
