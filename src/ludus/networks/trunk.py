"""The part every network begins with: encoder -> memory core. All algorithms build it here.

Shapes: T time, B batch, D features.
"""

from __future__ import annotations

from collections.abc import Mapping

import gymnasium as gym
import torch
from torch import Tensor, nn

from ludus.config.schema import Network
from ludus.math.values import at_rows
from ludus.networks.encoders import build_encoder
from ludus.networks.memory import MemoryCore
from ludus.networks.precision import Precision
from ludus.registry import MEMORY
from ludus.types import Tree, tree_index


class Trunk(nn.Module):
    """Turns observations into the features that heads read; its parameters are `encoder.*` and `memory.*`."""

    def __init__(self, cfg: Network, space: gym.Space, precision: Precision | None = None) -> None:
        super().__init__()
        self.core_name = cfg.memory.name
        """Registered name of the memory core."""
        self.encoder = build_encoder(cfg.encoder, space, precision)
        self.memory: MemoryCore = MEMORY[cfg.memory.name](cfg.memory.config, self.encoder.out_dim)
        self.out_dim = self.memory.out_dim

    @property
    def recurrent(self) -> bool:
        """Whether batches must keep sequences whole."""
        return self.memory.recurrent

    @property
    def heavy(self) -> bool:
        """Whether a forward pass is expensive enough that learning should reuse what acting computed."""
        return self.encoder.heavy

    @property
    def bare(self) -> bool:
        """Whether heads read observations, or a part of them, that went through no layer."""
        return not self.recurrent and self.encoder.bare

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.memory.initial_state(batch)

    def forward(self, obs_TB: Tree, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """(features_TBD, memory after the last step)."""
        return self.memory(self.encoder(obs_TB), state, first_TB)


def features_of(
    trunk: Trunk, target_trunk: Trunk, batch: Mapping[str, Tree], burn_in: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Features of each step, of the step it bootstraps from, and of the latter by the target trunk.

    Only the first carry a gradient. A batch with a `state` holds sequences: one pass over T + 1 rows gives all of them.
    """
    obs, first = batch["obs"], batch["first"]
    if "state" not in batch:
        following, _ = trunk(batch["next_obs"], (), first)
        target, _ = target_trunk(batch["next_obs"], (), first)
        return trunk(obs, (), first)[0], following.detach(), target.detach()
    state = target_state = batch["state"]
    if burn_in:
        seen = tree_index(obs, slice(burn_in))
        with torch.no_grad():
            _, state = trunk(seen, state, first[:burn_in])
            _, target_state = target_trunk(seen, target_state, first[:burn_in])
    obs, first = tree_index((obs, first), slice(burn_in, None))
    features, _ = trunk(obs, state, first)
    target, _ = target_trunk(obs, target_state, first)
    return features[:-1], at_rows(features.detach(), batch["row"]), at_rows(target.detach(), batch["row"])
