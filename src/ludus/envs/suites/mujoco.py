"""MuJoCo: the ids of former versions, a quiet compiler, and drawing without a display."""

from __future__ import annotations

import ctypes.util
import os
import re
import sys

CURRENT = "v5"
FORMER = re.compile(
    r"(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|InvertedPendulum|Pusher|Reacher|Swimmer"
    r"|Walker2d)-v[234]"
)
ENTRY_POINT = "gymnasium.envs.mujoco"
NOISE = "compiler attribute 'settotalmass'"
"""What MuJoCo says of Gymnasium's own half-cheetah whenever one is made."""


def successor(id: str) -> str | None:
    """The id that replaces one of a former version (v2 and v3 need packages that are no more)."""
    found = FORMER.fullmatch(id)
    return f"{found[1]}-{CURRENT}" if found else None


def draw_unseen() -> None:
    """Without a display MuJoCo draws by what is installed; it has to know before its first import."""
    if sys.platform.startswith("linux") and not os.environ.get("DISPLAY") and "MUJOCO_GL" not in os.environ:
        found = (name for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")) if ctypes.util.find_library(library))
        os.environ["MUJOCO_GL"] = next(found, "disable")


def hush() -> None:
    """Warnings other than the one everybody knows go to stderr, none into a file of the working directory."""
    import mujoco

    mujoco.set_mju_user_warning(_warn)


def _warn(text: str | bytes) -> None:
    message = text.decode() if isinstance(text, bytes) else text
    if NOISE not in message:
        print(f"mujoco: {message.strip()}", file=sys.stderr)
