"""Environments without a file: which presets are taken, what they leave alone, and that they train."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from ludus.checks.trial import small
from ludus.config import presets
from ludus.config.compose import load, search_path
from ludus.config.groups import options
from ludus.errors import ConfigError
from ludus.experiment import build
from ludus.registry import ALGORITHMS
from support import close


class Task(gym.Env):
    """A task whose spaces are arguments."""

    def __init__(self, observation: gym.Space, action: gym.Space, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space, self.render_mode = observation, action, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, bool(self.np_random.random() < 0.1), False, {}


VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
FORCE = gym.spaces.Box(-1, 1, (2,), np.float32)
TASKS = {
    "Levers-v0": (VECTOR, gym.spaces.Discrete(3)),
    "Forces-v0": (gym.spaces.Dict({"position": VECTOR, "goal": VECTOR}), FORCE),
    "Camera-v0": (gym.spaces.Box(0, 255, (70, 90, 3), np.uint8), gym.spaces.Discrete(3)),
    "Sprites-v0": (gym.spaces.Box(0, 255, (10, 10, 3), np.uint8), FORCE),
}


@pytest.fixture(autouse=True)
def tasks():
    """Tasks of every kind that no file is shipped for."""
    for id, (observation, action) in TASKS.items():
        gym.register(id, lambda o=observation, a=action, **kwargs: Task(o, a, **kwargs), reward_threshold=7.0)
    yield
    for id in TASKS:
        del gym.registry[id]


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("Levers-v0:ppo", "discrete + ppo"),
        ("Forces-v0:ppo", "continuous + ppo + ppo-continuous"),
        ("Camera-v0:ppo", "image + ppo"),
        ("Camera-v0:dqn", "image + dqn + dqn-image"),
        ("Sprites-v0:sac", "continuous + sac"),
        ("Levers-v0:benchnetrl", "benchnetrl"),
        ("CartPole-v1:q_learning", "discrete + q_learning"),
    ],
)
def test_the_rule(spec, names):
    assert load(spec).preset == names


@pytest.mark.parametrize(
    ("spec", "names", "package"),
    [
        ("ALE/Seaquest-v5:ppo", "image + atari + ppo + ppo-atari", "ale_py"),
        ("ALE/Seaquest-v5:dqn", "image + atari + dqn + dqn-image", "ale_py"),
        ("ALE/Seaquest-v5:cleanrl-atari", "cleanrl-atari", "ale_py"),
        ("Swimmer-v5:sac", "continuous + mujoco + sac", "mujoco"),
        ("Hopper-v5:sac", "continuous + mujoco + sac", "mujoco"),
        ("MiniGrid-DoorKey-6x6-v0:dqn", "discrete + minigrid + dqn", "minigrid"),
        ("BabyAI-GoToLocal-v0:ppo", "discrete + minigrid + ppo + ppo-minigrid", "minigrid"),
        ("MinAtar/Breakout-v0:ppo", "discrete + minatar + ppo + ppo-minatar", "minatar"),
        ("MinAtar/Seaquest-v0:dqn", "discrete + minatar + dqn + dqn-minatar", "minatar"),
        ("dmc/cheetah_run:ppo", "continuous + dmc + ppo + ppo-continuous", "dm_control"),
    ],
)
def test_suites_are_known_by_their_ids(spec, names, package):
    pytest.importorskip(package)
    assert load(spec).preset == names


def test_overrides_of_the_environment_count():
    pytest.importorskip("ale_py")
    ram = load("ALE/Seaquest-v5:ppo", ["obs_type=ram"])
    assert ram.preset == "discrete + ppo" and ram.config.environment.wrappers == ()
    assert load("Levers-v0:ppo", ["environment.id=Forces-v0"]).preset == "continuous + ppo + ppo-continuous"
    assert load("Levers-v0:ppo", ["+network=wide"]).config.network.actor.hidden_dims == (256, 256)


def test_a_preset_has_no_foreign_threshold_and_an_honest_name():
    for spec in ("Levers-v0:ppo", "Forces-v0:sac"):
        resolved = load(spec)
        assert resolved.config.environment.reward_threshold is None
        assert resolved.config.training.stop.eval_reward is None
        assert resolved.run_name == spec.replace(":", "-")
    pytest.importorskip("mujoco")
    assert load("HalfCheetah-v4:ppo").run_name == "HalfCheetah-v5-ppo", "a former version is named as what it is"


def test_every_file_is_used_by_the_rule():
    names = set(options(presets.GROUP, search_path()))
    kinds = {*presets.KINDS}
    rule = {*kinds, *ALGORITHMS.names(), *(f"{a}-{k}" for a in ALGORITHMS.names() for k in kinds)}
    assert names - rule == {"cleanrl-atari", "benchnetrl"}
    assert {name for name in ALGORITHMS.names() if name not in names} == set(), "every algorithm has a preset"


def test_numbers_of_cleanrl():
    pytest.importorskip("ale_py")
    config = load("ALE/Pong-v5:cleanrl-atari").config
    numbers = config.algorithm.config
    assert (numbers.lr.start, numbers.lr.end, numbers.clip.start, numbers.clip.end) == (2.5e-4, 0, 0.1, 0.1)
    assert (numbers.gamma.start, numbers.gae_lambda.start, numbers.entropy_coef.start) == (0.99, 0.95, 0.01)
    assert numbers.steps_per_batch(8 * 128) == 256 and config.training.total_timesteps == 10_000_000


@pytest.mark.parametrize("spec", ["Levers-v0:dqn", "Forces-v0:ppo", "Forces-v0:td3", "Camera-v0:ppo", "Sprites-v0:a2c"])
def test_presets_train(spec):
    run = build(load(spec, [*small(load(spec).config, 256), "environment.vectorization=sync"]).config)
    run.run()
    close(run)
    assert 0 < run.progress.env_steps <= 256 and run.threshold == 7.0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("Nowhere-v0:ppo", "'Nowhere-v0' is unknown; add --import PACKAGE"),
        ("Lever-v0:ppo", "did you mean 'Levers-v0'?"),
        ("Levers-v0:pppo", "'pppo' is neither an algorithm nor a preset; did you mean 'ppo'?"),
        ("CartPole-v1:pppo", "CartPole-v1 has no variant 'pppo'; did you mean 'ppo'?"),
        ("highway-v0:ppo", "--import highway_env"),
        ("mine.envs:Mine:ppo", "add --import mine.envs:Mine"),
        ("Levers-v0:q_learning", "q_learning"),
    ],
)
def test_refusals_say_what_to_type(spec, words):
    with pytest.raises(ConfigError) as caught:
        close(build(load(spec).config))
    assert words in caught.value.line()
