"""Trees: dicts and tuples of leaves, in one order however they were built."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from ludus.types import space_tree, tree_index, tree_leaves, tree_map, tree_paths, tree_set, zeros

ONE = {"b": (1, 2), "a": {"d": 3, "c": 4}}
OTHER = {"a": {"c": 40, "d": 30}, "b": (10, 20)}


def test_leaves_come_in_the_order_of_the_keys() -> None:
    assert tree_leaves(ONE) == [4, 3, 1, 2] and tree_leaves(OTHER) == [40, 30, 10, 20]
    assert tree_paths(ONE) == tree_paths(OTHER) == ["a.c", "a.d", "b.0", "b.1"]
    assert tree_leaves(7) == [7] and tree_paths(7) == [""] and tree_leaves(()) == []


def test_leaves_with_the_same_path_meet() -> None:
    assert tree_map(lambda one, other: one + other, ONE, OTHER) == {"a": {"c": 44, "d": 33}, "b": (11, 22)}
    leaves = iter(tree_leaves(OTHER))
    assert tree_map(lambda _: next(leaves), ONE) == OTHER, "tree_map visits the leaves in their order"


@pytest.mark.parametrize("wrong", [{"a": ONE["a"]}, {**ONE, "z": 1}, {**ONE, "b": (1, 2, 3)}])
def test_trees_of_another_structure_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError):
        tree_map(lambda *_: None, ONE, wrong)


def test_arrays_of_a_space() -> None:
    parts = {"x": gym.spaces.Box(-1, 1, (2,), np.float32), "y": gym.spaces.Tuple([gym.spaces.Discrete(3)])}
    space = gym.spaces.Dict(parts)
    assert tree_paths(space_tree(space)) == ["x", "y.0"]
    obs = zeros(space, 4, 5)
    assert obs["x"].shape == (4, 5, 2) and obs["y"][0].shape == (4, 5) and obs["y"][0].dtype == np.int64
    tree_set(obs, (1, 2), {"x": [1.0, 2.0], "y": (3,)})
    assert obs["y"][0][1, 2] == 3 and tree_index(obs, (1, 2))["x"].tolist() == [1.0, 2.0] and obs["x"].sum() == 3
