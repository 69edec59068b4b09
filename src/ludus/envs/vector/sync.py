"""Environments of this process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ludus.envs.snapshots import NONE, SnapshotChoice, ladder
from ludus.envs.vector import VectorEnv
from ludus.envs.vector.buffers import ActionClipper, VectorArrays
from ludus.envs.vector.stepper import Stepper, require_equal_spaces
from ludus.types import Array, State, StepResult, Tree

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe


class SyncVectorEnv(VectorEnv):
    """Environments in this process, one after the other."""

    backend = "sync"

    def __init__(self, recipe: Recipe, num_envs: int) -> None:
        envs = [recipe.make() for _ in range(num_envs)]
        info = recipe.facts(envs[0])
        require_equal_spaces(envs, info.id)
        super().__init__(info, num_envs)
        self._recipe = recipe
        self._arrays = VectorArrays.build(info, num_envs)
        self._stepper = Stepper(envs, self._arrays, info.id, deadline=recipe.deadline)
        self._clipper = ActionClipper(info.action_space)
        self._side = 0
        self._closed = False

    def reset(self, seeds: Sequence[int]) -> Tree:
        self._arrays.seed[:] = seeds
        self._side ^= 1
        self._stepper.reset(self._side)
        return self._arrays.sides[self._side]

    def step(self, action: Array) -> StepResult:
        arrays = self._arrays
        self._clipper.write(action, arrays.action)
        self._side ^= 1
        finished = self._stepper.step(self._side)
        return arrays.result(self._side, finished)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        return self._stepper.render(index, final)

    def _snapshot(self) -> State:
        return {**self._arrays.saved(self._side), "envs": self._stepper.snapshot()}

    def _restore(self, state: State) -> Tree:
        self._stepper.restore(state["envs"])
        return self._arrays.restored(state, self._side)

    def _choose(self) -> SnapshotChoice:
        choice = ladder.choose(self._recipe)
        if choice.method != NONE:
            self._stepper.watch(ladder.keeper(choice.method, self._recipe))
        return choice

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stepper.close()
