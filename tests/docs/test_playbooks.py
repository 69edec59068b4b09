"""The playbooks: the sixteen tasks are there, `ludus task` prints them, and what they tell to run exists."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLAYBOOKS = sorted((ROOT / "src" / "ludus" / "playbooks").glob("*.md"))
TASKS = [
    "audit_bugs",
    "audit_static_analysis",
    "cleanup_dead_code",
    "cleanup_dry_file",
    "audit_dryness",
    "audit_encapsulation",
    "audit_concerns",
    "audit_config_consistency",
    "audit_dependency_health",
    "tune_hyperparams",
    "update_docs_architecture",
    "update_docs_coding_from_diff",
    "update_docs_readme",
    "audit_tests",
    "test_upgrade",
    "cleanup_imports",
]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
LONG = ("ludus smoke", "ludus train", "ludus compare", "ludus evaluate")
"""Commands that need runs or time: other pages run them, here they only have to be understood."""

every_playbook = pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)


def test_the_sixteen_tasks_are_listed_with_their_purpose(ludus: Callable[..., Any]) -> None:
    told = json.loads(ludus("ludus task list --json").out)
    assert sorted(told) == sorted(TASKS)
    lines = ludus("ludus task list").out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(TASKS)
    assert all(line.endswith(told[line.split()[0]]) for line in lines)


@every_playbook
def test_a_task_is_shown_as_it_is_written(playbook: Path, ludus: Callable[..., Any]) -> None:
    text = ludus(f"ludus task show {playbook.stem}").out
    assert text == playbook.read_text()
    title, purpose, *rest = text.split("\n\n")
    assert title == f"# {playbook.stem}"
    assert purpose.endswith(".") and len(purpose) < 130 and "\n" not in purpose
    assert any(part.startswith("1. ") for part in rest) and rest[-1].startswith("Done when ")


def test_an_unknown_task_names_the_nearest(ludus: Callable[..., Any]) -> None:
    outcome = ludus("ludus task show audit_bug")
    assert (outcome.code, outcome.err) == (2, "error: audit_bug: no such task; did you mean 'audit_bugs'?\n")


def test_the_documentation_shows_the_same_files() -> None:
    assert (ROOT / "docs" / "playbooks").resolve() == PLAYBOOKS[0].parent


@every_playbook
def test_everything_a_playbook_names_exists(playbook: Path, ludus: Callable[..., Any], blocks: Any) -> None:
    commands = [line for block in blocks(playbook) for line in block.commands()]
    assert commands
    for line in commands:
        check(line, ludus)
    for path in re.findall(
        r"`((?:src|docs|tests|benchmarks|tools)/[\w./-]+|[A-Z]+\.md|\w+\.(?:toml|txt))`", playbook.read_text()
    ):
        assert (ROOT / path).exists(), path


def check(line: str, ludus: Callable[..., Any]) -> None:
    """A command of a playbook: `ludus` runs or is understood, files and targets of the others are there."""
    words = shlex.split(line)
    if words[0] == "ludus":
        outcome = ludus(f"{' '.join(words[:2])} --help" if line.startswith(LONG) else line)
        assert outcome.code == 0, f"{line}\n{outcome.err}"
    elif words[0] == "make":
        assert words[1] in TARGETS, line
    elif words[0] in ("pytest", "python"):
        paths = [word for word in words[1:] if word.endswith(".py") or word.startswith("tests/")]
        assert paths and all((ROOT / path).exists() for path in paths), line
    else:
        assert words[0] in ("ruff", "lint-imports", "mypy", "git"), line
