"""Environments of this process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ludus.envs import snapshot
from ludus.envs.snapshots import NONE, Choice
from ludus.envs.vector import StepResult, VectorEnv
from ludus.envs.vector.block import ActionBorder, Block
from ludus.envs.vector.lane import Lane, require_equal_spaces
from ludus.types import Array

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe


class SyncVectorEnv(VectorEnv):
    """One lane in this process."""

    backend = "sync"

    def __init__(self, recipe: Recipe, num_envs: int) -> None:
        envs = [recipe.make() for _ in range(num_envs)]
        info = recipe.facts(envs[0])
        require_equal_spaces(envs, info.id)
        super().__init__(info, num_envs)
        self._recipe = recipe
        self._block = Block.build(info, num_envs)
        self._lane = Lane(envs, self._block, info.id, deadline=recipe.deadline)
        self._border = ActionBorder(info.action_space)
        self._side = 0
        self._closed = False
        self.raw_reward = self._block.raw_reward

    def reset(self, seeds: Sequence[int]) -> Array:
        self._block.seed[:] = seeds
        self._side ^= 1
        self._lane.reset(self._side)
        return self._block.obs[self._side]

    def step(self, action: Array) -> StepResult:
        block = self._block
        self._border.write(action, block.action)
        self._side ^= 1
        finished = self._lane.step(self._side)
        self.continues = block.continues if finished and block.continues.any() else None
        return StepResult(
            block.obs[self._side],
            block.reward,
            block.terminated,
            block.truncated,
            block.final_obs if finished else None,
        )

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        return self._lane.render(index, final)

    def _snapshot(self) -> dict[str, Any]:
        return {**self._block.saved(self._side), "envs": self._lane.snapshot()}

    def _restore(self, state: dict[str, Any]) -> Array:
        self._lane.restore(state["envs"])
        return self._block.restored(state, self._side)

    def _choose(self) -> Choice:
        choice = snapshot.choose(self._recipe)
        if choice.rung != NONE:
            self._lane.watch(snapshot.keeper(choice.rung, self._recipe))
        return choice

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._lane.close()
