"""The sum tree draws in proportion, never what has no weight, and depends on its leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.data.buffers._sum_tree import SumTree
from scripted import Script, fill, make

SIZES = st.sampled_from([1, 2, 15, 16, 17, 300, 4097, 70_000])


@given(size=SIZES, seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_finds_what_a_running_sum_finds(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(size) < 0.7, rng.integers(0, 9, size), 0.0)
    weights[rng.integers(size)] = 1.0
    tree = SumTree(size)
    tree.rebuild(weights)
    mass = rng.random(50) * tree.total
    np.testing.assert_array_equal(tree.find(mass), np.searchsorted(np.cumsum(weights), mass, "right"))
    assert (weights[tree.find(np.array([0.0, tree.total, np.nextafter(tree.total, 0)]))] > 0).all()


@given(size=SIZES, seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_a_rebuilt_tree_is_the_same_to_the_bit(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, again = SumTree(size), SumTree(size)
    for _ in range(5):
        index = rng.integers(size, size=20)
        tree.set(index, rng.random(20))
    again.rebuild(tree.leaves.copy())
    assert tree.total == again.total
    for ours, theirs in zip([*tree.levels, tree.top], [*again.levels, again.top], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_steps_are_drawn_in_proportion_and_weights_undo_it() -> None:
    script = Script(2, 0, ends=0.2, dtype=np.float32)
    buffer = make("prioritized", script, 200, alpha=0.5, beta=1.0)
    fill(buffer, script, [("add", 40)])
    index = np.unique(np.concatenate([buffer.sample(64)["index"].copy() for _ in range(40)]))
    errors = np.random.default_rng(0).integers(1, 10, len(index)).astype(float)
    buffer.update_priorities(index, errors)
    expected = (errors + 1e-6) ** 0.5
    counts = dict.fromkeys(index.tolist(), 0)
    weight_of: dict[int, float] = {}
    for _ in range(400):
        sample = buffer.sample(64)
        for i, w in zip(sample["index"].tolist(), sample["weight"][0].tolist(), strict=True):
            counts[i] += 1
            weight_of[i] = w
        assert sample["weight"].max() == pytest.approx(1.0)
    share = np.array([counts[i] for i in index.tolist()]) / (400 * 64)
    np.testing.assert_allclose(share, expected / expected.sum(), atol=0.004)
    product = np.array([weight_of[i] for i in index.tolist()]) * expected  # beta = 1 makes every step count the same
    assert product.std() / product.mean() < 0.35  # each weight is in units of its own batch's largest
