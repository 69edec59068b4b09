"""Metric names round-trip and fall into groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.metrics.names import group, join, split

_segment = st.text("abc_", min_size=1, max_size=5)


@given(_segment, st.lists(_segment, min_size=1, max_size=4).map("/".join))
def test_join_and_split_are_inverses(stage: str, name: str) -> None:
    assert split(join(stage, name)) == (stage, name)


@pytest.mark.parametrize("key", ["epoch", "/loss", "train/"])
def test_split_refuses_what_is_no_metric(key: str) -> None:
    with pytest.raises(ValueError, match="no metric name"):
        split(key)


@pytest.mark.parametrize("stage", ["", "a/b"])
def test_join_refuses_a_bad_stage(stage: str) -> None:
    with pytest.raises(ValueError, match="stage"):
        join(stage, "loss")


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
