"""Metric names are joined from their parts and fall into groups."""

from __future__ import annotations

import pytest

from ludus.metrics.names import group, join


@pytest.mark.parametrize("stage", ["", "a/b"])
def test_join_refuses_a_bad_stage(stage: str) -> None:
    with pytest.raises(ValueError, match="stage"):
        join(stage, "loss")


def test_join() -> None:
    assert join("train", "loss/policy") == "train/loss/policy"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("train/roll/ep_rew/mean", "train/roll"),
        ("val/roll/ep_rew/mean", "val"),
        ("train/loss/policy", "train/loss"),
        ("train/time/fps", "time"),
        ("train/policy_lr", "train"),
        ("collect/reward", "collect"),
    ],
)
def test_groups(key: str, expected: str) -> None:
    assert group(key) == expected
