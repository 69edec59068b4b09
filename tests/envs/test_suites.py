"""MuJoCo, Box2D, MiniGrid, DM Control and old environments: observations, ids, what is said when one is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from envs.conftest import Make
from envs.test_contract import assert_same, play
from ludus.config.compose import load
from ludus.config.schema import Environment
from ludus.envs import catalog
from ludus.envs.make import make_env, make_vector, resolve
from ludus.envs.snapshots import Refused
from ludus.envs.snapshots.values import ValueDecoder, ValueEncoder
from ludus.envs.suites import old_api
from ludus.envs.wrappers.minigrid import KINDS
from ludus.errors import ConfigError, MissingExtra
from ludus.types import Array

DOOR_KEY = "MiniGrid-DoorKey-5x5-v0"


def go_on_alike(make: Make, id: str, rung: str, **fields: Any) -> None:
    """Environments restored from a snapshot do what the first ones do."""
    first, other = (make(id, num_envs=2, **fields) for _ in range(2))
    assert first.choose_snapshot_method() == other.choose_snapshot_method() == rung, first.refused
    first.reset([1, 2])
    other.reset([3, 4])
    rng = np.random.default_rng(0)
    actions = [np.stack([sample(first.action_space, rng) for _ in range(2)]) for _ in range(60)]
    for action in actions[:30]:
        first.step(action)
    other.restore(first.snapshot())
    for action in actions[30:]:
        for a, b in zip(first.step(action)[:4], other.step(action)[:4], strict=True):
            np.testing.assert_array_equal(a, b)


def sample(space: gym.Space, rng: np.random.Generator) -> Any:
    if isinstance(space, Discrete):
        return rng.integers(space.n)
    assert isinstance(space, Box)
    return rng.uniform(space.low, space.high).astype(space.dtype)


class TestMuJoCo:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("mujoco")

    def test_ids_of_former_versions_lead_to_the_current_one(self, capfd: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(catalog, "_announced", set())
        for _ in range(2):
            assert resolve(Environment(id="Hopper-v4")).id == "Hopper-v5"
        assert capfd.readouterr().err.count("'Hopper-v4' is 'Hopper-v5' here") == 1
        assert resolve(Environment(id="Hopper-v5")).id == "Hopper-v5"
        assert capfd.readouterr().err == ""
        every = [id for id in gym.registry if id.endswith("-v4") and "mujoco" in str(gym.registry[id].entry_point)]
        assert len(every) >= 11 and all(catalog.current(id) in {*gym.registry} - {id} for id in every)
        assert all(catalog.current(id) == id for id in ("ALE/Ant-v4", "Taxi-v4"))

    def test_observations_are_single_precision(self, make: Make) -> None:
        env = make("HalfCheetah-v5")
        assert env.observation_space == Box(-np.inf, np.inf, (17,), np.float32)
        seen = play(env, 5)["obs"]
        raw, _ = gym.make("HalfCheetah-v5").reset(seed=0)
        assert seen.dtype == np.float32 and raw.dtype == np.float64

    def test_nothing_is_printed_or_written(self, capfd: Any, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        make_env(Environment(id="HalfCheetah-v5")).reset(seed=0)
        assert capfd.readouterr() == ("", "") and not list(tmp_path.iterdir())

    @pytest.mark.parametrize("id", ["HalfCheetah-v5", "Ant-v5", "Hopper-v5"])
    def test_exact_resume(self, make: Make, id: str) -> None:
        go_on_alike(make, id, "adapter", frame_stack=2 if id == "Hopper-v5" else 1)


class TestBox2D:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("Box2D", exc_type=ImportError)

    def test_cars_see_64_by_64_pixels_and_steer_with_three_numbers(self) -> None:
        config = load("CarRacing-v3:ppo_rgb").config.environment
        env = make_env(config)
        assert env.observation_space == Box(0, 255, (3, 64, 64), np.uint8)
        assert isinstance(env.action_space, Box)
        assert env.action_space.low.tolist() == [-1, 0, 0] and env.action_space.high.tolist() == [1, 1, 1]
        obs, _ = env.reset(seed=0)
        green, panel = obs[1].astype(int) - obs[0], obs[:, -1]
        assert green.mean() > 30 and panel.mean() > 30  # grass, and the black panel below is gone
        assert make_env(load("CarRacing-v3:ppo").config.environment).observation_space.shape == (2, 64, 64)

    def test_exact_resume(self, make: Make) -> None:
        go_on_alike(make, "LunarLander-v3", "replay", frame_stack=2)
        assert make("BipedalWalker-v3", num_envs=1).choose_snapshot_method() == "barrier"  # one world for all episodes


class TestMiniGrid:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("minigrid")

    def test_symbols_say_all_there_is(self) -> None:
        env, inner = make_env(Environment(id=DOOR_KEY)), gym.make(DOOR_KEY)
        vector, _ = env.reset(seed=5)
        raw, _ = inner.reset(seed=5)
        for action in (2, 1, 2, 3, 5, 0, 2, 2):
            cells = vector[: 49 * 21].reshape(7, 7, 21)
            assert (vector.sum(), vector.dtype, vector.max()) == (3 * 49 + 1, np.uint8, 1)
            parts = np.split(cells, np.cumsum(KINDS)[:-1], -1)
            np.testing.assert_array_equal(np.stack([part.argmax(-1) for part in parts], -1), raw["image"])
            assert vector[49 * 21 :].argmax() == raw["direction"] and env.observation_space.contains(vector)
            vector, raw = env.step(action)[0], inner.step(action)[0]

    def test_missions_are_told_apart(self) -> None:
        env = make_env(Environment(id="MiniGrid-Fetch-5x5-N2-v0"))
        missions: dict[str, int] = {}
        for seed in range(30):
            vector, _ = env.reset(seed=seed)
            told = vector[49 * 21 + 4 :]
            inner: Any = env.unwrapped
            assert len(told) == 60 and told.sum() == 1
            assert missions.setdefault(inner.mission, int(told.argmax())) == told.argmax()
        assert len(missions) > 10 and len(set(missions.values())) == len(missions)

    def test_sentences_of_babyai_are_marked_word_by_word(self) -> None:
        env = make_env(Environment(id="BabyAI-GoToObj-v0"))
        told = {}
        for seed in range(10):
            vector, _ = env.reset(seed=seed)
            inner: Any = env.unwrapped
            words = vector[49 * 21 + 4 :]
            assert words.shape == (64,) and 1 < words.sum() <= len(inner.mission.split())
            told[inner.mission] = tuple(words.tolist())
        assert len(set(told.values())) == len(told) > 3

    def test_views_are_minigrids_own(self) -> None:
        wrappers = pytest.importorskip("minigrid.wrappers")
        view = {"agent_view_size": 3}
        inner = wrappers.ImgObsWrapper(wrappers.RGBImgPartialObsWrapper(gym.make(DOOR_KEY, **view), tile_size=28))
        wrapper = {"id": "RGBImgPartialObsWrapper", "tile_size": 28}
        env = make_env(Environment(id=DOOR_KEY, kwargs=view, wrappers=[wrapper]))
        assert inner.observation_space.shape == (84, 84, 3) and env.observation_space.shape == (3, 84, 84)
        expected, seen = inner.reset(seed=3)[0], env.reset(seed=3)[0]
        for action in (1, 2, 2, 0):
            np.testing.assert_array_equal(seen.transpose(1, 2, 0), expected)
            expected, seen = inner.step(action)[0], env.step(action)[0]
        env = make_env(Environment(id=DOOR_KEY, wrappers=[{"id": "ImgObsWrapper"}]))
        expected = wrappers.ImgObsWrapper(gym.make(DOOR_KEY)).reset(seed=3)[0]
        np.testing.assert_array_equal(env.reset(seed=3)[0].transpose(1, 2, 0), expected)

    def test_the_default_goes_under_the_listed_wrappers(self) -> None:
        env = make_env(Environment(id=DOOR_KEY, wrappers=[{"id": "scale_reward", "scale": 2.0}], frame_stack=2))
        assert env.observation_space.shape == (2 * (49 * 21 + 4),)
        with pytest.raises(ConfigError, match="is for MiniGrid and comes first"):
            make_env(Environment(id="CartPole-v1", wrappers=[{"id": "minigrid_rgb"}]))
        with pytest.raises(ConfigError, match="tile_size must be at least 1"):
            make_env(Environment(id=DOOR_KEY, wrappers=[{"id": "minigrid_rgb", "tile_size": 0}]))

    def test_workers_see_the_same(self, make: Make) -> None:
        one, two = (make(DOOR_KEY, vectorization=backend, num_envs=2) for backend in ("sync", "async"))
        assert_same(play(one, 40), play(two, 40))

    @pytest.mark.parametrize("id", [DOOR_KEY, "MiniGrid-MemoryS11-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0"])
    def test_exact_resume(self, make: Make, id: str) -> None:
        go_on_alike(make, id, "adapter", frame_stack=2)

    def test_rooms_that_know_each_other_are_pickled(self, make: Make) -> None:
        go_on_alike(make, "MiniGrid-Unlock-v0", "pickle")

    def test_objects_stay_themselves(self) -> None:
        objects = pytest.importorskip("minigrid.core.world_object")
        key = objects.Key("red")
        box = objects.Box("blue", key)
        node = ValueEncoder().encode([box, key, objects.Door("grey", is_locked=True)], "x")
        made = ValueDecoder(node).decode(node)
        assert made[0].contains is made[1] and made[1] is not key
        assert [type(thing) for thing in made] == [objects.Box, objects.Key, objects.Door]
        assert vars(made[2]) == vars(objects.Door("grey", is_locked=True))

    def test_nothing_else_is_made_of_a_snapshot(self, monkeypatch: Any) -> None:
        objects = pytest.importorskip("minigrid.core.world_object")
        monkeypatch.setattr(objects, "Popen", Path, raising=False)

        class Trap(objects.Key):
            pass

        Trap.__module__ = objects.__name__
        with pytest.raises(Refused):
            ValueEncoder().encode(Trap("red"), "x")
        for module, name in (("os", "PathLike"), (objects.__name__, "np"), (objects.__name__, "Popen")):
            with pytest.raises(ValueError, match="no part of MiniGrid"):
                ValueDecoder([]).decode({"is": "minigrid", "module": module, "type": name, "attributes": {}})


class TestControlSuite:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        catalog.render_offscreen()
        pytest.importorskip("dm_control")

    def test_it_is_the_suite(self) -> None:
        from dm_control import suite

        env = make_env(Environment(id="dmc/cartpole-swingup"))
        theirs = suite.load("cartpole", "swingup", task_kwargs={"random": 7})
        obs, expected = env.reset(seed=7)[0], theirs.reset()
        for i in range(1_000):
            flat = np.concatenate([np.ravel(part) for part in expected.observation.values()])
            np.testing.assert_array_equal(obs, flat.astype(np.float32))
            action = np.array([np.sin(i)], np.float32)
            obs, reward, terminated, truncated, _ = env.step(action)
            expected = theirs.step(action)
            assert (reward, terminated, truncated) == (expected.reward, False, expected.last()), i
        assert truncated and env.observation_space.contains(obs)

    def test_both_spellings_and_both_layers(self) -> None:
        for id in ("dmc/ball_in_cup-catch", "dmc/ball_in_cup_catch"):
            assert make_env(Environment(id=id)).action_space == Box(-1, 1, (2,), np.float32)
        assert load("dmc/cartpole-swingup:ppo").spec and load("dmc/cartpole_swingup:ppo").spec
        pytest.importorskip("shimmy")
        env = make_vector(Environment(id="dm_control/cartpole-swingup-v0", num_envs=1))
        parts = env.reset([1])
        assert isinstance(env.observation_space, gym.spaces.Dict) and sum(part.shape[1] for part in parts.values()) == 5
        assert all(part.dtype == np.float32 for part in parts.values())

    @pytest.mark.parametrize("task", ["cartpole_swingup", "reacher_easy", "walker_walk"])
    def test_exact_resume(self, make: Make, task: str) -> None:
        go_on_alike(make, f"dmc/{task}", "api", frame_stack=2)  # reacher moves its target in the model

    def test_pixels(self) -> None:
        config = load("dmc/reacher_easy:ppo_pixels").config.environment
        env = make_env(config)
        assert env.observation_space == Box(0, 255, (9, 84, 84), np.uint8)
        obs: Array = env.reset(seed=0)[0]
        assert obs.std() > 10 and (obs[:3] == obs[3:6]).all()
        moved = env.step(env.action_space.high)[0]
        assert (moved[:3] == obs[:3]).all() and (moved[6:] != obs[:3]).any()


class OldSpace:
    """A space of the package `gym`, as far as anybody can tell."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Old:
    """An environment of 2018: no base class of ours, four values, lists as observations."""

    metadata = {"render.modes": ["rgb_array"]}

    def __init__(self, length: int = 3, cut: bool = False) -> None:
        self.observation_space = _old("Box", low=np.zeros(2), high=np.full(2, 9.0), dtype=np.dtype("float32"))
        self.action_space = _old("Discrete", n=3)
        self._length, self._cut, self._rng, self._t = length, cut, np.random.RandomState(0), 0

    def seed(self, seed: int) -> None:
        self._rng = np.random.RandomState(seed)

    def reset(self) -> list[float]:
        self._t = 0
        return [self._rng.rand(), 0.0]

    def step(self, action: int) -> Any:
        self._t += 1
        done = self._t >= self._length
        return [self._rng.rand(), float(self._t)], action, done, {old_api.CUT: True} if done and self._cut else {}

    def render(self, mode: str) -> Array:
        assert mode == "rgb_array"
        return np.full((4, 4, 3), self._t, np.uint8)


