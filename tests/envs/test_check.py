"""Faults 44, 50 and 51: what does not match its space is refused at the start, bad seeding is warned about."""

from __future__ import annotations

import re
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs import test_snapshot_probes
from envs.conftest import Make
from envs.probes import Probe
from ludus.config.schema import Environment
from ludus.envs.check import fault
from ludus.envs.make import describe, probe, resolve
from ludus.errors import EnvironmentFailed


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("shape", "has shape (3,), its space (2,)"),
        ("dtype", "has dtype float64, its space float32"),
        ("outside", "has 7.0 at [1], outside [-1.0, 1.0]"),
        ("none", "is None"),
        ("list", "is list [0.0, 0.0], not a numpy array"),
        ("nan", "is not finite"),
    ],
)
def test_observations_that_break_their_promise_are_refused(make: Make, kind: str, text: str) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        make("Probe/BadObservation-v0", kwargs={"kind": kind})
    line = caught.value.line()
    assert line.startswith("environment Probe/BadObservation-v0: reset returned an observation that ") and text in line


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_errors_are_no_faults(dtype: type) -> None:
    space = gym.spaces.Box(np.array([0.0, -np.inf, -2.0]), np.array([1.0, np.inf, 3.0]), dtype=dtype)
    ulp = np.spacing(np.float32(1.0))
    assert fault(space, np.array([1.0 + ulp, 1e30, -2.0 - 4 * ulp], dtype)) is None
    assert "has 1.00" in str(fault(space, np.array([1.0 + 10 * ulp, 0.0, 0.0], dtype)))
    assert "at [2]" in str(fault(space, np.array([1.0 + ulp, 0.0, 3.001], dtype)))
    assert "at [0]" in str(fault(space, np.array([-1e-6, 0.0, 0.0], dtype))), "there are many floats around 0"


def test_casting_is_there_when_asked_for(make: Make) -> None:
    for kind in ("dtype", "list"):
        make("Probe/BadObservation-v0", kwargs={"kind": kind}, wrappers=[{"id": "cast_observation"}]).reset(range(4))


@pytest.mark.parametrize("kind", ["object", "none", "array", "string", "nan"])
def test_rewards_that_are_no_numbers_are_refused(make: Make, kind: str) -> None:
    with pytest.raises(EnvironmentFailed, match=r"step returned the reward .*, not a finite number"):
        make("Probe/BadReward-v0", kwargs={"kind": kind})


def test_seeding_is_probed() -> None:
    assert probe(Environment(id="CartPole-v1")) == []
    assert probe(Environment(id="Blackjack-v1")) == []
    (warning,) = probe(Environment(id="Probe/IgnoresSeed-v0"))
    assert "Probe/IgnoresSeed-v0" in warning and "reset(seed)" in warning and "\n" not in warning
    (warning,) = probe(Environment(id="Probe/ForgetsState-v0"))
    assert "same seed and actions" in warning


def test_a_slow_environment_is_probed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.0]
    step = Probe.step

    def late(self: Probe, action: Any) -> Any:
        times.append(times[-1] + 0.9)
        return step(self, action)

    test_snapshot_probes.register()
    monkeypatch.setattr(test_snapshot_probes.Walk, "ended", lambda _: False)
    monkeypatch.setattr(Probe, "step", late)
    monkeypatch.setattr("time.monotonic", lambda: times[-1])
    assert probe(Environment(id="Rung/Walk-v0")) == []
    assert len(times) - 1 == 2 * 3, "as many steps the second time"
    (warning,) = probe(Environment(id="Probe/ForgetsState-v0"))
    assert "same seed and actions" in warning


def test_before_there_is_a_run_no_log_is_named(make: Make) -> None:
    """An error without a message is told with its place."""

    def fail() -> None:
        raise AssertionError

    gym.register("Probe/Unmakeable-v0", lambda **_: fail())
    try:
        with pytest.raises(EnvironmentFailed) as caught:
            make("Probe/Unmakeable-v0")
    finally:
        del gym.registry["Probe/Unmakeable-v0"]
    told = r"environment Probe/Unmakeable-v0: making it raised AssertionError without a message at test_check.py:\d+; "
    assert re.fullmatch(told + "add --debug for its traceback", caught.value.line())


def test_facts() -> None:
    info = describe(Environment(id="CartPole-v1"))
    assert (info.id, info.reward_threshold, info.max_episode_steps, info.is_image) == ("CartPole-v1", 475, 500, False)
    assert info.render_modes == ("human", "rgb_array") and info.render_fps == 50
    info = describe(Environment(id="CartPole-v1", max_episode_steps=7, reward_threshold=3.5))
    assert (info.reward_threshold, info.max_episode_steps) == (3.5, 7)


def test_the_check_is_cheap() -> None:
    recipe = resolve(Environment(id="CartPole-v1"))
    recipe.check()
    began = time.process_time()
    recipe.check()
    assert time.process_time() - began < 0.05


def test_the_check_does_not_touch_the_environments_of_the_run(make: Make) -> None:
    """Some environments carry state over a reset: here, the steps of their life."""
    env = make("Probe/Faulty-v0", kwargs={"what": "none"})
    assert env.reset(range(4)).ravel().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("shape", "has shape (1,), its space (2,)"),
        ("dtype", "has dtype float64, its space float32"),
        ("list", "is list [0.0, 0.0], not a numpy array"),
        ("image", "has dtype float32, its space uint8"),
        ("choice", "is float 1.5, not in Discrete(3)"),
    ],
)
def test_observations_are_of_one_kind_for_ever(make: Make, backend: str, ends: bool, kind: str, text: str) -> None:
    env = make("Probe/Changing-v0", vectorization=backend, num_envs=2, kwargs={"kind": kind, "ends": ends})
    env.reset([1, 2])
    for _ in range(9):
        env.step(np.zeros(2, int))
    with pytest.raises(EnvironmentFailed) as caught:
        env.step(np.zeros(2, int))
    line = caught.value.line()
    assert line.startswith("environment 0 (Probe/Changing-v0, seed 1): step or reset returned an obs") and text in line


@pytest.mark.parametrize("kind", ["string", "array"])
def test_rewards_are_numbers_for_ever(make: Make, kind: str) -> None:
    env = make("Probe/Changing-v0", num_envs=2, kwargs={"kind": kind})
    env.reset([1, 2])
    for _ in range(9):
        assert env.step(np.zeros(2, int)).reward.tolist() == [1, 1]
    with pytest.raises(EnvironmentFailed, match=r"returned the reward .*, not a number"):
        env.step(np.zeros(2, int))
