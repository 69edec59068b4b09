"""Same config and seed: the same weights and metrics to the bit. Other seed: other ones."""

from __future__ import annotations

import pytest
import torch

from ludus.metrics.sinks import Sink
from support import config, run

ALGORITHMS = {
    "ppo": {"name": "ppo", "rollout_steps": 32, "epochs": 2},
    "reinforce": {"name": "reinforce", "rollout_steps": 64},
}


class Rows(Sink):
    def __init__(self) -> None:
        self.rows: list[dict] = []

    def write(self, row) -> None:
        timing = ("seconds", "train/time/fps", "val/time/seconds")
        self.rows.append({k: v for k, v in row.items() if k not in timing})


def trained(algorithm: str, seed: int, **parts):
    rows = Rows()
    evaluation = {"evaluation": {"every_epochs": 2, "episodes": 2}}
    cfg = config(
        ALGORITHMS[algorithm], experiment={"seed": seed}, training={"total_timesteps": 1_024, **evaluation}, **parts
    )
    return run(cfg, sinks=[rows]).algorithm.learner.theta, rows.rows


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_same_seed_same_run(algorithm: str, memory: str, env: str) -> None:
    parts = {"network": {"memory": memory}, "env": env}
    (theta, rows), (again, same), (other, _) = (trained(algorithm, seed, **parts) for seed in (1, 1, 2))
    assert torch.equal(theta, again)
    assert rows == same
    assert not torch.equal(theta, other)


def test_sync_and_async_backends_train_alike() -> None:
    backends = [trained("ppo", 3, environment={"vectorization": kind, "num_envs": 4}) for kind in ("sync", "async")]
    assert torch.equal(backends[0][0], backends[1][0])


def test_steps_never_exceed_the_budget() -> None:
    for total in (100, 1_000, 1_023):
        done = run(config(ALGORITHMS["ppo"], training={"total_timesteps": total})).progress
        assert total - 4 < done.env_steps <= total
