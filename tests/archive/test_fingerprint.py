"""What tells two checkpoints apart, and what does not."""

from __future__ import annotations

import pytest
import torch

from ludus.archive.fingerprint import fingerprint

STATE = {
    "about": {"name": "2026-01-01-a"},
    "callbacks": {"best": 1.0},
    "progress": {"env_steps": 64},
    "learner": {"w": torch.arange(3.0)},
    "buffer": {"places": [1, 2], "count": 2},
    "metrics": {"time/seconds": 3.0, "system/memory": 5},
}


@pytest.mark.parametrize(
    "change",
    [
        {"about": {"name": "2026-01-02-b"}},
        {"callbacks": {"best": 2.0}},
        {"buffer": {"places": [7, 9], "count": 2}},
        {"metrics": {"time/seconds": 4.0, "system/memory": 6}},
    ],
)
def test_names_callbacks_times_and_places_are_left_out(change: dict[str, object]) -> None:
    assert fingerprint(STATE | change) == fingerprint(STATE)


@pytest.mark.parametrize(
    "change",
    [
        {"progress": {"env_steps": 65}},
        {"learner": {"w": torch.tensor([0.0, 1.0, 2.0 + 2e-7])}},
        {"learner": {"w": torch.arange(3.0).double()}},
        {"learner": {"w": torch.arange(3.0)[None]}},
        {"learner": {"v": torch.arange(3.0)}},
        {"buffer": {"places": [1, 2], "count": 3}},
    ],
)
def test_every_other_bit_counts(change: dict[str, object]) -> None:
    assert fingerprint(STATE | change) != fingerprint(STATE)
