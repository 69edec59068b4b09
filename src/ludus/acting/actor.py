"""Actors compute the outputs of a network for one step of all environments; this one runs the modules themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ludus.networks.critics import Critics
from ludus.networks.policy import Trunk
from ludus.types import Array, Tree, to_device, tree_index


class Outputs:
    """What the heads of a network say about one step of `batch` environments; a head is computed when it is read."""

    __slots__ = ("_features", "_known", "_read", "batch", "heads")

    def __init__(
        self,
        batch: int,
        heads: Collection[str] = (),
        features: Array | Tensor | None = None,
        read: Callable[..., Array] | None = None,
        known: dict[str, Array] | None = None,
    ) -> None:
        self.batch, self.heads, self._features, self._read = batch, heads, features, read
        self._known = {} if known is None else known

    def __call__(self, head: str, *inputs: Array) -> Array:
        """Output [B, ...] of a head; some critics take an action [B, A] beside the features."""
        if head in self._known and not inputs:
            return self._known[head]
        assert self._read is not None, "an actor has to look before it is asked"
        found = self._read(self._features, head, *inputs)
        if not inputs:
            self._known[head] = found
        return found


class Actor(Protocol):
    """Computes the outputs of a trunk and its heads."""

    recurrent: bool
    """Whether the state matters."""

    def refresh(self) -> None:
        """Take over the current weights."""

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""

    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        """(outputs of this step, memory after it); what is random in it comes from `rng`, without one nothing is."""

    def remember(self, state: Tree, action_B: Array) -> Tree:
        """The memory after the action that was chosen, as it is stored; few actors keep it."""
        return state


class TorchActor(Actor):
    """Acts through the modules themselves."""

    def __init__(self, trunk: Trunk, heads: Mapping[str, nn.Module]) -> None:
        self.trunk, self.heads, self.recurrent = trunk, heads, trunk.recurrent
        self.device = next(next(iter(heads.values())).parameters()).device

    def initial_state(self, batch: int) -> Tree:
        """Memory of the trunk."""
        return self.trunk.initial_state(batch)

    def refresh(self) -> None:
        """Nothing to copy."""

    @torch.no_grad()
    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        obs = tree_index(to_device(obs_B, self.device), None)
        first = torch.as_tensor(first_B, device=self.device).unsqueeze(0)
        features, state = self.trunk(obs, state, first)
        return Outputs(len(first_B), self.heads, features, self.read), state

    @torch.no_grad()
    def read(self, features_1BD: Tensor, head: str, *inputs: Array) -> Array:
        """The output [B, ...] (of an ensemble: [N, B, ...]) of a head for one step."""
        more = [torch.as_tensor(x, device=self.device).unsqueeze(0) for x in inputs]
        out = self.heads[head](features_1BD, *more)
        return out.squeeze(1 if isinstance(self.heads[head], Critics) else 0).cpu().numpy()
