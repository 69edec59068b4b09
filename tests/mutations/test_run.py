"""The tool that breaks the code on purpose, and the lists it reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mutations import run

CAUGHT = {
    "id": "toy-caught",
    "what": "adds instead of taking away",
    "file": "src/toy.py",
    "find": "a - b",
    "replace": "a + b",
    "test": "tests/test_toy.py::test_minus",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one module, one test of half of it, and a copy of the tool."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/toy.py").write_text("def minus(a, b):\n    return a - b\n\n\ndef same(a):\n    return a\n")
    (tmp_path / "tests/mutations").mkdir(parents=True)
    (tmp_path / "tests/test_toy.py").write_text("import toy\n\n\ndef test_minus():\n    assert toy.minus(3, 2) == 1\n")
    shutil.copy(run.__file__, tmp_path / "tests/mutations/run.py")
    return tmp_path


def write(project: Path, *entries: dict[str, str]) -> list[run.Mutation]:
    (project / "tests/mutations/toy.yaml").write_text(yaml.safe_dump(list(entries)))
    return run.load(project / "tests/mutations")


def mutate(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, project / "tests/mutations/run.py", *arguments]
    environment = os.environ | {"PYTHONPATH": str(project / "src")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=project, timeout=100)


def test_a_change_nobody_notices_is_named(project):
    broken = {**CAUGHT, "id": "toy-import", "find": "def minus", "replace": "def plus(): ...\nraise OSError\ndef minus"}
    survivor = {**CAUGHT, "id": "toy-survivor", "find": "    return a\n", "replace": "    return None\n"}
    write(project, CAUGHT, survivor, broken, {**CAUGHT, "id": "toy-other"})
    done = mutate(project, "--only", "toy-caught,toy-survivor,toy-import")
    assert done.returncode == 1, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert lines[0] == "1 of 3 caught"
    assert lines[1].startswith("survived: toy-import:") and "pytest exit code 4, " in lines[1]
    assert lines[2].startswith("survived: toy-survivor:") and lines[2].endswith("it passes")
    assert len(lines) == 3
    assert (project / "src/toy.py").read_text().count("a - b") == 1


def test_a_list_that_rots_is_refused(project):
    (entry,) = write(project, CAUGHT)
    assert run.problems(project, [entry]) == []
    wrong = {
        "2 entries have this id": [entry, entry],
        "'return' occurs 2 times": [replace(entry, find="return")],
        "'a * b' occurs 0 times": [replace(entry, find="a * b")],
        "is no Python": [replace(entry, replace="a -")],
        "is unchanged": [replace(entry, replace="a - b")],
        "test_toy.py::test_plus: no such test": [replace(entry, test="tests/test_toy.py::test_plus")],
        "test_tin.py::test_minus: no such test": [replace(entry, test="tests/test_tin.py::test_minus")],
        "tests/test_toy.py: no such test": [replace(entry, test="tests/test_toy.py")],
        "src/tin.py: no such file": [replace(entry, file="src/tin.py")],
    }
    for message, entries in wrong.items():
        (problem,) = run.problems(project, entries)
        assert message in problem


def test_every_list_fits_the_code():
    """So that the lists cannot rot: every `find` occurs once, every test exists, every id is unique."""
    assert run.problems(run.ROOT, run.load(run.ROOT / "tests/mutations")) == []
