"""The network of policy gradients: trunk, actor head and, where there is one, critic head."""

from __future__ import annotations

import gymnasium as gym
from torch import Tensor, nn

from ludus.config.schema import Network
from ludus.math.distributions import distribution_for
from ludus.networks.heads import NARROW, ActorHead, DenseHead
from ludus.networks.precision import Precision
from ludus.networks.trunk import Trunk
from ludus.types import Spaces, Tree


class Policy(nn.Module):
    """Distribution parameters and, with `value`, a state value for every step of [T, B] observations."""

    parts = {"trunk": ("trunk",), "actor_head": ("actor",), "critic_head": ("critic",)}
    """Names of the submodules of each part whose gradient norm is reported."""
    memory_names = ("trunk.memory",)
    """Prefixes of the memory core's parameters, which may have a learning rate of their own."""

    def __init__(self, cfg: Network, spaces: Spaces, *, value: bool = True, precision: Precision | None = None) -> None:
        super().__init__()
        self.distribution = distribution_for(spaces.action)
        self.trunk = Trunk(cfg, spaces.observation, precision)
        gaussian = isinstance(spaces.action, gym.spaces.Box)
        means = self.distribution.param_dim // 2 if gaussian else self.distribution.param_dim
        self.actor = ActorHead(cfg.actor, self.trunk, means, default=NARROW, log_std=gaussian)
        self.critic = DenseHead(cfg.critic, self.trunk, 1) if value else None

    @property
    def heads(self) -> dict[str, nn.Module]:
        """The heads by name, for acting."""
        return {"actor": self.actor, **({} if self.critic is None else {"critic": self.critic})}

    @property
    def recurrent(self) -> bool:
        """Whether minibatches must keep sequences whole."""
        return self.trunk.recurrent

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.trunk.initial_state(batch)

    def forward(self, obs_TB: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tensor | None, Tree]:
        """(params_TBP, value_TB, state after the last step)."""
        features_TBD, state = self.trunk(obs_TB, state, first_TB)
        params_TBP = self.actor(features_TBD)
        value_TB = self.critic(features_TBD).squeeze(-1) if self.critic is not None else None
        return params_TBP, value_TB, state
