"""Environments with known answers: what the value network and the policy must come to, and what no policy can."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from envs.probes import Probe, register_probes, vector
from support import build, close, config

register_probes()
GAMMA = 0.9


class Recall(Probe):
    """The answer is shown at the first step, asked for at the third: memory scores 1, no memory 0.5."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    answer = 0

    def observe(self):
        if self.t == 0:
            self.answer = int(self.np_random.integers(2))
            return vector(0, 2 * self.answer - 1)
        return vector(float(self.t == 2), 0)

    def pay(self, action):
        return float(self.t == 2 and action == self.answer)

    def ended(self):
        return self.t == 3


if "Probe/Recall-v0" not in gym.registry:
    gym.register("Probe/Recall-v0", Recall)


def trained(env: str, memory: str = "none", steps: int = 12_000, **algorithm):
    settings = {"name": "ppo", "rollout_steps": 32, "epochs": 8, "lr": 3e-3, "gamma": GAMMA, "batch_size": 0.5}
    cfg = config(
        {**settings, **algorithm},
        env=f"Probe/{env}-v0",
        environment={"num_envs": 8},
        network={"memory": memory},
        training={"total_timesteps": steps, "evaluation": {"episodes": 400, "deterministic": False}},
    )
    run = build(cfg)
    run.run()
    return run


def values(run, *observations: list[float]) -> list[float]:
    obs = torch.tensor(observations, dtype=torch.float32).unsqueeze(0)
    count = len(observations)
    with torch.no_grad():
        value = run.algorithm.policy(
            obs, run.algorithm.policy.trunk.initial_state(count), torch.ones(1, count, dtype=torch.bool)
        )
    return value[1][0].tolist()


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_constant_reward(memory: str) -> None:
    run = trained("Constant", memory)
    assert values(run, [0.0]) == pytest.approx([1.0], abs=0.03)
    close(run)


def test_reward_by_observation() -> None:
    run = trained("RewardByObservation")
    assert values(run, [-1.0], [1.0]) == pytest.approx([-1.0, 1.0], abs=0.05)
    close(run)


def test_two_step_delay_is_discounted_once() -> None:
    run = trained("TwoStepDelay")
    assert values(run, [0.0], [1.0]) == pytest.approx([GAMMA, 1.0], abs=0.05)
    close(run)


def test_the_smallest_policy_is_learned() -> None:
    run = trained("Match")
    assert run.evaluator.evaluate(0).mean > 0.97
    close(run)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_endless_reward_under_a_time_limit_is_worth_the_whole_series(memory: str) -> None:
    """1 / (1 - gamma) = 10; treating the limit of 20 steps as an end would give about 7."""
    run = trained("Endless", memory, steps=40_000, lr={"start": 5e-3, "end": 5e-4})
    assert values(run, [0.0]) == pytest.approx([1 / (1 - GAMMA)], rel=0.05)
    close(run)


def test_memory_does_not_leak_between_episodes() -> None:
    """The answer is only ever shown in the episode before: whoever beats chance has leaked state."""
    run = trained("PreviousAnswer", "gru", steps=25_000)
    assert run.evaluator.evaluate(0).mean == pytest.approx(0.5, abs=0.08)
    assert np.mean(run.algorithm.collector.episodes.returns) == pytest.approx(0.5, abs=0.15)
    close(run)


@pytest.mark.parametrize(("memory", "low", "high"), [("gru", 0.97, 1.0), ("none", 0.4, 0.6)])
def test_memory_remembers_within_an_episode(memory: str, low: float, high: float) -> None:
    run = trained("Recall", memory, steps=30_000, gae_lambda=1.0)
    assert low <= run.evaluator.evaluate(0).mean <= high
    close(run)


def test_reinforce_learns_the_smallest_policy() -> None:
    cfg = config(
        {"name": "reinforce", "rollout_steps": 32, "lr": 0.02, "targets": "advantages"},
        env="Probe/Match-v0",
        environment={"num_envs": 8},
        training={"total_timesteps": 15_000, "evaluation": {"episodes": 200, "deterministic": False}},
    )
    run = build(cfg)
    run.run()
    assert run.evaluator.evaluate(0).mean > 0.95
    close(run)
