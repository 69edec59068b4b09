"""docs/requirements-audit.md: every row has a verdict, and what is said to work is shown by a test that is there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "requirements-audit.md").read_text()
ROWS = re.findall(r"^\| ([A-X]\d\d) \| (works|partly|not) \| (.+) \|$", PAGE, re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`")


def test_every_row_is_judged_once_and_the_sum_is_right() -> None:
    assert len(ROWS) == len({row for row, _, _ in ROWS}) == 79
    count = Counter(verdict for _, verdict, _ in ROWS)
    assert f"{count['works']} of 79 work" in PAGE
    assert count["works"] >= 60


def test_every_test_that_is_named_is_there() -> None:
    for row, verdict, text in ROWS:
        named = TEST.findall(text)
        assert named or verdict != "works", row
        for path, function in named:
            assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{row}: {path}::{function}"
            assert (ROOT / path).exists(), f"{row}: {path}"


def test_what_does_not_work_has_a_reason() -> None:
    assert not [row for row, verdict, text in ROWS if verdict != "works" and len(text) < 40]


def test_what_runs_leave_is_ignored_by_git() -> None:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/runs/", "/experiments/", "/datasets/", "/bench/"} <= set(lines)
