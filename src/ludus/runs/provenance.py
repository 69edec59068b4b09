"""Where a run came from: code, versions, machine and command line, without importing any of the heavy packages."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ludus import __version__
from ludus.runs.scrub import scrub

_PACKAGES = ("torch", "numpy", "gymnasium", "safetensors", "envpool")


def provenance(argv: Sequence[str]) -> dict[str, Any]:
    """What meta.json says beside the name of the run."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "argv": scrub(argv),
        "git": git_state(Path.cwd()),
        "versions": versions(),
        "host": {
            "name": platform.node(),
            "platform": platform.platform(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
    }


def versions() -> dict[str, str]:
    """Installed versions of what decides the numbers."""
    found = {"python": platform.python_version(), "ludus": __version__}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether the tree differs from it; none outside a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else changes != ""}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
