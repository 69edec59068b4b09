"""The terminal: standard output and error that may be closed or full, and environment variables that turn them off."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO

QUIET = ("LUDUS_QUIET", "VIBES_QUIET", "VIBES_DISABLE_CHECKPOINT_LOGS")
"""Nothing is printed except errors, whatever the config says."""
NO_LOGS = ("LUDUS_DISABLE_SESSION_LOGS", "VIBES_DISABLE_SESSION_LOGS")
"""run.log gets no copy of the console."""


def warn(message: str) -> None:
    """Print one line to stderr; a closed stderr is ignored."""
    with contextlib.suppress(OSError):
        print(f"ludus: {message}", file=sys.stderr, flush=True)


def can_answer() -> bool:
    """Whether a user can answer a question."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def agrees(question: str, *, silence: bool = False) -> bool:
    """Ask a question; `silence` is what an empty answer means. Where nothing can be read the answer is no."""
    try:
        answer = input(question).strip().lower()
    except EOFError:
        return False
    return answer in ("y", "yes") if answer else silence


def mute(stream: IO[str]) -> None:
    """Discard everything that is still to be written to a stream."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def quiet() -> bool:
    """Whether the console is off."""
    return any(map(_on, QUIET))


def session_logs() -> bool:
    """Whether run.log gets a copy of the console."""
    return not any(map(_on, NO_LOGS))


def _on(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")
