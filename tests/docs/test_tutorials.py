"""The tutorials, trained in full: what they say came out comes out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ludus as package

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
pytestmark = [pytest.mark.slow, pytest.mark.integration]


@pytest.fixture
def follow(ludus: Callable[..., Any], blocks: Any, tmp_path: Path) -> Callable[[str], None]:
    """Writes the files of a tutorial and runs its trainings as they are written."""

    def start(tutorial: str) -> None:
        for block in blocks(TUTORIALS / tutorial):
            if block.title:
                (tmp_path / block.title).write_text(block.text)
            for line in block.commands() if block.language == "bash" else []:
                if line.startswith("ludus train") and "--seed 1..5" in line:
                    outcome = ludus(line, as_written=True)
                    assert outcome.code == 0, outcome.err

    return start


def test_twenty_epochs_beat_four(follow: Callable[[str], None]) -> None:
    follow("fifteen-minutes.md")
    found = package.compare(metrics="final")
    best, other = found.groups
    assert ("epochs=20" in best.label, "epochs=4" in other.label) == (True, True)
    assert best.scores["final"].iqm > 475 > other.scores["final"].iqm
    assert found.improvement is not None
    told = re.search(r"probability [\d.]+ \(95 % interval ([\d.]+) to", str(found.improvement))
    assert told is not None and float(told[1]) > 0.5


def test_the_own_algorithm_learns_and_cartpole_does_not_tell_it_apart(follow: Callable[[str], None]) -> None:
    follow("own-algorithm.md")
    found = package.compare(metrics="final")
    assert [len(group.runs) for group in found.groups] == [5, 5, 5]
    assert all(group.scores["final"].iqm > 475 for group in found.groups)
    assert any("do not show which is better" in note for note in found.notes)
