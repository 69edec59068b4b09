"""Where a run came from."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ludus.archive.provenance import git_state


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_commit_and_dirty_flag(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    _git(tmp_path, "init")
    assert git_state(tmp_path) is None  # no commit yet
    (tmp_path / "a").write_text("1")
    _git(tmp_path, "add", "a")
    _git(tmp_path, "commit", "-m", "x")
    state = git_state(tmp_path)
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == {"commit": state["commit"], "dirty": True}
