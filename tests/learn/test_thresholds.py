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
    "CartPole-v1:a2c",
    "CartPole-v1:reinforce",
    "CartPole-v1:ppo_gru_masked",
    *(f"CartPole-v1:ppo_{core}_masked" for core in ("lstm", "min_gru", "trxl", "gtrxl", "mamba", "mamba2")),
    "CartPole-v1:ppo_replay",
    "CartPole-v1:dqn",
    "FrozenLake-v1:q_learning",
    "FrozenLake-v1:q_learning_dry",
    "Taxi-v4:q_learning",
]
LONGER = [
    "Acrobot-v1:ppo",
    "Acrobot-v1:reinforce",
    "MountainCar-v0:ppo",
    "Pendulum-v1:ppo",
    "Pendulum-v1:sac",
    "Pendulum-v1:td3",
    "CartPole-v1:sac",
    "CartPole-v1:rainbow",
    "LunarLander-v3:dqn",
    "Acrobot-v1:dqn",
    "MountainCar-v0:dqn",
    "FrozenLake-v1:ppo",
    "FrozenLake-v1:ppo_dry",
    "FrozenLake-v1:reinforce",
    "Taxi-v4:ppo",
    "LunarLander-v3:ppo",
    "ProofOfMemory-v0:ppo",
    *(f"ProofOfMemory-v0:ppo_{core}" for core in ("lstm", "min_gru", "trxl", "gtrxl", "mamba", "mamba2")),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spec", [*QUICK, *LONGER])
def test_reaches_its_threshold(spec: str, seed: int) -> None:
    run = build(load(spec, [f"experiment.seed={seed}"]).config)
    run.run()
    close(run)
    assert run.last.mean >= run.threshold, run.last


def test_hopper_learns_to_hop() -> None:
    """A tenth of the shipped budget; random actions fall over at about 20."""
    pytest.importorskip("mujoco")
    words = ["experiment.seed=11", "training.total_timesteps=102_400", "training.evaluation.every_steps=51_200"]
    run = build(load("Hopper-v5:ppo", words).config)
    run.run()
    close(run)
    assert run.last.mean > 300, run.last


def test_minatar_breakout_is_learned_from_its_cells() -> None:
    """A twentieth of the shipped budget; random actions break 0.4 bricks."""
    pytest.importorskip("minatar")
    words = ["experiment.seed=11", "training.total_timesteps=102_400", "training.evaluation.every_steps=51_200"]
    run = build(load("MinAtar-Breakout-v1:ppo", words).config)
    run.run()
    close(run)
    assert run.last.mean > 3, run.last


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("core", ["ppo", "ppo_lstm", "ppo_trxl"])
def test_finds_the_like_of_an_object_it_saw(core: str, seed: int) -> None:
    for package in ("minigrid", "envpool"):
        pytest.importorskip(package)
    words = [f"experiment.seed={seed}", "environment.vectorization=envpool"]
    run = build(load(f"MiniGrid-MemoryS7-v0:{core}", words).config)
    run.run()
    close(run)
    assert run.last.mean >= run.threshold, run.last


@pytest.mark.parametrize("seed", SEEDS)
def test_drqn_balances_without_seeing_velocities(seed: int) -> None:
    run = build(load("CartPole-v1:dqn_gru_masked", [f"experiment.seed={seed}"]).config)
    run.run()
    close(run)
    assert run.last.mean >= 400, run.last


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("spec", "most"), [("CartPole-v1:ppo_masked", 100.0), ("ProofOfMemory-v0:ppo_forgetful", 0.5)])
def test_without_memory_it_cannot_be_learned(spec: str, most: float, seed: int) -> None:
    """Chance in proof of memory is 0; the best of thirty evaluations over 100 episodes is a few tenths."""
    run = build(load(spec, [f"experiment.seed={seed}"]).config)
    run.run()
    close(run)
    assert run.best.mean < most


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_takes_fewer_environment_steps(seed: int) -> None:
    """The shipped config with and without replayed rollouts, evaluated every 1,024 steps."""

    def steps(ratio: int) -> int:
        words = [f"experiment.seed={seed}", f"algorithm.replay_ratio={ratio}"]
        run = build(load("CartPole-v1:ppo_replay", words).config)
        run.run()
        close(run)
        assert ratio == 0 or run.last.mean >= run.threshold
        return int(run.progress.env_steps)

    assert steps(4) < steps(0)
