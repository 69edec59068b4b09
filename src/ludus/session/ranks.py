"""The processes of a training over several ranks: who starts them, how they meet, and what the others do.

`ludus train --ranks N` is rank 0 itself and starts the others, on this machine. Under torchrun, or in a job step of
SLURM, the processes are there already and are told by variables who they are.

Reading order: ranks_of -> meet -> follow.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ludus import preflight
from ludus.archive import checkpoint
from ludus.archive.differences import differences
from ludus.config.compose import config_hash, dump, parse
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError, LudusError, RankLost
from ludus.experiment import build
from ludus.interpreter import running_module
from ludus.learning.ranks import ALONE, ConnectedRanks, Ranks, Store
from ludus.orchestration.orchestrator import Orchestrator
from ludus.plugins import Plugin, load_plugins
from ludus.run import Run
from ludus.run_state import common_state, load_common, load_own
from ludus.session.signals import stopping
from ludus.terminal import warn

LAST_SECONDS = 10.0
"""How long rank 0 waits for the processes that it started, before it ends them."""


class Place(NamedTuple):
    """Where a launcher put this process."""

    rank: int
    world: int
    """Number of ranks."""
    local_rank: int
    local_world: int
    """Ranks on this machine that share its cores; 1 where the launcher gives each its own."""
    launcher: str


def launched(variables: Mapping[str, str] = os.environ) -> Place | None:
    """What torchrun or SLURM say of this process; None if neither started it as one of several."""
    given = variables.get
    if "RANK" in variables and int(given("WORLD_SIZE", "1")) > 1:
        local, local_world = int(given("LOCAL_RANK", "0")), int(given("LOCAL_WORLD_SIZE", "1"))
        return Place(int(variables["RANK"]), int(variables["WORLD_SIZE"]), local, local_world, "torchrun")
    if "SLURM_PROCID" in variables and int(given("SLURM_STEP_NUM_TASKS", "1")) > 1:
        count, local = int(variables["SLURM_STEP_NUM_TASKS"]), int(given("SLURM_LOCALID", "0"))
        return Place(int(variables["SLURM_PROCID"]), count, local, 1, "srun")
    return None


def leads() -> bool:
    """Whether this process talks to the user: it is alone, or rank 0."""
    place = launched()
    return place is None or place.rank == 0


@contextmanager
def ranks_of(config: ExperimentConfig, plugins: Sequence[Plugin] = ()) -> Iterator[Ranks]:
    """The ranks that a config asks for, seen from this one; the others are started if no launcher did."""
    place, count = launched(), config.runtime.ranks
    if place is not None and place.launcher == "srun" and count == 1:
        place = None  # tasks of one step that are runs of their own
    if place is not None and place.world != count:
        problem = f"{place.launcher} started {place.world} processes, and {count} ranks are asked for"
        raise ConfigError("runtime.ranks", problem, f"use --ranks {place.world}")
    if count == 1:
        yield ALONE
        return
    preflight.check_ranks(config)
    if place is not None:
        store, timeout = launchers_store(place, config.runtime.rank_timeout), config.runtime.rank_timeout
        own = ConnectedRanks(
            place.rank, count, store, timeout=timeout, local_rank=place.local_rank, local_count=place.local_world
        )
        with connected(own) as ranks:
            yield ranks
        return
    preflight.check_room_for_ranks(count)
    with Followers(config, plugins) as followers, connected(followers.first()) as ranks:
        yield ranks


@contextmanager
def connected(ranks: ConnectedRanks) -> Iterator[ConnectedRanks]:
    """A context at whose end the ranks part; why one fails is told to the others."""
    try:
        yield ranks
    except RankLost:  # not the cause, but a consequence
        raise
    except LudusError as error:
        ranks.confess(error.line(), error.exit_code)
        raise
    except BaseException as error:
        ranks.confess(repr(error), 1)
        raise
    finally:
        ranks.leave()


class Followers:
    """The processes of all ranks but the first, which is this one; a context at whose end all have ended."""

    def __init__(self, config: ExperimentConfig, plugins: Sequence[Plugin]) -> None:
        self.config, self.plugins = config, plugins
        self.processes: list[subprocess.Popen[bytes]] = []
        self._first: ConnectedRanks | None = None

    def __enter__(self) -> Followers:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # re-exported

        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # port 0: any that is free
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all are on this machine, whatever its name resolves to
        count = self.config.runtime.ranks
        names = [word for plugin in self.plugins for word in ("--plugin", plugin.name)]
        for rank in range(1, count):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
            variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.store.port)}
            process = subprocess.Popen(
                running_module("ludus.session.follower", *names),
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
            self.processes.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps(dump(self.config)).encode())
            process.stdin.close()
        return self

    def __exit__(self, *_: object) -> None:
        met = self._first is not None and self._first.met  # before that they have nothing that could get lost
        until = time.monotonic() + (LAST_SECONDS if met else 0.0)
        for process in self.processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def first(self) -> ConnectedRanks:
        """Rank 0."""
        count, timeout = self.config.runtime.ranks, self.config.runtime.rank_timeout
        self._first = ConnectedRanks(
            0, count, self.store, timeout=timeout, local_rank=0, local_count=count, dead=self.dead
        )
        return self._first

    def dead(self) -> str | None:
        """The first process that has ended, and how."""
        for rank, process in enumerate(self.processes, 1):
            code = process.poll()
            if code is not None:
                how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
                return f"rank {rank} (process {process.pid}, {how})"
        return None


_launchers: list[Store] = []
"""The store that a launcher's ranks share: one for all runs of this process."""
_met = 0


