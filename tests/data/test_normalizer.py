"""Normalisation: learned from training only, invertible statistics, saved and restored."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.errors import ConfigError

SPACE = gym.spaces.Box(np.array([-1, 0], np.float32), np.array([3, 10], np.float32))


def test_rolling_gives_zero_mean_and_unit_deviation() -> None:
    rng = np.random.default_rng(0)
    normalizer = ObservationNormalizer("rolling", gym.spaces.Box(-np.inf, np.inf, (2,)))
    data = rng.normal([5, -3], [2, 0.1], (4_000, 2)).astype(np.float32)
    for batch in np.array_split(data, 7):
        normalizer.update(batch)
    scaled = normalizer.apply(data)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-3)
    assert scaled.dtype == np.float32


def test_apply_changes_nothing() -> None:
    normalizer = ObservationNormalizer("rolling", SPACE)
    normalizer.update(np.ones((10, 2), np.float32))
    before = {k: np.array(v) for k, v in normalizer.state_dict().items()}
    normalizer.apply(np.full((5, 2), 100, np.float32))
    after = normalizer.state_dict()
    assert all(np.array_equal(before[k], after[k]) for k in before)


def test_state_round_trip() -> None:
    normalizer, other = ObservationNormalizer("rolling", SPACE), ObservationNormalizer("rolling", SPACE)
    normalizer.update(np.random.default_rng(0).normal(size=(100, 2)))
    other.load_state_dict(normalizer.state_dict())
    obs = np.array([[1.0, 2.0]], np.float32)
    assert np.array_equal(normalizer.apply(obs), other.apply(obs))


def test_static_maps_bounds_to_one() -> None:
    normalizer = ObservationNormalizer("static", SPACE)
    np.testing.assert_allclose(
        normalizer.apply(np.array([[-1, 0], [3, 10], [1, 5]], np.float32)), [[-1, -1], [1, 1], [0, 0]]
    )
    normalizer.update(np.full((9, 2), 3.0))
    np.testing.assert_allclose(normalizer.apply(np.array([[1, 5]], np.float32)), [[0, 0]])


@pytest.mark.parametrize(
    ("mode", "space"),
    [
        ("static", gym.spaces.Box(-np.inf, np.inf, (2,))),
        ("rolling", gym.spaces.Discrete(3)),
        ("rolling", gym.spaces.Box(0, 255, (3, 8, 8), np.uint8)),
    ],
)
def test_spaces_it_cannot_work_on_are_refused(mode: str, space: gym.Space) -> None:
    with pytest.raises(ConfigError, match="normalize_obs"):
        ObservationNormalizer(mode, space)


def test_rewards_are_scaled_by_the_deviation_of_the_return() -> None:
    rng = np.random.default_rng(0)
    normalizer = RewardNormalizer(3, gamma=0.9)
    reward, done = rng.normal(0, 5, (50, 3)).astype(np.float32), rng.random((50, 3)) < 0.1
    running, returns = np.zeros(3), []
    for r, d in zip(reward, done, strict=True):
        running = running * 0.9 + r
        returns.append(running.copy())
        running[d] = 0
    scaled = normalizer.apply(reward, done)
    np.testing.assert_allclose(scaled, reward / np.std(returns), rtol=1e-4)
    np.testing.assert_allclose(normalizer.running, running)
