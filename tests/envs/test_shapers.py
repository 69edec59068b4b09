"""Wrappers that change actions, pay extra, or scale observations."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from envs.conftest import Make
from envs.test_wrappers import env, refusal
from ludus.config.schema import Environment
from ludus.envs.make import make_env, make_vector
from ludus.errors import ConfigError
from ludus.registry import WRAPPERS


class Recorder(gym.Env):
    """Remembers the last action; its observation is the number of steps in [-2, 6] and a constant."""

    def __init__(self, space: gym.Space | None = None) -> None:
        self.action_space = space or Discrete(4)
        self.observation_space = Box(np.float32([-2, 0]), np.float32([6, 10]), dtype=np.float32)
        self.last: Any = None
        self._t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.last, self._t = action, self._t + 1
        return self._obs(), 1.0, self._t >= 5, False, {}

    def _obs(self) -> Any:
        return np.array([self._t, 5], np.float32)


@pytest.fixture(autouse=True, scope="module")
def recorder() -> None:
    gym.register("Recorder-v0", Recorder)


@pytest.mark.parametrize("mapping", [[3, 1], {0: 3, 1: 1}, {"0": 3, "1": 1}])
def test_actions_are_renamed(mapping: Any) -> None:
    wrapped = env("Recorder-v0", {"id": "remap_actions", "mapping": mapping})
    wrapped.reset()
    assert wrapped.action_space == Discrete(2)
    inner: Any = wrapped.unwrapped
    for choice, taken in ((0, 3), (1, 1)):
        wrapped.step(choice)
        assert inner.last == taken


def test_vectors_of_buttons_become_choices() -> None:
    buttons = [[0, 0, 0], [1, 0, 0], [1, 0, 1]]
    inner = Recorder(gym.spaces.MultiBinary(3))
    wrapped = WRAPPERS["DiscreteActionSpaceRemapperWrapper"](inner, buttons)
    wrapped.reset()
    for choice, pressed in enumerate(buttons):
        wrapped.step(choice)
        assert inner.last.tolist() == pressed and inner.action_space.contains(inner.last)
    steering = WRAPPERS["remap_actions"](Recorder(Box(-1, 1, (2,), np.float32)), [[0.5, -1.0]])
    assert steering.action(0).tolist() == [0.5, -1.0]


def test_actions_that_do_not_exist_are_refused() -> None:
    assert "4 is not in Discrete(4)" in refusal("Recorder-v0", id="remap_actions", mapping=[0, 4])
    assert "leaves no action" in refusal("Recorder-v0", id="remap_actions", mapping=[])
    assert "must name the actions 0 to 1" in refusal("Recorder-v0", id="remap_actions", mapping={0: 1, 2: 2})


def test_only_valid_actions_are_ever_taken(make: Make) -> None:
    venv = make("Recorder-v0", valid_actions=[1, 3])
    assert venv.action_space == Discrete(2)
    venv.reset(range(4))
    venv.step(np.array([0, 1, 1, 0]))
    sync: Any = venv
    assert [each.unwrapped.last for each in sync._stepper.envs] == [1, 3, 3, 1]


def test_actions_are_renamed_on_whole_vectors(make: Make) -> None:
    sync, whole = (make("TMaze-v0", vectorization=name, valid_actions=[2, 0]) for name in ("sync", "auto"))
    assert (sync.backend, whole.backend) == ("sync", "native")
    assert sync.action_space == whole.action_space == Discrete(2)
    np.testing.assert_array_equal(sync.reset(range(4)), whole.reset(range(4)))
    for step in range(200):
        action = (np.arange(4) + step) % 2
        for one, other in zip(sync.step(action)[:4], whole.step(action)[:4], strict=True):
            np.testing.assert_array_equal(one, other)


def test_valid_actions_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^environment.valid_actions: 9 is not in Discrete\(4\)"):
        make_env(Environment(id="Recorder-v0", valid_actions=[0, 9]))
    with pytest.raises(ConfigError, match=r"^environment.valid_actions: 9 is not in Discrete\(2\)"):
        make_vector(Environment(id="CartPole-v1", valid_actions=[0, 9], vectorization="native"))


def test_actions_pay_and_cost(make: Make) -> None:
    wrapped = env("Recorder-v0", {"id": "ActionRewardShaper", "rewards": {1: -0.5, 3: 2.0}})
    wrapped.reset()
    assert [wrapped.step(action)[1] for action in range(4)] == [1.0, 0.5, 1.0, 3.0]
    wrapped = env("Recorder-v0", {"id": "action_reward", "rewards": [1, 2, 3]})
    wrapped.reset()
    assert [wrapped.step(action)[1] for action in range(4)] == [2.0, 3.0, 4.0, 1.0]
    assert wrapped.step(0)[4]["raw_reward"] == 1.0
    venv = make("Recorder-v0", wrappers=[{"id": "action_reward", "rewards": [5]}])
    venv.reset(range(4))
    result = venv.step(np.zeros(4, int))
    assert (result.reward == 6).all() and (result.raw_reward == 1).all()
    assert "7 is not in Discrete(4)" in refusal("Recorder-v0", id="action_reward", rewards={7: 1.0})
    assert "pays for Discrete actions" in refusal("Pendulum-v1", id="action_reward", rewards=[1.0])


def test_rare_states_pay_more() -> None:
    wrapped = env("Recorder-v0", {"id": "state_count_bonus", "scale": 2.0, "bins": [4, 1]})  # cells of 2 steps
    paid = []
    for _ in range(2):
        wrapped.reset()
        paid += [wrapped.step(0)[1] - 1 for _ in range(5)]
    visits = [1, 1, 2, 1, 2, 2, 3, 4, 3, 4]  # steps 1 | 2 3 | 4 5, and once more: counts outlive the episode
    np.testing.assert_allclose(paid, [2 / math.sqrt(n) for n in visits])


def test_states_are_counted_in_discretes_and_in_unbounded_vectors() -> None:
    lake = env("FrozenLake-v1", {"id": "state_count_bonus"}, kwargs={"is_slippery": False})
    lake.reset(seed=0)
    assert [lake.step(0)[1] for _ in range(2)] == pytest.approx([0.1, 0.1 / math.sqrt(2)])  # against the wall
    car = env("MountainCar-v0", {"id": "MountainCarV0_StateCountBonus", "scale": 1.0})
    car.reset(seed=0)
    assert car.step(1)[1] == pytest.approx(0.0)
    assert "needs finite bounds" in refusal("CartPole-v1", id="state_count_bonus")
    limits = {"low": [-2, -3, -0.2, -3], "high": [2, 3, 0.2, 3]}
    pole = env("CartPole-v1", {"id": "state_count_bonus", "scale": 1.0, **limits})
    pole.reset(seed=0)
    assert pole.step(0)[1] == pytest.approx(2.0)
    assert "need 4 values" in refusal("CartPole-v1", id="state_count_bonus", low=[0.0], high=[1.0])
    assert "scale must be positive" in refusal("MountainCar-v0", id="state_count_bonus", scale=0)
    assert "bins must be at least 1" in refusal("MountainCar-v0", id="state_count_bonus", bins=0)


def test_counts_are_part_of_a_snapshot(make: Make) -> None:
    first, other = (make("Recorder-v0", wrappers=[{"id": "state_count_bonus"}]) for _ in range(2))
    assert first.choose_snapshot_method() == "adapter"
    first.reset(range(4))
    other.reset(range(4))
    for _ in range(12):
        first.step(np.zeros(4, int))
    other.restore(first.snapshot())
    expected = first.step(np.zeros(4, int)).reward.copy()
    assert (expected < 1.07).all()
    np.testing.assert_array_equal(other.step(np.zeros(4, int)).reward, expected)


def test_ranges_are_mapped() -> None:
    wrapped = env("Recorder-v0", {"id": "scale_observation", "low": -1.0})
    assert wrapped.observation_space == Box(-1, 1, (2,), np.float32)
    assert wrapped.reset()[0].tolist() == [-0.5, 0.0]
    assert "finite bounds" in refusal("CartPole-v1", id="scale_observation")
    assert "low must be below high" in refusal("Recorder-v0", id="scale_observation", low=1.0)
    assert "images stay uint8" in refusal("CarRacing-v3", id="scale_observation")


def test_scaling_a_whole_vector_is_the_same(make: Make) -> None:
    single = make("MountainCar-v0", wrappers=[{"id": "scale_observation"}])
    whole = WRAPPERS["scale_observation"].vectorize(make("MountainCar-v0"))
    np.testing.assert_array_equal(single.reset(range(4)), whole.reset(range(4)))
    assert single.observation_space == whole.observation_space


def test_mean_and_deviation_are_given() -> None:
    wrapped = env("Recorder-v0", {"id": "normalize_observation", "mean": [2, 5], "std": 4})
    obs = wrapped.reset()[0]
    assert obs.tolist() == [-0.5, 0.0] and obs.dtype == np.float32
    assert wrapped.observation_space == Box(np.float32([-1, -1.25]), np.float32([1, 1.25]))
    assert "std must be positive" in refusal("Recorder-v0", id="normalize_observation", mean=0, std=0)
    assert "mean must be a finite number or 2" in refusal("Recorder-v0", id="normalize_observation", mean=[1], std=1)


def test_observations_are_clipped() -> None:
    wrapped = env("Recorder-v0", {"id": "clip_observation", "low": -1.0, "high": 1.0})
    wrapped.reset()
    wrapped.step(0)
    assert wrapped.step(0)[0].tolist() == [1.0, 1.0]
    assert wrapped.observation_space == Box(np.float32([-1, 0]), np.float32([1, 1]))
    unbounded = env("CartPole-v1", {"id": "clip_observation"}).observation_space
    assert isinstance(unbounded, Box) and unbounded.is_bounded()
    assert "clips vectors of floats" in refusal("FrozenLake-v1", id="clip_observation")
