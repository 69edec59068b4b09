"""Every wrapper by name from a config: what it does, what it refuses, and that returns stay raw."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box

from envs.conftest import Make
from envs.probes import Counter
from envs.test_contract import assert_same, play
from ludus.config.schema import Environment
from ludus.envs import wrappers as package
from ludus.envs.make import make_env, make_vector
from ludus.envs.wrappers import NAMES
from ludus.envs.wrappers.actions import StickyActions
from ludus.envs.wrappers.atari_objects import ObjectFeatures
from ludus.envs.wrappers.observations import ConvertObservation
from ludus.envs.wrappers.rewards import ChangedReward, RawReward
from ludus.envs.wrappers.shaping import PotentialShaping
from ludus.errors import ConfigError
from ludus.registry import WRAPPERS

GAMMA = 0.97


def env(id: str, *wrappers: dict[str, Any], **fields: Any) -> gym.Env:
    return make_env(Environment(id=id, wrappers=wrappers, **fields))


def refusal(env_id: str, **wrapper: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make_vector(Environment(id=env_id, wrappers=[wrapper], num_envs=1))
    assert caught.value.where.startswith("environment.wrappers.0")
    return caught.value.line()


def test_known_names() -> None:
    pairs = {
        "mask_observation": ("MaskObservation", "MaskObservationWrapper"),
        "discrete_encoder": ("DiscreteEncoder",),
        "mountain_car_shaping": ("MountainCarV0_RewardShaper",),
        "cart_pole_shaping": ("CartPoleV1_RewardShaper",),
        "time_aware": ("TimeAware",),
        "clip_reward": ("ClipReward",),
        "scale_reward": ("ScaleReward",),
        "clip_action": ("ClipAction",),
        "rescale_action": ("RescaleAction",),
        "flatten": ("FlattenObservation",),
        "cast_observation": ("CastObservation",),
    }
    for name, aliases in pairs.items():
        for alias in aliases:
            assert WRAPPERS[alias] is WRAPPERS[name]
    assert set(pairs) <= set(WRAPPERS.names())


def test_the_table_names_every_class_of_the_package_once() -> None:
    """A class that is missing in the table could not be chosen in a config."""
    classes = {WRAPPERS[name] for name in NAMES}
    bases = {ConvertObservation, ChangedReward, ObjectFeatures, PotentialShaping, RawReward}
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, gym.Wrapper) and value.__module__ == module.__name__
    }
    assert {cls for cls in classes if cls.__module__.startswith(package.__name__)} == found - bases
    assert len(NAMES) == 105


def test_bad_arguments_are_refused_before_anything_is_made() -> None:
    assert "did you mean 'indices'?" in refusal("CartPole-v1", id="mask_observation", indexes=[1])
    assert "is missing" in refusal("CartPole-v1", id="mask_observation")
    assert "indices" in refusal("CartPole-v1", id="mask_observation", indices="x1")
    assert "Input should be 'zero' or 'drop'" in refusal("CartPole-v1", id="mask_observation", indices=[1], mode="x")
    assert "must lie in 0 to 3" in refusal("CartPole-v1", id="mask_observation", indices=[1, 4])
    assert "encodes Discrete" in refusal("CartPole-v1", id="discrete_encoder")
    assert "is for MountainCar-v0" in refusal("CartPole-v1", id="mountain_car_shaping")
    assert "gamma must lie in (0, 1]" in refusal("CartPole-v1", id="cart_pole_shaping", gamma=1.5)
    assert "needs a time limit" in refusal("Probe/Counter-v0", id="time_aware")
    assert "bounded Box" in refusal("CartPole-v1", id="rescale_action")
    assert "ClipAction requires a Box" in refusal("CartPole-v1", id="clip_action")  # Gymnasium's own words


def test_wrappers_apply_in_order_the_first_innermost() -> None:
    clip, scale = {"id": "clip_reward", "high": 5.0}, {"id": "scale_reward", "scale": 10.0}
    for wrappers, reward in (((clip, scale), 50.0), ((scale, clip), 5.0)):
        wrapped = env("Probe/Counter-v0", *wrappers)
        wrapped.reset(seed=0)
        wrapped.reset()  # episode 1 pays 10 and more
        assert wrapped.step(0)[1] == reward


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_returns_stay_raw_under_any_reward_wrapper(make: Make, backend: str) -> None:
    wrappers = [{"id": "scale_reward", "scale": 0.1}, {"id": "clip_reward"}]
    plain = play(make("Probe/Counter-v0"), 30)
    shaped = play(make("Probe/Counter-v0", vectorization=backend, wrappers=wrappers), 30)
    np.testing.assert_array_equal(shaped["raw_reward"], plain["reward"])
    np.testing.assert_allclose(shaped["reward"], np.clip(0.1 * plain["reward"], -1, 1), rtol=1e-6)


def test_raw_rewards_of_skipped_frames_are_summed_and_those_inside_reset_dropped(make: Make) -> None:
    @WRAPPERS.register("twice")
    class Twice(gym.Wrapper):
        def reset(self, **arguments: Any) -> Any:
            self.env.reset(**arguments)
            return (*self.env.step(0)[:1], {})  # a no-op at the start, as in Atari

        def step(self, action: Any) -> Any:
            first = self.env.step(action)
            return first if first[2] else self.env.step(action)

    try:
        venv = make("Probe/TwoStepDelay-v0", num_envs=1, wrappers=[{"id": "twice"}])
        venv.reset([0])
        for _ in range(3):
            result = venv.step(np.zeros(1, int))
            assert result.terminated[0] and result.raw_reward[0] == 1 and result.final_obs is not None
        venv = make("Probe/Endless-v0", num_envs=1, wrappers=[{"id": "twice"}])
        venv.reset([0])
        for _ in range(30):
            result = venv.step(np.zeros(1, int))
            assert result.raw_reward[0] == 2
    finally:
        del WRAPPERS._classes["twice"]


BATCHED: dict[str, tuple[str, dict[str, Any]]] = {
    "cast_observation": ("CartPole-v1", {}),
    "clip_observation": ("CartPole-v1", {"low": -0.1, "high": 0.1}),
    "discrete_encoder": ("Tiger-Theta3-v0", {"encoding": "binary"}),
    "normalize_observation": ("CartPole-v1", {"mean": [0.1, 0.2, 0.3, 0.4], "std": 2.0}),
    "one_hot": ("Tiger-Theta3-v0", {}),
    "scale_observation": ("TMaze-v0", {"low": -2.0, "high": 3.0}),
}


@pytest.mark.parametrize("name", BATCHED)
def test_conversions_are_the_same_on_single_environments_and_whole_vectors(make: Make, name: str) -> None:
    id, arguments = BATCHED[name]
    wrapper = {"id": name, **arguments}
    one, two = (make(id, vectorization=backend, wrappers=[wrapper]) for backend in ("sync", "native"))
    assert (one.backend, two.backend) == ("sync", "native") and one.observation_space == two.observation_space
    assert_same(play(one, 60), play(two, 60))


@pytest.mark.parametrize("mode", ["zero", "drop"])
def test_masks_are_the_same_on_single_environments_and_whole_vectors(make: Make, mode: str) -> None:
    wrapper = {"id": "mask_observation", "indices": [1, 3], "mode": mode}
    one, two = (make("CartPole-v1", vectorization=backend, wrappers=[wrapper]) for backend in ("sync", "native"))
    assert one.observation_space == two.observation_space
    assert one.observation_space.shape == ((2,) if mode == "drop" else (4,))
    masked, other = play(one, 80), play(two, 80)
    assert_same(masked, other)
    plain = play(make("CartPole-v1"), 80)
    for name in ("obs", "final_obs"):
        seen = masked[name] if mode == "drop" else masked[name][..., [0, 2]]
        np.testing.assert_array_equal(seen, plain[name][..., [0, 2]])
        assert mode == "drop" or (masked[name][..., [1, 3]] == 0).all()


def test_nothing_is_masked_unless_asked(make: Make) -> None:
    assert (play(make("CartPole-v1"), 10)["obs"][1:] != 0).all()


def test_discrete_encodings() -> None:
    for encoding, size in (("array", 1), ("binary", 4), ("onehot", 16)):
        wrapped = env("FrozenLake-v1", {"id": "DiscreteEncoder", "encoding": encoding}, kwargs={"is_slippery": False})
        assert isinstance(wrapped.observation_space, Box) and wrapped.observation_space.shape == (size,)
        wrapped.reset(seed=0)
        obs = wrapped.step(1)[0]  # down from 0: state 4
        expected = {"array": [4.0], "binary": [0, 0, 1, 0], "onehot": list(np.eye(16)[4])}[encoding]
        assert obs.tolist() == expected and obs.dtype == np.float32 and wrapped.observation_space.contains(obs)
    assert env("Taxi-v4", {"id": "discrete_encoder", "encoding": "binary"}).observation_space.shape == (9,)


def test_time_becomes_visible() -> None:
    wrapped = env("Pendulum-v1", {"id": "time_aware"}, max_episode_steps=4)
    obs, _ = wrapped.reset(seed=0)
    seen = [obs[-1]]
    for _ in range(4):
        obs, *_ = wrapped.step(np.zeros(1, np.float32))
        seen.append(obs[-1])
    assert seen == [0, 0.25, 0.5, 0.75, 1.0] and wrapped.observation_space.contains(obs)
    assert wrapped.reset()[0][-1] == 0


@pytest.mark.parametrize(
    ("id", "name", "arguments"),
    [
        ("MountainCar-v0", "MountainCarV0_RewardShaper", {"position_reward_scale": 5.0}),
        ("CartPole-v1", "CartPoleV1_RewardShaper", {"angle_reward_scale": 1.0}),
    ],
)
def test_shaping_telescopes_so_no_policy_gains_by_it(id: str, name: str, arguments: dict[str, Any]) -> None:
    """Sum of gamma^t * shaping = gamma^T * potential(last) - potential(first), the last one 0 after termination."""
    wrapped: Any = env(id, {"id": name, "gamma": GAMMA, **arguments}, max_episode_steps=40)
    ends = set()
    for episode in range(12):
        obs, _ = wrapped.reset(seed=episode)
        rng = np.random.default_rng(episode)
        start, total, discount, ended, cut = wrapped.potential(obs), 0.0, 1.0, False, False
        while not (ended or cut):
            obs, reward, ended, cut, info = wrapped.step(int(rng.integers(wrapped.action_space.n)))
            total += discount * (reward - info["raw_reward"])
            discount *= GAMMA
        ends.add((ended, cut))
        assert total == pytest.approx(discount * (0 if ended else wrapped.potential(obs)) - start, abs=1e-6)
    assert ((True, False) if id == "CartPole-v1" else (False, True)) in ends


def test_shaping_rewards_what_helps() -> None:
    car: Any = env("MountainCar-v0", {"id": "mountain_car_shaping"})
    valley, swinging, goal = (np.array(obs, np.float32) for obs in ((-0.5, 0.0), (-0.5, 0.05), (0.5, 0.07)))
    assert car.potential(valley) < car.potential(swinging) < car.potential(goal) == pytest.approx(0, abs=1e-5)
    pole: Any = env("CartPole-v1", {"id": "cart_pole_shaping"})
    upright, leaning = np.zeros(4, np.float32), np.array([0, 0, 0.15, 0], np.float32)
    assert pole.potential(upright) == 1.25 and pole.potential(leaning) < 0.6


def test_rescaled_and_clipped_actions() -> None:
    wrapped = env("Pendulum-v1", {"id": "rescale_action"})
    assert wrapped.action_space == Box(-1, 1, (1,), np.float32)
    plain = env("Pendulum-v1")
    for action in (-1.0, 0.25, 1.0):
        wrapped.reset(seed=0)
        plain.reset(seed=0)
        small, large = np.array([action], np.float32), np.array([2 * action], np.float32)
        np.testing.assert_array_equal(wrapped.step(small)[0], plain.step(large)[0])
    wide = env("Pendulum-v1", {"id": "clip_action"})
    assert not wide.action_space.is_bounded()  # type: ignore[attr-defined]
    wide.reset(seed=0)
    plain.reset(seed=0)
    np.testing.assert_array_equal(wide.step(np.array([50.0]))[0], plain.step(np.array([2.0]))[0])


def test_flatten_makes_one_vector() -> None:
    wrapped = env("Probe/Spaces-v0", {"id": "flatten"}, kwargs={"observation": "dict"})
    assert wrapped.observation_space.shape == (5,) and wrapped.reset(seed=0)[0].dtype == np.float32
    assert env("FrozenLake-v1", {"id": "flatten"}).observation_space.shape == (16,)


def test_shapers_leave_the_raw_reward_in_the_info_even_alone() -> None:
    from ludus.envs.wrappers.shaping import CartPoleShaping

    shaped = CartPoleShaping(gym.make("CartPole-v1"), angle_reward_scale=10.0)
    shaped.reset(seed=0)
    _, reward, *_, info = shaped.step(0)
    assert info["raw_reward"] == 1.0 and reward != 1.0
    with pytest.raises(ValueError, match="is for CartPole"):
        CartPoleShaping(Counter())


@pytest.mark.parametrize(("skip", "limit"), [(4, 200), (3, 10)])
def test_time_is_that_of_the_limit_also_where_frames_are_skipped(skip: int, limit: int) -> None:
    """The limit counts frames, the policy decisions: what it sees is 1 at the truncation."""
    wrapped = env("MountainCar-v0", {"id": "frame_skip", "skip": skip}, {"id": "time_aware"}, max_episode_steps=limit)
    wrapped.reset(seed=0)
    for step in range(1, limit):
        obs, _, _, truncated, _ = wrapped.step(1)
        assert obs[-1] == pytest.approx(min(step * skip / limit, 1.0), abs=1e-6)
        if truncated:
            break
    assert truncated and obs[-1] == 1.0
    assert wrapped.reset()[0][-1] == 0.0


def test_a_sticky_action_does_not_stick_over_a_reset() -> None:
    """With a probability near 1 the first action of an episode is repeated to its end, and never in the next one."""

    class Told(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(9)
        done: list[int] = []

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            self.done.append(int(action))
            return np.zeros(1, np.float32), 0.0, False, False, {}

    wrapped = StickyActions(Told(), probability=1 - 1e-9)
    for asked in (3, 5, 7):
        wrapped.reset(seed=asked)
        wrapped.step(asked)
        wrapped.step(0)
    assert Told.done == [3, 3, 5, 5, 7, 7]
