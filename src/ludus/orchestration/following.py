"""How ranks save together: rank 0 decides when, gives an order, and collects what only the others know.

Callbacks run on rank 0 only. Wherever one of them may save a checkpoint, the other ranks wait for orders until rank 0
releases them (`Ranks.release`).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from ludus.archive import checkpoint
from ludus.errors import Diverged
from ludus.learning.ranks import ConnectedRanks
from ludus.orchestration.callbacks import Callback

if TYPE_CHECKING:
    from ludus.run import Run


class Following(Callback):
    """The one callback of a rank that follows: it does what rank 0 orders."""

    def on_start(self, run: Run) -> None:
        """Obey until released."""
        self._obey(run)

    def on_epoch_end(self, run: Run) -> None:
        """Obey until released."""
        self._obey(run)

    def on_end(self, run: Run) -> None:
        """Obey until released."""
        self._obey(run)

    def _obey(self, run: Run) -> None:
        ranks = run.ranks
        assert isinstance(ranks, ConnectedRanks)
        while (order := ranks.from_first(None)) is not None:
            if order["barrier"] and run.collector is not None:
                run.collector.barrier(barrier_seeds(run))
            run.buffers.at_checkpoint(order["name"], tuple(order["known"]))
            ranks.send(checkpoint.packed({**run.own_state(), "weights": weights_sum(run)}), 0)
            run.nan_guard.at_checkpoint()


def barrier_seeds(run: Run) -> list[int]:
    """Seeds of the environments that are reset at a checkpoint."""
    assert run.collector is not None
    return run.streams.integers(f"barrier {run.progress.env_steps}", run.collector.num_envs)


def collect_shards(run: Run, name: str, known: list[str], *, barrier: bool) -> dict[str, Any]:
    """What a checkpoint holds of the other ranks, by rank; ranks with different weights are refused."""
    ranks, shards = run.ranks, {}
    if not isinstance(ranks, ConnectedRanks):
        return {}
    ranks.from_first({"name": name, "known": known, "barrier": barrier})
    for rank in range(1, ranks.count):
        shard = checkpoint.unpacked(ranks.receive(rank))
        if shard.pop("weights") != weights_sum(run):
            problem = "has other weights than rank 0: something in the algorithm differs between ranks"
            raise Diverged(f"rank {rank}", problem, "set runtime.ranks to 1, and report this")
        shards[str(rank)] = shard
    return shards


def weights_sum(run: Run) -> int:
    """A checksum of all weights."""
    total = 0
    for learner in run.learners.values():
        total = zlib.crc32(learner.theta.detach().cpu().numpy().tobytes(), total)
    return total
