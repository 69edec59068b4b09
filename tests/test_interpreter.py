"""Interpreters of our own import from where this one does, never from the folder that somebody happens to stand in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ludus
from ludus.interpreter import running_module


def test_a_module_in_the_working_directory_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A downloaded folder with a `numpy.py` in it would run that in every rank and every evaluation."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "greeting_of.py").write_text(f"import sys; print({name!r}, __name__, *sys.argv[1:])")
    monkeypatch.chdir(tmp_path / "theirs")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "ours"), Path("never/imported/from"), *sys.path])
    said = subprocess.run(
        running_module("greeting_of", "a", "b"), capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.split() == ["ours", "__main__", "a", "b"]


def test_no_part_starts_an_interpreter_that_looks_into_the_working_directory() -> None:
    root = Path(ludus.__file__).parent
    starts = {path: re.findall(r'sys\.executable, "(-\w)"', path.read_text()) for path in root.rglob("*.py")}
    unsafe = {str(path.relative_to(root)) for path, options in starts.items() if set(options) - {"-P"}}
    assert unsafe == set()
