"""Minibatches are a partition, time-major, and keep sequences whole when asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.data.rollout import minibatches


def columns(T: int, B: int) -> dict[str, torch.Tensor]:
    index = torch.arange(T * B).reshape(T, B)
    return {"index": index, "pair": torch.stack([index, -index], -1)}


@given(T=st.integers(1, 9), B=st.integers(1, 6), count=st.integers(1, 7), seed=st.integers(0, 5))
def test_steps_are_a_partition(T: int, B: int, count: int, seed: int) -> None:
    count = min(count, T * B)
    parts = list(minibatches(columns(T, B), (), count, np.random.default_rng(seed), sequences=False))
    assert len(parts) == count
    seen = torch.cat([part["index"][0] for part in parts])
    assert sorted(seen.tolist()) == list(range(T * B))
    for part in parts:
        assert part["index"].shape[0] == 1
        assert torch.equal(part["pair"][..., 0], part["index"])
        assert torch.equal(part["pair"][..., 1], -part["index"])
    sizes = [part["index"].numel() for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(T=st.integers(1, 9), B=st.integers(1, 6), count=st.integers(1, 6))
def test_sequences_stay_whole_with_their_state(T: int, B: int, count: int) -> None:
    state = (torch.arange(B).float().unsqueeze(1),)
    parts = list(minibatches(columns(T, B), state, count, np.random.default_rng(0), sequences=True))
    envs = []
    for part in parts:
        assert part["index"].shape[0] == T
        which = part["index"][0]
        assert len(which)
        assert torch.equal(part["index"], torch.arange(T).unsqueeze(1) * B + which)
        assert part["state"][0].squeeze(1).long().tolist() == which.tolist()
        envs += which.tolist()
    assert sorted(envs) == list(range(B))


def test_shuffled_differently_every_time() -> None:
    rng = np.random.default_rng(0)
    first, second = (
        next(iter(minibatches(columns(8, 8), (), 2, rng, sequences=False)))["index"].tolist() for _ in range(2)
    )
    assert first != second


@pytest.mark.parametrize("sequences", [True, False])
def test_same_generator_same_order(sequences: bool) -> None:
    orders = [
        [p["index"].tolist() for p in minibatches(columns(4, 4), (), 2, np.random.default_rng(7), sequences=sequences)]
        for _ in range(2)
    ]
    assert orders[0] == orders[1]