class Hidden(Old, gym.Env):
    """Looks new: its reset takes a seed."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return Old.reset(self)


def _old(kind: str, **attributes: Any) -> Any:
    return type(kind, (OldSpace,), {})(**attributes)


@pytest.fixture(autouse=True, scope="module")
def old_ones() -> None:
    gym.register("Old-v0", Old, max_episode_steps=50)
    gym.register("Hidden-v0", Hidden, max_episode_steps=50)


class TestOldEnvironments:
    @pytest.mark.parametrize(("id", "wrappers"), [("Old-v0", []), ("Old-v0", ["old_api"]), ("Hidden-v0", ["old_api"])])
    def test_five_values_of_four(self, id: str, wrappers: list[str]) -> None:
        env = make_env(Environment(id=id, wrappers=[{"id": name} for name in wrappers]))
        assert env.observation_space == Box(0, 9, (2,), np.float32) and env.action_space == Discrete(3)
        obs, info = env.reset(seed=4)
        assert obs.dtype == np.float32 and info == {}
        steps = [env.step(2) for _ in range(3)]
        assert [step[1:4] for step in steps] == [(2.0, False, False)] * 2 + [(2.0, True, False)]

    def test_seeds_are_honoured(self) -> None:
        env = make_env(Environment(id="Old-v0"))
        first, again, other = (env.reset(seed=seed)[0] for seed in (4, 4, 5))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    def test_a_cut_is_no_end(self) -> None:
        env = make_env(Environment(id="Old-v0", kwargs={"cut": True, "length": 1}))
        env.reset(seed=0)
        assert env.step(0)[2:4] == (False, True)

    def test_time_limits_workers_and_frames(self, make: Make) -> None:
        long = {"length": 99}
        one, two = (make("Old-v0", kwargs=long, vectorization=b, max_episode_steps=7) for b in ("sync", "async"))
        assert_same(played := play(one, 20), play(two, 20))
        assert played["truncated"].any() and not played["terminated"].any()
        env = make_env(Environment(id="Old-v0"), render_mode="rgb_array")
        env.reset(seed=0)
        env.step(0)
        assert (np.asarray(env.render()) == 1).all()

    def test_without_the_adaptor_it_is_refused_by_name(self) -> None:
        with pytest.raises(Exception, match="Hidden-v0"):
            make_vector(Environment(id="Hidden-v0", num_envs=1))

    def test_all_kinds_of_spaces(self) -> None:
        parts = {"a": _old("MultiDiscrete", nvec=np.array([2, 3])), "b": _old("MultiBinary", n=4)}
        translated = old_api.translated(_old("Dict", spaces=parts))
        assert translated == gym.spaces.Dict({"a": gym.spaces.MultiDiscrete([2, 3]), "b": gym.spaces.MultiBinary(4)})
        assert old_api.translated(_old("Tuple", spaces=[_old("Discrete", n=2)])) == gym.spaces.Tuple([Discrete(2)])
        with pytest.raises(ValueError, match="a space of type Rainbow"):
            old_api.translated(_old("Rainbow"))

    def test_new_environments_pass_untouched(self) -> None:
        spec = gym.spec("CartPole-v1")
        assert old_api.adapted(spec, catalog.creator(spec.id, spec.entry_point)) is spec


MISSING = {
    "HalfCheetah-v5": ("mujoco", "gymnasium.envs.mujoco.half_cheetah_v5", "mujoco"),
    "MiniGrid-Empty-8x8-v0": ("minigrid", "minigrid", "minigrid"),
    "dmc/cartpole-swingup": ("dm_control", "ludus.envs.suites.dmc", "dmc"),
    "dm_control/cartpole-swingup-v0": ("shimmy", "shimmy", "dmc"),
}


@pytest.mark.parametrize("id", MISSING)
def test_a_missing_extra_is_one_line(id: str, monkeypatch: Any) -> None:
    package, module, extra = MISSING[id]
    for name in [name for name in sys.modules if name.split(".")[0] == package or name == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Absent(package), *sys.meta_path])
    with pytest.raises(MissingExtra, match=rf"pip install 'ludus-rl\[{extra}\]'"):
        make_env(Environment(id=id))


class _Absent:
    """An import system without one package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
