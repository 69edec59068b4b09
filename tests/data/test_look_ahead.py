"""Looking ahead: the same steps as without, taken while something else happens, and saved with the rest."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from ludus.config.schema import Environment
from ludus.data.collector import Collector
from ludus.data.look_ahead import LookAheadCollector
from ludus.data.normalizer import ObservationNormalizer
from ludus.envs.make import make_vector
from ludus.errors import ConfigError, EnvironmentFailed
from ludus.types import Acted
from support import build, close, config, run

SAC = {"name": "sac", "batch_size": 16, "learning_starts": 64, "epoch_steps": 64, "sequence_length": 4, "burn_in": 2}


class Counting:
    """A policy that knows nothing of weights: its memory counts steps, its actions are drawn."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def initial_state(self, batch: int) -> Any:
        return (np.zeros((batch, 1), np.float32),)

    def act(self, obs: np.ndarray, state: Any, first: np.ndarray) -> Any:
        action = self.rng.integers(2, size=len(obs))
        return Acted(action, action, (state[0] * ~first[:, None] + 1,), {})


def collector(cls: type[Collector], env: Any = None) -> Collector:
    env = env or make_vector(Environment(id="CartPole-v1", num_envs=3, max_episode_steps=17))
    return cls(env, [1, 2, 3], normalizer=ObservationNormalizer("rolling", env.observation_space))


def same(ours: Any, theirs: Any) -> None:
    for name in ("obs", "action", "reward", "terminated", "truncated", "first"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    np.testing.assert_array_equal(ours.state[0], theirs.state[0])
    assert (ours.ends is None) == (theirs.ends is None)
    if ours.ends is not None:
        np.testing.assert_array_equal(ours.ends.raw_obs, theirs.ends.raw_obs)
    assert (ours.finals is None) == (theirs.finals is None)


def test_a_policy_that_does_not_learn_collects_the_same() -> None:
    """Normaliser, memory, true final observations and statistics included."""
    waits, looks, policies = collector(Collector), collector(LookAheadCollector), (Counting(), Counting())
    for steps in (1, 1, 7, 1, 20, 3):
        same(looks.collect(policies[1], steps), waits.collect(policies[0], steps))
        assert looks.statistics() == waits.statistics()
    assert waits.episodes.count > 3
    waits.close()
    looks.close()


class Gate:
    """Environments that stand still until the gate is opened."""

    def __init__(self, env: Any) -> None:
        self.env, self.open, self.steps = env, threading.Event(), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def step(self, action: np.ndarray) -> Any:
        assert self.steps < 1 or self.open.wait(20), "nobody opened the gate"
        self.steps += 1
        if self.steps == 4:
            raise EnvironmentFailed("Gate", "fell shut", "open it")
        return self.env.step(action)


def test_the_learner_has_the_rollout_while_the_next_step_is_taken() -> None:
    gate = Gate(make_vector(Environment(id="CartPole-v1", num_envs=3)))
    looks, policy = collector(LookAheadCollector, gate), Counting()
    rollout = looks.collect(policy, 1)
    assert rollout.env_steps == 3 and gate.steps == 1, "waited for the gate"
    gate.open.set()
    looks.collect(policy, 2)
    with pytest.raises(EnvironmentFailed, match="fell shut"):
        looks.collect(policy, 1)
    looks.close()


@pytest.mark.parametrize("taken", [0, 1, 30])
def test_a_saved_collector_goes_on_with_the_step_that_was_under_way(taken: int) -> None:
    ours, theirs, policies = collector(LookAheadCollector), collector(LookAheadCollector), (Counting(), Counting())
    for _ in range(taken):
        ours.collect(policies[0], 1)
    theirs.collect(policies[1], 2)
    theirs.load_state_dict(ours.state_dict())
    theirs.normalizer.load_state_dict(ours.normalizer.state_dict())
    policies[1].rng.bit_generator.state = policies[0].rng.bit_generator.state
    for _ in range(25):
        same(theirs.collect(policies[1], 1), ours.collect(policies[0], 1))
    assert theirs.statistics() == ours.statistics() and ours.episodes.count
    ours.close()
    theirs.close()


def test_a_state_is_taken_after_the_step_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of environments that are stepping would be of neither moment."""
    looks, done = collector(LookAheadCollector), []
    step, state_dict = looks.env.step, Collector.state_dict
    monkeypatch.setattr(looks.env, "step", lambda action: (time.sleep(0.05), step(action))[1])
    monkeypatch.setattr(Collector, "state_dict", lambda it: (done.append(it._ahead.result.done()), state_dict(it))[1])
    looks.collect(Counting(), 1)
    looks.state_dict()
    assert done == [True]
    looks.close()


def test_new_environments_forget_the_step_that_was_under_way() -> None:
    looks, policy = collector(LookAheadCollector), Counting()
    looks.collect(policy, 2)
    looks.barrier([7, 8, 9])
    rollout = looks.collect(policy, 1)
    assert rollout.first[0].all()
    np.testing.assert_array_equal(rollout.raw_obs[0], looks.env.reset([7, 8, 9]))
    looks.close()


def test_a_state_without_environments_has_no_step_under_way() -> None:
    """`resume --rebuild-buffer` resets them: a step of the old episodes would lead from one state into another."""
    looks, policy = collector(LookAheadCollector), Counting()
    looks.collect(policy, 2)
    looks.load_state_dict({**looks.state_dict(), "env": None, "barrier_seeds": [7, 8, 9]})
    rollout = looks.collect(policy, 1)
    env = make_vector(Environment(id="CartPole-v1", num_envs=3, max_episode_steps=17))
    env.reset([7, 8, 9])
    np.testing.assert_array_equal(rollout.raw_obs[1], env.step(rollout.action[0]).obs)
    looks.close()
    env.close()


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_runs_are_reproducible_and_not_those_that_wait(memory: str) -> None:
    def theta(overlap: bool) -> torch.Tensor:
        cfg = config(SAC, env="Pendulum-v1", network={"memory": memory}, runtime={"overlap": overlap},
                     training={"total_timesteps": 160})  # fmt: skip
        done = run(cfg)
        assert done.progress.env_steps == 160 and done.progress.updates > 50
        return done.algorithm.learner.theta.clone()

    once, again, waiting = theta(True), theta(True), theta(False)
    assert torch.equal(once, again) and not torch.equal(once, waiting)


@pytest.mark.parametrize("name", ["ppo", "reinforce", "ppo_replay"])
def test_on_policy_algorithms_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"runtime.overlap: {name} learns from its newest policy"):
        close(build(config(name, runtime={"overlap": True})))
