"""A policy that has learned nothing yet is held against the uniform one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ludus.watch.first_policy import far_from_uniform

DISCRETE, BOX = gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,))
CHOICES, BITS = gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(3)


def _gaussian(mean: list[float], std: float) -> dict[str, Any]:
    return {"mean": np.tile(np.array(mean), (4, 1)), "std": np.full((4, len(mean)), std)}


def _probabilities(*row: float) -> dict[str, Any]:
    return {"probabilities": np.tile(np.array(row), (4, 1))}


@pytest.mark.parametrize(
    ("space", "info", "key", "words"),
    [
        (DISCRETE, _probabilities(0.5, 0.5), None, ""),
        (DISCRETE, _probabilities(0.95, 0.05), "train/policy/entropy", "entropy 0.20 of at most 0.69"),
        (DISCRETE, _probabilities(1.0, 0.0), "train/policy/entropy", "entropy 0.00 of"),
        (CHOICES, _probabilities(0.5, 0.5, 0.3, 0.3, 0.4), None, ""),
        (CHOICES, _probabilities(1.0, 0.0, 0.3, 0.3, 0.4), "train/policy/entropy", "entropy 1.09 of at most 1.79"),
        (BITS, _probabilities(0.5, 0.5, 0.4), None, ""),
        (BITS, _probabilities(1.0, 0.0, 0.5), "train/policy/entropy", "entropy 0.69 of at most 2.08"),
        (BOX, _gaussian([0.0, 0.1], 1.0), None, ""),
        (BOX, _gaussian([0.0, 0.0], 0.1), "train/policy/std", "only 21% of the action range"),
        (BOX, _gaussian([0.0, 0.0], 5.0), "train/policy/std", "10 times as wide as their range"),
        (BOX, _gaussian([0.0, -0.9], 1.0), "train/policy/mean", "action [1]: 90% off the middle"),
        (gym.spaces.Box(0, 10, (2,)), _gaussian([5.0, 5.0], 3.0), None, ""),
        (gym.spaces.Box(-np.inf, np.inf, (2,)), _gaussian([50.0, 0.0], 1e-3), None, ""),
        (BOX, {}, None, ""),
    ],
)  # fmt: skip
def test_a_first_policy_that_would_not_try_everything(space: Any, info: Any, key: str | None, words: str) -> None:
    found = far_from_uniform(space, info)
    assert (found and found.key) == key
    assert found is None or words in found.problem
