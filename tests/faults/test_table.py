"""docs/reliability.md names every case with its tests, and every test there is."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs" / "reliability.md").read_text()
ROWS = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)
CASES = [*range(1, 40), *range(54, 62), *range(63, 68), 70, 71, 72, 75, 76]


def test_every_case_has_a_row() -> None:
    assert [int(number) for number, _ in ROWS] == CASES


def test_the_tests_of_the_table_are_the_tests_there_are() -> None:
    written = [
        name
        for path in FOLDER.glob("test_*.py")
        for name in re.findall(r"^def (test_\d\d_\w+)", path.read_text(), re.M)
    ]
    told = {name for _, cell in ROWS for name in re.findall(r"`(test_\w+)`", cell)}
    assert told == set(written) and len(written) == len(set(written))


def test_a_test_stands_with_its_case() -> None:
    for number, cell in ROWS:
        for name in re.findall(r"`(test_\w+)`", cell):
            assert name.startswith(f"test_{int(number):02}_"), name
