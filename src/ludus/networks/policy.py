"""The network of policy gradients: encoder -> memory core -> actor head and, where there is one, critic head.

Reading order: Policy -> Trunk -> DenseHead. Shapes: T time, B batch, D features, P distribution parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import gymnasium as gym
import torch
from torch import Tensor, nn

from ludus.config.schema import Head, Network
from ludus.math.distributions import distribution_for
from ludus.networks.encoders import build_encoder
from ludus.networks.encoders.mlp import hidden_layers, linear
from ludus.networks.memory import MemoryCore
from ludus.networks.precision import Precision
from ludus.registry import MEMORY
from ludus.types import Spaces, Tree

NARROW = (64, 64)
"""Hidden layers of a head on a bare trunk."""
ACTOR_GAIN, VALUE_GAIN = 0.01, 1.0

Layer = Callable[[int, int], nn.Module]


class PolicyNetwork(nn.Module):
    """Distribution parameters and, with `value`, a state value for every step of [T, B] observations."""

    parts = {"trunk": ("trunk",), "actor_head": ("actor",), "critic_head": ("critic",)}
    """Names of the submodules of each part whose gradient norm is reported."""
    memory_names = ("trunk.memory",)
    """Prefixes of the memory core's parameters, which may have a learning rate of their own."""

    def __init__(self, cfg: Network, spaces: Spaces, *, value: bool = True, precision: Precision | None = None) -> None:
        super().__init__()
        self.distribution = distribution_for(spaces.action)
        self.trunk = Trunk(cfg, spaces.observation, precision)
        self.recurrent = self.trunk.recurrent
        gaussian = isinstance(spaces.action, gym.spaces.Box)
        means = self.distribution.param_dim // 2 if gaussian else self.distribution.param_dim
        self.actor = ActorHead(cfg.actor, self.trunk, means, default=NARROW, log_std=gaussian)
        self.critic = DenseHead(cfg.critic, self.trunk, 1) if value else None

    @property
    def heads(self) -> dict[str, nn.Module]:
        """The heads by name, for acting."""
        return {"actor": self.actor, **({} if self.critic is None else {"critic": self.critic})}

    def forward(self, obs_TB: Tree, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tensor | None, Tree]:
        """(params_TBP, value_TB, memory after the last step)."""
        features_TBD, state = self.trunk(obs_TB, state, first_TB)
        params_TBP = self.actor(features_TBD)
        value_TB = self.critic(features_TBD).squeeze(-1) if self.critic is not None else None
        return params_TBP, value_TB, state


class Trunk(nn.Module):
    """Turns observations into the features that heads read; its parameters are `encoder.*` and `memory.*`."""

    def __init__(self, cfg: Network, space: gym.Space, precision: Precision | None = None) -> None:
        super().__init__()
        self.core_name = cfg.memory.name
        """Registered name of the memory core."""
        self.encoder = build_encoder(cfg.encoder, space, precision)
        self.memory: MemoryCore = MEMORY[cfg.memory.name](cfg.memory.config, self.encoder.out_dim)
        self.out_dim = self.memory.out_dim
        self.recurrent = self.memory.recurrent
        """Whether batches must keep sequences whole."""
        self.heavy = self.encoder.heavy
        """Whether a forward pass is expensive enough that learning should reuse what acting computed."""
        self.bare = not self.recurrent and self.encoder.bare
        """Whether heads read observations, or a part of them, that went through no layer."""

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.memory.initial_state(batch)

    def forward(self, obs_TB: Tree, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """(features_TBD, memory after the last step)."""
        return self.memory(self.encoder(obs_TB), state, first_TB)


class DenseHead(nn.Sequential):
    """Hidden layers and a linear output of the given gain; `layer` replaces all of its linear layers."""

    def __init__(
        self,
        cfg: Head,
        trunk: Trunk,
        outputs: int,
        *,
        gain: float = VALUE_GAIN,
        default: tuple[int, ...] = NARROW,
        layer: Layer | None = None,
    ) -> None:
        widths = hidden_widths(cfg, trunk, default)
        output = layer or partial(linear, gain=gain)
        super().__init__(*hidden_layers(widths, cfg.activation, layer or linear), output(widths[-1], outputs))


class ActorHead(DenseHead):
    """Parameters of the action distribution; with `log_std` its outputs are means and the deviations are learned."""

    def __init__(
        self, cfg: Head, trunk: Trunk, outputs: int, *, default: tuple[int, ...], log_std: bool = False
    ) -> None:
        super().__init__(cfg, trunk, outputs, gain=ACTOR_GAIN, default=default)
        self.log_std = nn.Parameter(torch.zeros(outputs)) if log_std else None

    def forward(self, features_TBD: Tensor) -> Tensor:
        """params_TBP"""
        out_TBP = super().forward(features_TBD)
        return out_TBP if self.log_std is None else torch.cat([out_TBP, self.log_std.expand_as(out_TBP)], -1)


def hidden_widths(cfg: Head, trunk: Trunk, default: tuple[int, ...], extra: int = 0) -> tuple[int, ...]:
    """Inputs and hidden layers that the config asks for; if it is silent, `default` on a bare trunk, else none."""
    hidden = cfg.hidden_dims if cfg.hidden_dims is not None else (default if trunk.bare else ())
    return trunk.out_dim + extra, *hidden
