"""Networks of off-policy actor-critics: a trunk both share, an ensemble of critics, a head for the policy.

Shapes: T time, B batch, N members of the ensemble, D features, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from ludus.config.schema import Head, Network
from ludus.math.values import at_rows
from ludus.networks.encoders import build_encoder
from ludus.networks.layers import ACTIVATIONS, HIDDEN_GAIN, linear, stack
from ludus.networks.memory import MemoryCore
from ludus.networks.precision import Precision
from ludus.registry import MEMORY
from ludus.types import Tree

WIDTHS = (256, 256)
"""Hidden layers of a head after a trunk without layers of its own."""


class Trunk(nn.Module):
    """encoder -> memory; nothing to learn where observations are vectors and no layers are asked for."""

    def __init__(self, cfg: Network, space: gym.Space, precision: Precision | None = None) -> None:
        super().__init__()
        self.encoder = build_encoder(cfg.encoder, space, precision)
        self.memory: MemoryCore = MEMORY[cfg.memory.name](cfg.memory.config, self.encoder.out_dim)
        self.out_dim = self.memory.out_dim

    @property
    def bare(self) -> bool:
        """Whether the heads get observations as they are."""
        return not any(True for _ in self.parameters())

    def forward(self, obs_TB: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """(features_TBD, memory after the last step)."""
        return self.memory(self.encoder(obs_TB), state, first_TB)


class EnsembleLinear(nn.Module):
    """N linear layers as one batched product; orthogonal weights, zero bias."""

    def __init__(self, members: int, in_dim: int, out_dim: int, gain: float = HIDDEN_GAIN) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(members, 1, out_dim))
        for member in self.weight.data:
            nn.init.orthogonal_(member, gain)

    def forward(self, x_NMD: Tensor) -> Tensor:
        """[N, M, in] -> [N, M, out]"""
        if self.weight.shape[2] == 1:  # a product with one column is slow; this becomes part of what comes before it
            return (x_NMD * self.weight.transpose(1, 2)).sum(-1, keepdim=True) + self.bias
        return torch.baddbmm(self.bias, x_NMD, self.weight)

    def extra_repr(self) -> str:
        """Sizes, for summaries and for the key of compiled updates."""
        return "members={}, in_dim={}, out_dim={}".format(*self.weight.shape)


class Critics(nn.Module):
    """N value networks of (features, action), or of features with one output per action."""

    def __init__(self, cfg: Head, members: int, in_dim: int, outputs: int, *, bare: bool) -> None:
        super().__init__()
        widths = [in_dim, *head_widths(cfg, bare=bare)]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [EnsembleLinear(members, before, after), ACTIVATIONS[cfg.activation]()]
        self.layers = nn.Sequential(*layers, EnsembleLinear(members, widths[-1], outputs, gain=1.0))
        self.members = members

    def forward(self, *inputs_TBD: Tensor) -> Tensor:
        """[N, T, B, outputs] for inputs that are put side by side."""
        x_TBD = torch.cat(inputs_TBD, -1) if len(inputs_TBD) > 1 else inputs_TBD[0]
        x_NMD = x_TBD.reshape(1, -1, x_TBD.shape[-1]).expand(self.members, -1, -1)
        return self.layers(x_NMD).unflatten(1, x_TBD.shape[:2])


class ActorHead(nn.Module):
    """Parameters of the action distribution from features."""

    GAIN = 0.01

    def __init__(self, cfg: Head, in_dim: int, outputs: int, *, bare: bool) -> None:
        super().__init__()
        hidden = head_widths(cfg, bare=bare)
        width = hidden[-1] if hidden else in_dim
        self.layers = nn.Sequential(*stack(in_dim, hidden, cfg.activation), linear(width, outputs, self.GAIN))

    def forward(self, features_TBD: Tensor) -> Tensor:
        """params_TBP"""
        return self.layers(features_TBD)


class Temperature(nn.Module):
    """A positive number, learned as its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(initial)]))

    def forward(self) -> Tensor:
        """Its logarithm, [1]: a loss of it has a gradient however small the number is."""
        return self.log


class ActingPolicy(nn.Module):
    """Trunk and actor head together, in the form that actors and behaviours know policies by."""

    log_std = None

    def __init__(self, trunk: Any, actor: Any) -> None:
        super().__init__()
        self.encoder, self.memory, self.actor = trunk.encoder, trunk.memory, actor.layers

    @property
    def recurrent(self) -> bool:
        """Whether batches must keep sequences whole."""
        return self.memory.recurrent

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.memory.initial_state(batch)

    def forward(self, obs_TB: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, None, Tree]:
        """(params_TBP, no value, memory after the last step)."""
        features_TBD, state = self.memory(self.encoder(obs_TB), state, first_TB)
        return self.actor(features_TBD), None, state


def features_of(nets: Any, batch: Mapping[str, Any], burn_in: int) -> tuple[Tensor, Tensor, Tensor]:
    """What heads see of each step, of the one it bootstraps from, and of that through the target's eyes.

    Only the first learns. A batch with a `state` holds sequences: one pass over T + 1 rows gives all of them.
    """
    obs, first = batch["obs"], batch["first"]
    if "state" not in batch:
        following, _ = nets["trunk"](batch["next_obs"], (), first)
        target, _ = nets["target_trunk"](batch["next_obs"], (), first)
        return nets["trunk"](obs, (), first)[0], following.detach(), target.detach()
    state = target_state = batch["state"]
    if burn_in:
        with torch.no_grad():
            _, state = nets["trunk"](obs[:burn_in], state, first[:burn_in])
            _, target_state = nets["target_trunk"](obs[:burn_in], target_state, first[:burn_in])
    features, _ = nets["trunk"](obs[burn_in:], state, first[burn_in:])
    target, _ = nets["target_trunk"](obs[burn_in:], target_state, first[burn_in:])
    return features[:-1], at_rows(features.detach(), batch["row"]), at_rows(target.detach(), batch["row"])


def head_widths(cfg: Head, *, bare: bool) -> tuple[int, ...]:
    """Hidden layers of a head: those asked for, else two after a bare trunk and none after another."""
    return cfg.hidden_dims if cfg.hidden_dims is not None else (WIDTHS if bare else ())
