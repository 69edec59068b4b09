"""MuJoCo: ids of former versions, warnings of its compiler, and rendering without a display."""

from __future__ import annotations

import ctypes.util
import os
import re
import sys

from ludus.envs.suites import suite_of

CURRENT = "v5"
ENTRY_POINT = "gymnasium.envs.mujoco"
NOISE = "compiler attribute 'settotalmass'"
"""Part of the warning that MuJoCo prints for Gymnasium's half-cheetah whenever one is made."""


def successor(id: str) -> str | None:
    """The id that replaces one of version 2, 3 or 4; versions 2 and 3 need packages that no longer exist."""
    name, _, version = id.rpartition("-")
    known = re.fullmatch("v[234]", version) and suite_of(id).module == ENTRY_POINT
    return f"{name}-{CURRENT}" if known else None


def render_offscreen() -> None:
    """Without a display MuJoCo must know how to render before its first import: by EGL, OSMesa or not at all."""
    if sys.platform.startswith("linux") and not os.environ.get("DISPLAY") and "MUJOCO_GL" not in os.environ:
        found = (name for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")) if ctypes.util.find_library(library))
        os.environ["MUJOCO_GL"] = next(found, "disable")


def hush() -> None:
    """Print MuJoCo's warnings to stderr instead of a log file in the working directory, except the known one."""
    import mujoco

    mujoco.set_mju_user_warning(_warn)


def _warn(text: str | bytes) -> None:
    message = text.decode() if isinstance(text, bytes) else text
    if NOISE not in message:
        print(f"mujoco: {message.strip()}", file=sys.stderr)
