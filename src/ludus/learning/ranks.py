"""One training in several processes, the ranks: each has its own environments and buffers, all have the same weights.

Ranks take the same hooks in the same order. Where one number has to be the same for all of them, they meet: every
optimizer step averages the group's flat gradient in one all-reduce, and the few other places ask the `Ranks` that they
were given. A process that trains alone has `ALONE`, which answers at once.

Reading order: Ranks -> ConnectedRanks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.errors import RankLost
from ludus.math.policy_gradient import normalized
from ludus.math.running import Moments
from ludus.types import Array

Store = Any
"""A key-value store of `torch.distributed`, which exports no type for all of them."""
GRACE = 5.0
"""Seconds in which a rank that went away may have told why, or its process be found dead."""

STARTING = 120.0
"""Seconds that every rank has at least to import, build and begin."""


class Ranks:
    """What ranks agree on; this one is alone, so that it agrees with itself."""

    rank, count = 0, 1
    local_rank, local_count = 0, 1
    """This one among the ranks of its machine, which share the cores and have a GPU each."""

    def average(self, tensor: Tensor) -> Tensor:
        """The mean over all ranks, in place."""
        return tensor

    def whole(self, columns: Tensor) -> Tensor:
        """The columns [..., B] of all ranks side by side, [..., B * count]."""
        return columns

    def own(self, whole: Tensor) -> Tensor:
        """The columns of this rank among those of all."""
        width = whole.shape[-1] // self.count
        return whole[..., self.rank * width : (self.rank + 1) * width]

    def normalized(self, advantage: Tensor, weight: Tensor | None) -> Tensor:
        """Advantages [..., B] scaled to zero mean and unit deviation, over the batch of all ranks."""
        if self.count == 1:
            return normalized(advantage, weight)
        both = torch.stack([advantage, torch.ones_like(advantage) if weight is None else weight])
        every, weights = self.whole(both)
        return self.own(normalized(every, None if bool((weights == 1).all()) else weights))

    def whole_arrays(self, *columns_TB: Array) -> tuple[Array, ...]:
        """`whole` for arrays of one shape and type."""
        return columns_TB

    def everyone(self, own: Moments) -> list[Moments]:
        """The moments that each rank has, in their order."""
        return [own]

    def everywhere(self, flag: bool) -> bool:
        """Whether it holds on every rank."""
        return flag

    def gather(self, value: Any) -> list[Any]:
        """The plain data that each rank gives, in their order."""
        return [value]

    def from_first(self, value: Any) -> Any:
        """The plain data that rank 0 gives."""
        return value

    def release(self) -> None:
        """Rank 0 has no more orders for the others, which wait for them (`orchestration/following.py`)."""


ALONE = Ranks()


class ConnectedRanks(Ranks):
    """One of several ranks; `join` connects them, and whatever follows waits for all of them.

    `store` is where they find each other, and where one that fails says why. `dead` names ranks whose process is known
    to have ended. A rank that does not answer for `timeout` seconds ends the run.
    """

    def __init__(
        self,
        rank: int,
        count: int,
        store: Store,
        *,
        timeout: float,
        local_rank: int,
        local_count: int = 1,
        dead: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.rank, self.count, self.store = rank, count, store
        self.local_rank, self.local_count = local_rank, local_count
        self.timeout, self.dead = timeout, dead
        self.joined = self.met = False

    def join(self) -> None:
        """Wait for all ranks. Tensors on the CPU go by gloo, those on a GPU by NCCL."""
        import torch.distributed as dist

        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        limit = timedelta(seconds=self.timeout)
        with self._together():
            self._wait_for_all()
            dist.init_process_group(backend, store=self.store, rank=self.rank, world_size=self.count, timeout=limit)
        self.joined = self.met = True

    def _wait_for_all(self) -> None:
        """Wait until every rank is ready: one that fails before has nothing else that could end the wait."""
        self.store.set(f"here {self.rank}", "")
        seconds = max(self.timeout, STARTING)
        until = time.monotonic() + seconds
        while not self.store.check([f"here {rank}" for rank in range(self.count)]):
            found = self._confession() or self._casualty()
            if found is None and time.monotonic() > until:
                found = RankLost("ranks", f"not all {self.count} have started after {seconds:g} seconds", REMEDY)
            if found is not None:
                raise found
            time.sleep(0.02)

    def leave(self) -> None:
        """Close the connections; what others still wait for fails."""
        import torch.distributed as dist

        if self.joined:
            self.joined = False
            dist.destroy_process_group()

    # ---- agreeing --------------------------------------------------------------------------------

    def average(self, tensor: Tensor) -> Tensor:
        import torch.distributed as dist

        with self._together():
            dist.all_reduce(tensor)
        return tensor.mul_(1 / self.count)

    def whole(self, columns: Tensor) -> Tensor:
        import torch.distributed as dist

        columns = columns.contiguous()
        parts = [torch.empty_like(columns) for _ in range(self.count)]
        with self._together():
            dist.all_gather(parts, columns)
        return torch.cat(parts, -1)

    def whole_arrays(self, *columns_TB: Array) -> tuple[Array, ...]:
        return tuple(self.whole(torch.from_numpy(np.stack(columns_TB))).numpy())

    def everyone(self, own: Moments) -> list[Moments]:
        flat = np.concatenate([[own.number], own.mean.reshape(-1), own.squares.reshape(-1)])
        rows = self.whole(torch.from_numpy(flat)).view(self.count, -1).numpy()
        parts = [(row[0], *row[1:].reshape(2, *own.mean.shape)) for row in rows]
        return [Moments(int(count), np.array(mean), np.array(squares)) for count, mean, squares in parts]

    def everywhere(self, flag: bool) -> bool:
        import torch.distributed as dist

        all_of_them = torch.tensor(int(flag))
        with self._together():
            dist.all_reduce(all_of_them, dist.ReduceOp.MIN)
        return bool(all_of_them)

    def gather(self, value: Any) -> list[Any]:
        text = encoded(value)
        sizes = self.whole(torch.tensor([len(text)])).tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(text)] = text
        rows = self.whole(padded).view(self.count, -1)
        return [json.loads(bytes(row[:size].tolist())) for row, size in zip(rows, sizes, strict=True)]

    def from_first(self, value: Any) -> Any:
        return json.loads(self.bytes_of_first(bytes(encoded(value).tolist()) if self.rank == 0 else b""))

    def release(self) -> None:
        if self.rank == 0:
            self.from_first(None)

    # ---- moving bytes ----------------------------------------------------------------------------

    def bytes_of_first(self, data: bytes) -> bytes:
        """The bytes that rank 0 gives."""
        import torch.distributed as dist

        size = torch.tensor([len(data)])
        with self._together():
            dist.broadcast(size, 0)
            found = as_tensor(data) if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(found, 0)
        return found.numpy().tobytes()

    def send(self, data: bytes, rank: int) -> None:
        """Give bytes to one rank, which calls `receive`."""
        import torch.distributed as dist

        with self._together():
            dist.send(torch.tensor([len(data)]), rank)
            dist.send(as_tensor(data), rank)

    def receive(self, rank: int) -> bytes:
        """Take the bytes that a rank sends."""
        import torch.distributed as dist

        size = torch.zeros(1, dtype=torch.int64)
        with self._together():
            dist.recv(size, rank)
            found = torch.empty(int(size), dtype=torch.uint8)
            dist.recv(found, rank)
        return found.numpy().tobytes()

    # ---- ranks that go away ----------------------------------------------------------------------

    def confess(self, line: str, exit_code: int) -> None:
        """Tell the other ranks why this one fails."""
        self.store.set(f"failed {self.rank}", json.dumps([line, exit_code]))

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What fails in here fails because another rank is gone or does not answer."""
        try:
            yield
        except RuntimeError as error:
            raise self._lost(error) from error

    def _lost(self, error: RuntimeError) -> RankLost:
        """Why, as far as it can be found out."""
        found = None
        hung = "imed out" in str(error) or "imeout" in str(error)
        until = time.monotonic() + (0.0 if hung else GRACE)
        while found is None:
            try:
                found = self._confession() or self._casualty()
            except RuntimeError:  # the store is gone, and rank 0 with it
                return RankLost("rank 0", "went away", REMEDY)
            if time.monotonic() >= until:
                break
            time.sleep(0.05)
        if found is not None:
            return found
        if hung:
            return RankLost("ranks", f"another rank has not answered for {self.timeout:g} seconds", REMEDY)
        return RankLost("ranks", f"another rank went away: {' '.join(str(error).split())[:120]}", REMEDY)

    def _confession(self) -> RankLost | None:
        others = [rank for rank in range(self.count) if rank != self.rank]
        for rank in others:
            if self.store.check([f"failed {rank}"]):
                line, code = json.loads(self.store.get(f"failed {rank}"))
                return RankLost(f"rank {rank}", line, exit_code=code)
        return None

    def _casualty(self) -> RankLost | None:
        found = self.dead()
        return None if found is None else RankLost(found, "its process ended", REMEDY)


REMEDY = "the run goes on from its newest checkpoint: ludus resume @last"


def encoded(value: Any) -> Tensor:
    """Plain data as bytes."""
    return as_tensor(json.dumps(value).encode())


def as_tensor(data: bytes) -> Tensor:
    """Bytes that can be sent."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
