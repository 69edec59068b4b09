"""Shipped configs reach their thresholds: three of three seeds, none of them used for tuning."""

from __future__ import annotations

import pytest

from ludus.config.compose import load
from support import build, close

pytestmark = pytest.mark.slow
SEEDS = (1, 2, 3)
QUICK = [
    "Bandit-v0:ppo",
    "Bandit-v0:reinforce",
    "CartPole-v1:ppo",
    "CartPole-v1:reinforce",
    "CartPole-v1:ppo_gru_masked",
]
LONGER = [
    "Acrobot-v1:ppo",
    "Acrobot-v1:reinforce",
    "MountainCar-v0:ppo",
    "Pendulum-v1:ppo",
    "FrozenLake-v1:ppo",
    "FrozenLake-v1:ppo_dry",
    "FrozenLake-v1:reinforce",
    "Taxi-v4:ppo",
    "LunarLander-v3:ppo",
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spec", [*QUICK, *LONGER])
def test_reaches_its_threshold(spec: str, seed: int) -> None:
    run = build(load(spec, [f"experiment.seed={seed}"]).config)
    run.run()
    close(run)
    assert run.last.mean >= run.threshold, run.last


@pytest.mark.parametrize("seed", SEEDS)
def test_without_memory_masked_cartpole_fails(seed: int) -> None:
    run = build(load("CartPole-v1:ppo_masked", [f"experiment.seed={seed}"]).config)
    run.run()
    close(run)
    assert run.best.mean < 100
