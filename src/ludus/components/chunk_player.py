"""Acting by sequences: some actions of a sequence are executed before the next one is chosen.

What was seen last and the actions that wait are memory, for each environment its own: `first` empties both.
Shapes: B environments, O observations, D size of an observation, Q actions of a queue, A size of an action.
"""

from __future__ import annotations

from typing import Protocol

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from ludus.acting.actor import Actor, Outputs
from ludus.acting.behaviour import Strategy
from ludus.acting.facts import Makers
from ludus.acting.uniform import single_bounds
from ludus.networks.encoders.mlp import as_vector, vector_dim
from ludus.types import Array, Tree, to_device, tree_index


class Chooses(Protocol):
    """Chooses the next actions of some environments."""

    def refresh(self) -> None:
        """Take over the current weights."""

    def __call__(self, seen_BOD: Tensor, rng: np.random.Generator | None) -> Tensor:
        """[B, Q, A]; what is random in it comes from `rng`, without one nothing is."""


class ChunkPlayer(Actor):
    """An actor that asks `choose` only where no action waits."""

    recurrent = True

    def __init__(
        self, choose: Chooses, space: gym.Space, *, observations: int, queue: int, action: int, device: torch.device
    ) -> None:
        self.choose, self.space, self.device = choose, space, device
        self.observations, self.queue, self.action = observations, queue, action

    def refresh(self) -> None:
        self.choose.refresh()

    def initial_state(self, batch: int) -> Tree:
        """Nothing seen, nothing waits."""
        seen = torch.zeros(batch, self.observations, vector_dim(self.space), device=self.device)
        queue = torch.zeros(batch, self.queue, self.action, device=self.device)
        return {"seen": seen, "queue": queue, "waiting": torch.zeros(batch, dtype=torch.long, device=self.device)}

    @torch.no_grad()
    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        obs, first = to_device((obs_B, first_B), self.device)
        newest = as_vector(tree_index(obs, None), self.space).transpose(0, 1)
        seen = torch.cat([state["seen"][:, 1:], newest], 1)
        seen = torch.where(first[:, None, None], newest, seen)
        waiting, queue = state["waiting"].masked_fill(first, 0), state["queue"]
        empty = waiting == 0
        if empty.any():
            queue = queue.clone()
            queue[empty] = self.choose(seen[empty], rng)
            waiting = waiting.masked_fill(empty, self.queue)
        action = queue[torch.arange(len(queue), device=self.device), self.queue - waiting]
        known = {"action": action.cpu().numpy()}
        return Outputs(len(first_B), known, known=known), {"seen": seen, "queue": queue, "waiting": waiting - 1}


class FromQueue(Strategy):
    """The output `action` [B, A] as it is; the environment gets it clipped to the bounds of its space."""

    def __init__(self, space: gym.spaces.Box) -> None:
        self.space, self.bounds = space, single_bounds(space)

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        return outputs("action").reshape(outputs.batch, *self.space.shape)

    def for_environment(self, stored: Array) -> Array:
        return np.clip(stored, *self.bounds)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """None: the distribution of the actions is not known."""
        return {}
