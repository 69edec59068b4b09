"""Environment variables that turn output off, whatever the config says."""

from __future__ import annotations

import os

QUIET = ("LUDUS_QUIET", "VIBES_QUIET", "VIBES_DISABLE_CHECKPOINT_LOGS")
"""Nothing is printed except errors."""
NO_LOGS = ("LUDUS_DISABLE_SESSION_LOGS", "VIBES_DISABLE_SESSION_LOGS")
"""run.log gets no copy of the console."""


def quiet() -> bool:
    """Whether the console is off."""
    return any(map(_on, QUIET))


def session_logs() -> bool:
    """Whether run.log gets a copy of the console."""
    return not any(map(_on, NO_LOGS))


def _on(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")
