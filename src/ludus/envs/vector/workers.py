"""Environments in worker processes over shared memory, several per worker.

Workers are started fresh (no fork of this process: torch, CUDA and their threads are no concern) and reach the parent
through one socket each; the arrays lie in anonymous shared memory that vanishes with its last user.
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

from ludus.envs import snapshot
from ludus.envs.info import EnvInfo
from ludus.envs.snapshots import NONE, Choice
from ludus.envs.vector import StepResult, VectorEnv, wire
from ludus.envs.vector.block import ActionBorder, Block
from ludus.envs.vector.process import Lost, Worker
from ludus.envs.vector.worker import Job
from ludus.errors import ConfigError, EnvironmentFailed, LudusError
from ludus.types import Array

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe


class AsyncVectorEnv(VectorEnv):
    """Lanes in `workers` processes; bit-identical to one lane in this process."""

    backend = "async"

    def __init__(self, recipe: Recipe, num_envs: int, *, workers: int, deadline: float, restart: bool) -> None:
        self._recipe, self._deadline, self._restart = recipe, deadline, restart
        self._memory_fd = _anonymous_memory()
        self._workers: list[Worker] = []
        self.restarts: list[str] = []
        """One line for each worker that was replaced."""
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
        self._border = ActionBorder(self.info.action_space)
        self._side = 0
        self.raw_reward = self._block.raw_reward

    def reset(self, seeds: Sequence[int]) -> Array:
        self._block.seed[:] = seeds
        self.broken = None
        self._side ^= 1
        _, lost = self._all(wire.RESET[self._side])
        for failure in lost:
            self._bury(failure)
            self._replace(failure.worker)
        return self._block.obs[self._side]

    def step(self, action: Array) -> StepResult:
        block = self._block
        self._border.write(action, block.action)
        self.broken = None
        self._side ^= 1
        finished, lost = self._all(wire.STEP[self._side])
        for failure in lost:
            self._bury(failure)
            self._drop_episodes(failure.worker)
        self.continues = block.continues if finished and block.continues.any() else None
        return StepResult(
            block.obs[self._side],
            block.reward,
            block.terminated,
            block.truncated,
            block.final_obs if finished or lost else None,
        )

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        worker = next(worker for worker in self._workers if worker.first <= index < worker.end)
        try:
            return worker.render(index - worker.first, final)
        except Lost as lost:
            raise self._failed(lost) from lost

    def close(self) -> None:
        for worker in self._workers:
            worker.tell(wire.QUIT)
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
        super().__init__(_common(infos), num_envs)
        size = Block.size(self.info, num_envs)
        os.ftruncate(self._memory_fd, size)
        self._block = Block.build(self.info, num_envs, mmap.mmap(self._memory_fd, size))
        for worker in self._workers:
            worker.tell(wire.ATTACH)

    def _launch(self, first: int, end: int, num_envs: int, *, check: bool) -> Worker:
        recipe = replace(self._recipe, deadline=math.inf)  # the worker as a whole has one
        return Worker(Job(recipe, first, end - first, num_envs, check), self._memory_fd, self._deadline)

    def _choose(self) -> Choice:
        choice = snapshot.choose(self._recipe)
        if choice.rung != NONE:
            self._ask(wire.WATCH, lambda _: choice.rung)
        return choice

    def _snapshot(self) -> dict[str, Any]:
        states = self._ask(wire.SNAPSHOT, replies=True)
        return {**self._block.saved(self._side), "envs": list(itertools.chain(*states))}

    def _restore(self, state: dict[str, Any]) -> Array:
        states: list[Any] = state["envs"]
        self._ask(wire.RESTORE, lambda worker: states[worker.first : worker.end])
        self.broken = None
        return self._block.restored(state, self._side)

    def _ask(
        self, command: bytes, message: Callable[[Worker], Any] = lambda _: None, *, replies: bool = False
    ) -> list[Any]:
        """A command that no step waits for; hears every worker out before the first failure is raised."""
        for worker in self._workers:
            worker.tell(command, message(worker))
        answers: list[Any] = []
        failures: list[LudusError] = []
        for worker in self._workers:
            try:
                worker.patient_answer()
                answers.append(worker.message() if replies else None)
            except Lost as lost:
                failures.append(self._failed(lost))
            except LudusError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return answers

    def _all(self, command: bytes) -> tuple[bool, list[Lost]]:
        """Give every worker the command and wait for all of them: did an episode finish, and who is lost?"""
        finished, lost = False, []
        for worker in self._workers:
            worker.tell(command)
        until = time.monotonic() + self._deadline
        for worker in self._workers:
            try:
                finished |= worker.answer(until) == wire.FINISHED
                worker.replacement = False
            except Lost as failure:
                lost.append(failure)
        if lost and not self._restart:
            raise self._failed(lost[0]) from lost[0]
        return finished, lost

    def _bury(self, lost: Lost) -> None:
        """Stop a lost worker; a replacement that never did a step ends the run instead of being replaced again."""
        failure = self._failed(lost)
        if lost.worker.replacement:
            raise failure from lost
        lost.worker.join()
        self.restarts.append(failure.line())

    def _drop_episodes(self, worker: Worker) -> None:
        """The rows of a dead worker: cut where they were last seen, and begun again in a new one."""
        block, rows = self._block, slice(worker.first, worker.end)
        block.final_obs[rows] = block.obs[self._side ^ 1, rows]
        block.reward[rows] = block.raw_reward[rows] = 0.0
        block.terminated[rows], block.truncated[rows], block.continues[rows] = False, True, False
        seeds = [np.random.SeedSequence([int(seed), len(self.restarts)]) for seed in block.seed[rows]]
        block.seed[rows] = [seed.generate_state(1)[0] for seed in seeds]
        self._replace(worker)
        self.broken = np.zeros(self.num_envs, bool) if self.broken is None else self.broken
        self.broken[rows] = True

    def _replace(self, old: Worker) -> None:
        """A new process in the place of a dead one, its environments reset with the block's seeds."""
        worker = self._launch(old.first, old.end, self.num_envs, check=False)
        worker.replacement = True
        self._workers[self._workers.index(old)] = worker
        try:
            worker.ready()
            worker.tell(wire.ATTACH)
            if self._rung not in (None, NONE):
                worker.tell(wire.WATCH, self._rung)
                worker.patient_answer()
            worker.tell(wire.RESET[self._side])
            worker.answer()
        except Lost as lost:
            raise self._failed(lost) from lost

    def _failed(self, lost: Lost) -> EnvironmentFailed:
        lost.worker.kill()
        return lost.error(self._about(lost.worker))

    def _about(self, worker: Worker) -> str:
        """`environment 5 (CartPole-v1, seed 7)`: the one it was working on, or all of them."""
        if not hasattr(self, "_block"):
            return f"environments {worker.first} to {worker.end - 1} ({self._recipe.id})"
        at = int(self._block.cursor[worker.first])
        first, end = (worker.first + at, worker.first + at + 1) if at >= 0 else (worker.first, worker.end)
        seeds = ", ".join(str(seed) for seed in self._block.seed[first:end])
        if end - first == 1:
            return f"environment {first} ({self.id}, seed {seeds})"
        return f"environments {first} to {end - 1} ({self.id}, seeds {seeds})"


def _anonymous_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ludus")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _common(infos: list[EnvInfo]) -> EnvInfo:
    first = infos[0]
    for info in infos:
        if (info.observation_space, info.action_space) != (first.observation_space, first.action_space):
            problem = f"'{first.id}' made environments with different spaces"
            raise ConfigError("environment.id", problem, "fix its spaces with environment.kwargs")
    return first
