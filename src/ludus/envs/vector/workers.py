"""Environments in worker processes over shared memory, several per worker.

Workers are new interpreters, not forks, so that threads of torch and CUDA cause no trouble. Each has a socket to the
parent; the arrays lie in anonymous shared memory that is freed with its last user.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ludus.envs.snapshots import NONE, SnapshotChoice, ladder
from ludus.envs.vector import VectorEnv
from ludus.envs.vector import worker as protocol
from ludus.envs.vector.buffers import ActionClipper, VectorArrays
from ludus.envs.vector.process import Lost, Worker
from ludus.envs.vector.stepper import require_equal_spaces
from ludus.errors import EnvironmentFailed, LudusError
from ludus.types import Array, State, StepResult, Tree, tree_index, tree_set

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe


class AsyncVectorEnv(VectorEnv):
    """Environments in `workers` processes; equal to the sync backend to the bit."""

    backend = "async"

    def __init__(self, recipe: Recipe, num_envs: int, *, workers: int, deadline: float, restart: bool) -> None:
        self._recipe, self._deadline, self._restart = recipe, deadline, restart
        self._memory_fd = _anonymous_memory()
        self._workers: list[Worker] = []
        self.restarts: list[str] = []
        """One line about each worker that was replaced."""
        try:
            self._start(num_envs, min(workers, num_envs))
        except Lost as lost:
            for worker in self._workers:
                worker.kill()
            self.close()
            raise lost.error(self._about(lost.worker)) from lost
        except BaseException:
            self.close()
            raise
        self._clipper = ActionClipper(self.info.action_space)
        self._side = 0

    def reset(self, seeds: Sequence[int]) -> Tree:
        self._arrays.seed[:] = seeds
        self._side ^= 1
        _, lost = self._all(protocol.RESET[self._side])
        for failure in lost:
            self._bury(failure)
            self._replace(failure.worker)
        return self._arrays.sides[self._side]

    def step(self, action: Array) -> StepResult:
        arrays = self._arrays
        self._clipper.write(action, arrays.action)
        self._side ^= 1
        finished, lost = self._all(protocol.STEP[self._side])
        broken = np.zeros(self.num_envs, bool)
        for failure in lost:
            self._bury(failure)
            broken[failure.worker.first : failure.worker.end] = True
            self._drop_episodes(failure.worker)
        return arrays.result(self._side, finished or bool(lost), broken if lost else None)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        worker = next(worker for worker in self._workers if worker.first <= index < worker.end)
        try:
            worker.tell(protocol.RENDER, (index - worker.first, final))
            worker.answer()
            frame: Array = worker.message()
            return frame
        except Lost as lost:
            raise self._failed(lost) from lost

    def close(self) -> None:
        for worker in self._workers:
            worker.tell(protocol.QUIT)
        for worker in self._workers:
            worker.join()
        self._workers = []
        if self._memory_fd >= 0:
            os.close(self._memory_fd)
            self._memory_fd = -1

    def _start(self, num_envs: int, workers: int) -> None:
        edges = [num_envs * i // workers for i in range(workers + 1)]
        for first, end in itertools.pairwise(edges):
            self._workers.append(self._launch(first, end, num_envs, check=first == 0))
        infos = [worker.ready() for worker in self._workers]
        require_equal_spaces(infos, self._recipe.id)
        super().__init__(infos[0], num_envs)
        size = VectorArrays.size(self.info, num_envs)
        os.ftruncate(self._memory_fd, size)
        self._arrays = VectorArrays.build(self.info, num_envs, mmap.mmap(self._memory_fd, size))
        for worker in self._workers:
            worker.tell(protocol.ATTACH)

    def _launch(self, first: int, end: int, num_envs: int, *, check: bool) -> Worker:
        recipe = replace(self._recipe, deadline=math.inf)  # the worker as a whole has one
        return Worker(protocol.WorkerJob(recipe, first, end - first, num_envs, check), self._memory_fd, self._deadline)

    def _choose(self) -> SnapshotChoice:
        choice = ladder.choose(self._recipe)
        if choice.method != NONE:
            self._ask(protocol.WATCH, lambda _: choice.method)
        return choice

    def _snapshot(self) -> State:
        states = self._ask(protocol.SNAPSHOT, replies=True)
        return {**self._arrays.saved(self._side), "envs": list(itertools.chain(*states))}

    def _restore(self, state: State) -> Tree:
        states: list[State] = state["envs"]
        self._ask(protocol.RESTORE, lambda worker: states[worker.first : worker.end])
        return self._arrays.restored(state, self._side)

    def _ask(
        self, command: bytes, message: Callable[[Worker], Any] = lambda _: None, *, replies: bool = False
    ) -> list[Any]:
        """Give a rare command to every worker and wait for all of them; then raise the first failure."""
        for worker in self._workers:
            worker.tell(command, message(worker))
        answers: list[Any] = []
        failures: list[LudusError] = []
        for worker in self._workers:
            try:
                worker.answer(seconds=worker.patience)
                answers.append(worker.message() if replies else None)
            except Lost as lost:
                failures.append(self._failed(lost))
            except LudusError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return answers

    def _all(self, command: bytes) -> tuple[bool, list[Lost]]:
        """Give every worker the command and wait for all of them; returns (an episode ended, lost workers)."""
        finished, lost = False, []
        for worker in self._workers:
            worker.tell(command)
        until = time.monotonic() + self._deadline
        for worker in self._workers:
            try:
                finished |= worker.answer(until) == protocol.FINISHED
                worker.replacement = False
            except Lost as failure:
                lost.append(failure)
        if lost and not self._restart:
            raise self._failed(lost[0]) from lost[0]
        return finished, lost

    def _bury(self, lost: Lost) -> None:
        """Stop a lost worker; if it was a replacement that never did a step, the run fails instead."""
        failure = self._failed(lost)
        if lost.worker.replacement:
            raise failure from lost
        lost.worker.join()
        self.restarts.append(failure.line())

    def _drop_episodes(self, worker: Worker) -> None:
        """Cut the episodes of a dead worker at their last observations and begin new ones in a new worker."""
        arrays, rows = self._arrays, slice(worker.first, worker.end)
        tree_set(arrays.final_obs, rows, tree_index(arrays.sides[self._side ^ 1], rows))
        arrays.reward[rows] = arrays.raw_reward[rows] = 0.0
        arrays.terminated[rows], arrays.truncated[rows], arrays.continues[rows] = False, True, False
        seeds = [np.random.SeedSequence([int(seed), len(self.restarts)]) for seed in arrays.seed[rows]]
        arrays.seed[rows] = [seed.generate_state(1)[0] for seed in seeds]
        self._replace(worker)

    def _replace(self, old: Worker) -> None:
        """Start a new process in the place of a dead one and reset its environments with the stored seeds."""
        worker = self._launch(old.first, old.end, self.num_envs, check=False)
        worker.replacement = True
        self._workers[self._workers.index(old)] = worker
        try:
            worker.ready()
            worker.tell(protocol.ATTACH)
            if self.snapshot_method not in (None, NONE):
                worker.tell(protocol.WATCH, self.snapshot_method)
                worker.answer(seconds=worker.patience)
            worker.tell(protocol.RESET[self._side])
            worker.answer()
        except Lost as lost:
            raise self._failed(lost) from lost

    def _failed(self, lost: Lost) -> EnvironmentFailed:
        lost.worker.kill()
        return lost.error(self._about(lost.worker))

    def _about(self, worker: Worker) -> str:
        """`environment 5 (CartPole-v1, seed 7)`: the one it was working on, or all of them."""
        if not hasattr(self, "_arrays"):
            return f"environments {worker.first} to {worker.end - 1} ({self._recipe.id})"
        at = int(self._arrays.cursor[worker.first])
        first, end = (worker.first + at, worker.first + at + 1) if at >= 0 else (worker.first, worker.end)
        seeds = ", ".join(str(seed) for seed in self._arrays.seed[first:end])
        if end - first == 1:
            return f"environment {first} ({self.id}, seed {seeds})"
        return f"environments {first} to {end - 1} ({self.id}, seeds {seeds})"


def _anonymous_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ludus")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
