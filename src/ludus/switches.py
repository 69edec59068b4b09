"""What the process's environment turns off, whatever a config says."""

from __future__ import annotations

import os

QUIET = ("LUDUS_QUIET", "VIBES_QUIET", "VIBES_DISABLE_CHECKPOINT_LOGS")
"""Nothing on the console; errors still are."""
NO_LOGS = ("LUDUS_DISABLE_SESSION_LOGS", "VIBES_DISABLE_SESSION_LOGS")
"""No copy of the console in run.log."""


def quiet() -> bool:
    """Whether the console is to stay silent."""
    return any(map(_on, QUIET))


def session_logs() -> bool:
    """Whether what the console says is kept in run.log."""
    return not any(map(_on, NO_LOGS))


def _on(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")
