"""docs/findings.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| ([^|]+) \| [^|]+ \| (`[^|]+`) \|$", (ROOT / "docs" / "findings.md").read_text(), re.MULTILINE)


def test_every_finding_has_tests_that_are_there() -> None:
    assert len(ROWS) > 100
    for finding, cell in ROWS:
        for name in re.findall(r"`([^`]+)`", cell):
            path, _, function = name.partition("::")
            text = (ROOT / path).read_text()
            assert not function or f"def {function.partition('[')[0]}(" in text, (finding, name)


def test_every_kind_of_finding_is_told() -> None:
    told = {finding.split()[0].rstrip(",") for finding, _ in ROWS}
    wrong = [f"{kind}{i}" for kind, last in (("A", 6), ("B", 7), ("C", 5), ("D", 7)) for i in range(1, last + 1)]
    assert {*wrong, *(f"F{i}" for i in range(1, 28))} <= told
