"""The network of Q-learning: trunk and one head with the values of all discrete actions."""

from __future__ import annotations

import gymnasium as gym
from torch import Tensor, nn

from ludus.config.schema import Network
from ludus.networks.heads import QHead
from ludus.networks.precision import Precision
from ludus.networks.trunk import Trunk
from ludus.types import Spaces, Tree


class QValues(nn.Module):
    """Q [T, B, A], or with `atoms` their logits [T, B, A, Z], for every step of [T, B] observations."""

    parts = {"trunk": ("trunk",), "head": ("head",)}
    """Names of the submodules of each part whose gradient norm is reported."""

    def __init__(
        self,
        cfg: Network,
        spaces: Spaces,
        precision: Precision | None = None,
        *,
        dueling: bool,
        atoms: int,
        noisy: bool,
    ) -> None:
        super().__init__()
        assert isinstance(spaces.action, gym.spaces.Discrete)
        self.trunk = Trunk(cfg, spaces.observation, precision)
        actions = int(spaces.action.n)
        self.head = QHead(cfg.critic, self.trunk, actions, atoms=atoms, dueling=dueling, noisy=noisy)

    @property
    def recurrent(self) -> bool:
        """Whether it must be shown sequences."""
        return self.trunk.recurrent

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.trunk.initial_state(batch)

    def forward(self, obs_TB: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """(values, state after the last step)."""
        features_TBD, state = self.trunk(obs_TB, state, first_TB)
        return self.head(features_TBD), state
