"""Tasks of a Ray cluster, each of which starts the command of a run. Folders have to be on a shared file system.

A run over several ranks is as many tasks, which are told by the variables of torchrun who they are.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError, MissingExtra
from ludus.network import silence
from ludus.sweeps.engines import KILLED, Job, Task
from ludus.sweeps.engines.elsewhere import ask_to_end, command_of, environment

ADDRESS = "RAY_ADDRESS"
RESERVED = 60.0
"""Seconds that the cluster may take to reserve the cores of all ranks."""
PATIENCE = 3.0
"""Seconds that the head may take to answer; Ray itself would try for a minute."""


class RayEngine:
    """The cluster that `RAY_ADDRESS` names."""

    def __init__(self, ranks: int = 1) -> None:
        address = require()
        import ray

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.ray: Any = ray
        self.ranks = ranks
        self.ours = not ray.is_initialized()
        if self.ours:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        self.carry_out = ray.remote(num_cpus=1, max_retries=0)(_function())

    def start(self, job: Job) -> RayTask:
        """Hand the job to the cluster."""
        if self.ranks == 1:
            return RayTask(self.ray, [self._remote(job, environment())])
        group = self.ray.util.placement_group([{"CPU": 1}] * self.ranks, strategy="PACK")
        if not group.wait(RESERVED):
            self.ray.util.remove_placement_group(group)
            problem = f"the cluster has no {self.ranks} free cores for as many ranks"
            raise ConfigError("--engine ray", problem, "start it with more --num-cpus, or write fewer --ranks")
        spots = [self._spot(group, rank) for rank in range(self.ranks)]
        where = self.ray.remote(num_cpus=1, max_retries=0)(_where())
        nodes = self.ray.get([where.options(scheduling_strategy=spot).remote() for spot in spots])
        shared = [{**environment(), **own} for own in variables_of(nodes)]
        tasks = [self._remote(job, own, scheduling_strategy=spot) for own, spot in zip(shared, spots, strict=True)]
        return RayTask(self.ray, tasks, group)

    def _remote(self, job: Job, variables: dict[str, str], **options: Any) -> Any:
        return self.carry_out.options(**options).remote(command_of(job), str(job.log), variables, str(Path.cwd()))

    def _spot(self, group: Any, rank: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)

    def wait(self, tasks: Sequence[Task], seconds: float) -> None:
        """Return when a task has ended."""
        references = [one for task in tasks if isinstance(task, RayTask) for one in task.references]
        self.ray.wait(references, timeout=seconds) if references else time.sleep(seconds)

    def close(self) -> None:
        """Leave the cluster."""
        if self.ours:
            self.ray.shutdown()


class RayTask:
    """A run of the cluster: one task, or one for each of its ranks."""

    def __init__(self, ray: Any, references: Sequence[Any], group: Any = None) -> None:
        self.ray, self.references, self.group = ray, list(references), group

    def code(self) -> int | None:
        """Exit code of the command, of several ranks the first that is not 0; KILLED if a worker died."""
        _, waiting = self.ray.wait(self.references, num_returns=len(self.references), timeout=0)
        if waiting:
            return None
        if self.group is not None:
            self.ray.util.remove_placement_group(self.group)
            self.group = None
        codes = [self._code(one) for one in self.references]
        return next((code for code in codes if code), 0)

    def _code(self, reference: Any) -> int:
        try:
            return int(self.ray.get(reference))
        except self.ray.exceptions.RayError:
            return KILLED

    def stop(self, folder: Path | None) -> None:
        """Ask the run by its folder; a task without one has not begun."""
        if folder is not None:
            ask_to_end(folder)
            return
        for one in self.references:
            self.ray.cancel(one)


def _function() -> Callable[..., int]:
    """What a worker does; a function without a module, so that a worker need not find ours."""

    def carry_out(command: list[str], log: str, environment: dict[str, str], place: str) -> int:
        import subprocess
        from pathlib import Path

        with Path(log).open("ab") as file:
            return subprocess.run(command, stdout=file, stderr=file, env=environment, cwd=place, check=False).returncode

    return carry_out


def _where() -> Callable[[], tuple[str, int]]:
    """The address of a worker's machine, and a port that is free there."""

    def where() -> tuple[str, int]:
        import socket

        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    return where


def variables_of(nodes: Sequence[tuple[str, int]]) -> list[dict[str, str]]:
    """The variables of each rank, by the address and the free port of its machine; rank 0 is where the others meet."""
    hosts = [host for host, _ in nodes]
    alone = len(set(hosts)) == 1
    meeting = {"MASTER_ADDR": "127.0.0.1" if alone else hosts[0], "MASTER_PORT": str(nodes[0][1])}
    shared = {**meeting, "WORLD_SIZE": str(len(nodes)), **({"GLOO_SOCKET_IFNAME": "lo"} if alone else {})}
    own = [
        {"RANK": str(rank), "LOCAL_RANK": str(hosts[:rank].count(host)), "LOCAL_WORLD_SIZE": str(hosts.count(host))}
        for rank, host in enumerate(hosts)
    ]
    return [{**shared, **one} for one in own]


def require() -> str:
    """The address of the head, if Ray is installed and it answers."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MissingExtra("--engine ray", "ray") from None
    address = os.environ.get(ADDRESS, "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    remedy = f"start one: ray start --head --port 6379; then export {ADDRESS}=127.0.0.1:6379"
    if not host or not port.isdecimal():
        raise ConfigError(
            ADDRESS, "names no Ray cluster" if not address else f"'{address[:60]}' is no HOST:PORT", remedy
        )
    if why := silence(host, int(port), PATIENCE):
        raise ConfigError(f"{ADDRESS}={address[:60]}", f"nobody answers: {why}", remedy)
    return address
