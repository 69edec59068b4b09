"""The network every policy-gradient algorithm acts with: encoder -> memory -> actor and critic heads."""

from __future__ import annotations

import gymnasium as gym
import torch
from torch import Tensor, nn

from ludus.config.schema import Head, Network
from ludus.math.distributions import distribution_for
from ludus.networks.encoders import build_encoder
from ludus.networks.layers import linear, stack
from ludus.networks.memory import MemoryCore
from ludus.networks.precision import Precision
from ludus.registry import MEMORY
from ludus.types import Spaces, Tree

ACTOR_GAIN, CRITIC_GAIN = 0.01, 1.0


class Policy(nn.Module):
    """Distribution parameters and, with `value`, a state value for every step of [T, B] observations."""

    def __init__(self, cfg: Network, spaces: Spaces, *, value: bool = True, precision: Precision | None = None) -> None:
        super().__init__()
        self.distribution = distribution_for(spaces.action)
        self.encoder = build_encoder(cfg.encoder, spaces.observation, precision)
        self.memory: MemoryCore = MEMORY[cfg.memory.name](cfg.memory.config, self.encoder.out_dim)
        bare = not self.memory.recurrent and not any(True for _ in self.encoder.parameters())
        outputs = action_outputs(spaces.action, self.distribution.param_dim)
        self.actor = self._head(cfg.actor, outputs, ACTOR_GAIN, bare)
        self.critic = self._head(cfg.critic, 1, CRITIC_GAIN, bare) if value else None
        self.log_std = nn.Parameter(torch.zeros(outputs)) if isinstance(spaces.action, gym.spaces.Box) else None

    def _head(self, cfg: Head, outputs: int, gain: float, bare: bool) -> nn.Sequential:
        hidden = cfg.hidden_dims if cfg.hidden_dims is not None else ((64, 64) if bare else ())
        width = hidden[-1] if hidden else self.memory.out_dim
        return nn.Sequential(*stack(self.memory.out_dim, hidden, cfg.activation), linear(width, outputs, gain))

    @property
    def recurrent(self) -> bool:
        """Whether minibatches must keep sequences whole."""
        return self.memory.recurrent

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.memory.initial_state(batch)

    def forward(self, obs_TB: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tensor | None, Tree]:
        """(params_TBP, value_TB, state after the last step)."""
        features_TBH, state = self.memory(self.encoder(obs_TB), state, first_TB)
        params_TBP = self.actor(features_TBH)
        if self.log_std is not None:
            params_TBP = torch.cat([params_TBP, self.log_std.expand_as(params_TBP)], -1)
        value_TB = self.critic(features_TBH).squeeze(-1) if self.critic is not None else None
        return params_TBP, value_TB, state


def action_outputs(space: gym.Space, param_dim: int) -> int:
    """Outputs of the actor head; a Gaussian's deviations are free parameters, not outputs."""
    return param_dim // 2 if isinstance(space, gym.spaces.Box) else param_dim
