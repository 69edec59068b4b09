"""Provenance of a run: code, versions, machine and command line, without importing heavy packages."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from ludus import __version__
from ludus.secrets import scrub

_STATUS = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
"""Looking into the files of a submodule would run the filters of its config."""
_PACKAGES = ("torch", "numpy", "gymnasium", "safetensors", "envpool")


def provenance(argv: Sequence[str]) -> dict[str, object]:
    """The part of meta.json about code, machine and command line."""
    host = {"name": platform.node(), "platform": platform.platform(), "machine": platform.machine()}
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"started": started, "argv": scrub(argv), **code(), "host": host | {"cpus": os.cpu_count()}}


def code() -> dict[str, object]:
    """What determines the numbers beside the config: versions, and the commit of the working directory."""
    return {"versions": versions(), "git": git_state(Path.cwd())}


def moved(meta: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """`torch 2.8.0 -> 2.9.0`: versions, commit and plugins that changed since the run last started."""
    resumed = meta.get("resumed")
    before = resumed[-1] if isinstance(resumed, list) and resumed else meta
    old, new = (_flat(facts) for facts in (before, now))
    return [f"{name} {old[name]} -> {new[name]}" for name in old if name in new and old[name] != new[name]]


def _flat(facts: object) -> dict[str, str]:
    found, git = (facts.get(key) if isinstance(facts, Mapping) else None for key in ("versions", "git"))
    known = {str(name)[:40]: str(version)[:40] for name, version in found.items()} if isinstance(found, Mapping) else {}
    commit = git.get("commit") if isinstance(git, Mapping) else None
    return {**known, "commit": str(commit)[:12]} if commit else known


def versions() -> dict[str, str]:
    """Installed versions of the packages that determine the numbers."""
    found = {"python": platform.python_version(), "ludus": __version__}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def git_state(folder: Path) -> dict[str, object] | None:
    """Commit, and whether files differ from it (None if asking would run programs); None outside a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    own = _git(folder, "config", "--show-scope", "--get-regexp", r"^filter\.")
    filtered = own is not None and any(line.startswith(("local", "worktree")) for line in own.splitlines())
    changes = None if filtered else _git(folder, *_STATUS)
    return {"commit": commit, "dirty": None if changes is None else changes != ""}


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of git, without running hooks, monitors and helpers of the repository, which may be foreign."""
    harmless = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "--no-optional-locks")
    command = ["git", *harmless, "-C", str(folder), *arguments]
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True, env=environment)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
