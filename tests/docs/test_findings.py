"""docs/findings.md names tests that are there, and each finding has what shows it on the old source."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text()
ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| (`[^|]+`) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE)


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


def test_every_finding_has_what_shows_it_on_the_old_source() -> None:
    """`tests/findings/run.py` runs these."""
    broken = ROW.findall(PAGE.partition("## What was broken")[2].partition("\n## ")[0])
    entries = yaml.safe_load((ROOT / "tests" / "findings" / "seen.yaml").read_text())
    named = [(finding, name) for finding, cell in broken for name in re.findall(r"`([^`]+)`", cell)]
    assert [(entry["finding"], entry["test"]) for entry in entries] == named
    for entry in entries:
        seen = entry["seen"]
        assert set(seen) in ({"commit", "test"}, {"script"}, {"not_seen"}), entry
        assert entry.get("because") or "not_seen" in seen, entry
        assert "script" not in seen or (ROOT / seen["script"]).is_file(), entry
