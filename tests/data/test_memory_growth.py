"""A full buffer takes no more memory."""

from __future__ import annotations

import pytest

from ludus.orchestration.callbacks import Callback
from ludus.watch import ram
from support import config, run


class Watch(Callback):
    """Memory of the process at every epoch end."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def on_epoch_end(self, run: object) -> None:
        """Remember."""
        self.seen.append((run.progress.env_steps, ram.used()))  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_memory_stays_once_the_buffer_is_full(kind: str) -> None:
    algorithm = {"name": "dqn", "update_ratio": 0.02, "train_freq": 16, "batch_size": 32, "epoch_steps": 5_000}
    watch = Watch()
    run(config(algorithm, environment={"num_envs": 8}, training={"total_timesteps": 200_000},
               buffers={"replay": {"type": kind, "size": 20_000}}), callbacks=[watch])  # fmt: skip
    (early, before), (late, after) = watch.seen[len(watch.seen) // 4], watch.seen[-1]
    assert (after - before) / (late - early) * 100_000 < 1_000_000