def launchers_store(place: Place, timeout: float) -> Store:
    """Where the processes of a launcher find each other; each run has its own part of it."""
    global _met
    from datetime import timedelta

    from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # re-exported
    from torch.distributed.rendezvous import rendezvous

    if not _launchers:
        if place.launcher == "srun":
            os.environ.setdefault("MASTER_ADDR", first_host(os.environ.get("SLURM_STEP_NODELIST", "127.0.0.1")))
            os.environ.setdefault("MASTER_PORT", str(20_000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 20_000))
        found, _, _ = next(rendezvous("env://", place.rank, place.world, timeout=timedelta(seconds=timeout)))
        _launchers.append(found)
    _met += 1
    return PrefixStore(f"run {_met}", _launchers[0])


def first_host(nodes: str) -> str:
    """The first host of a SLURM list: `gpu03` of `gpu[03-06,9],cpu1`."""
    head, bracket, rest = nodes.partition("[")
    if not bracket or "," in head:
        return nodes.partition(",")[0]
    return head + rest.partition("]")[0].replace("-", ",").partition(",")[0]


# ---- meeting -------------------------------------------------------------------------------------


def meet(run: Run, folder: Path | None = None) -> None:
    """Wait for all ranks before the first step; they must have the same config and network, and begin alike.

    Buffers are saved in `folder`, or else where rank 0 has its run folder.
    """
    ranks = run.ranks
    if not isinstance(ranks, ConnectedRanks):
        return
    ranks.join()
    check_alike(run, ranks)
    place = ranks.from_first(str(folder or run.folder or ""))
    common = ranks.bytes_of_first(checkpoint.packed(common_state(run)) if ranks.rank == 0 else b"")
    resumed = ranks.from_first(bool(run.shards))
    if ranks.rank == 0:
        for rank in range(1, ranks.count) if resumed else ():
            ranks.send(checkpoint.packed(run.shards.pop(str(rank))), rank)
        return
    if place:
        run.buffers.attach(Path(place) / "buffers" / f"rank={ranks.rank}")
    load_common(run, checkpoint.unpacked(common))
    if resumed:
        load_own(run, checkpoint.unpacked(ranks.receive(0)))


def check_alike(run: Run, ranks: ConnectedRanks) -> None:
    """Refuse ranks whose config, spaces or network differ: they would not fail, but learn nonsense, or hang."""
    layout = {name: [learner.layout.names, learner.layout.sizes] for name, learner in run.learners.items()}
    spaces = [str(run.spaces.observation), str(run.spaces.action), run.scheduler.quantum]
    own = {"config": config_hash(run.config), "network": layout_hash(layout), "environment": layout_hash(spaces)}
    heard = ranks.gather(own)
    for rank, other in enumerate(heard):
        for what in own:
            if other[what] != heard[0][what]:
                more = _first_difference(run, ranks, rank) if what == "config" else ""
                problem = f"its {what} differs from that of rank 0{more}"
                raise ConfigError(f"rank {rank}", problem, "start all ranks with the same command and versions")


def _first_difference(run: Run, ranks: ConnectedRanks, rank: int) -> str:
    configs = ranks.gather(dump(run.config))
    found = differences(configs[0], configs[rank])
    return f": {found[0]}" if found else ""


def layout_hash(value: Any) -> str:
    """A short text that differs where the value does."""
    import hashlib

    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


# ---- the others ----------------------------------------------------------------------------------


def follow(config: ExperimentConfig, ranks: Ranks) -> Run:
    """Train as a rank that is not the first: no folder, no console, no decisions."""
    run = build(config, will_checkpoint=True, ranks=ranks, say=warn)
    try:
        with stopping(run):
            meet(run)
            Orchestrator(run).run()
    finally:
        run.close()
    return run


def follow_parent(job: str, plugins: Sequence[str]) -> Run:
    """Train as a rank that rank 0 started, with the config and the plugins that it gave."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # re-exported

    given = json.loads(job)
    rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
    store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    count, timeout = given["runtime"]["ranks"], given["runtime"]["rank_timeout"]
    ranks = ConnectedRanks(rank, count, store, timeout=timeout, local_rank=rank, local_count=count)
    with connected(ranks):
        load_plugins(plugins)
        return follow(parse(given, "config of rank 0"), ranks)
