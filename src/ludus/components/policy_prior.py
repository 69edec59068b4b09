"""The policy beside a planner: it proposes sequences of actions, and says what to do after the horizon.

Shapes: Z latent, A action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ludus.components.normed_mlp import Kind, NormedMLP
from ludus.config.model import Model

LOG_STD = (-10.0, 2.0)


class PriorConfig(Model):
    """Which policy."""

    policy: Literal["gaussian", "deterministic"] = "gaussian"
    """tanh of a Gaussian, or of one action with bounded noise, as in TD3."""
    policy_noise: float = Field(default=0.05, ge=0)
    """Deviation of the deterministic policy's noise."""
    policy_noise_clip: float = Field(default=0.3, ge=0)
    """Largest noise of the deterministic policy."""


def make_prior(cfg: PriorConfig, latent: int, action_dim: int, units: int, hidden: Sequence[Kind]) -> nn.Module:
    """The policy of a config."""
    if cfg.policy == "gaussian":
        return GaussianPrior(latent, action_dim, units, hidden)
    noise = {"std": cfg.policy_noise, "clip": cfg.policy_noise_clip}
    return DeterministicPrior(latent, action_dim, units, hidden, **noise)


class GaussianPrior(nn.Module):
    """tanh of a Gaussian (TD-MPC2)."""

    def __init__(self, latent: int, action_dim: int, units: int, hidden: Sequence[Kind]) -> None:
        super().__init__()
        self.network = NormedMLP(latent, units, hidden, 2 * action_dim, "linear")

    def forward(self, z: Tensor, noise_A: Tensor) -> tuple[Tensor, Tensor]:
        """(action [..., A], entropy [...]) by standard normal noise.

        The entropy is that of the sample before tanh, times the number of components: the reference divides what tanh
        adds out again.
        """
        mean, raw = self.network(z).chunk(2, -1)
        low, high = LOG_STD
        log_std = low + 0.5 * (high - low) * (raw.tanh() + 1)
        log_density = -(0.5 * noise_A.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)
        return (mean + log_std.exp() * noise_A).tanh(), -noise_A.shape[-1] * log_density


class DeterministicPrior(nn.Module):
    """tanh of one action and bounded noise (TD-MPC, after TD3)."""

    def __init__(
        self, latent: int, action_dim: int, units: int, hidden: Sequence[Kind], *, std: float, clip: float
    ) -> None:
        super().__init__()
        self.network, self.std, self.clip = NormedMLP(latent, units, hidden, action_dim, "linear"), std, clip

    def forward(self, z: Tensor, noise_A: Tensor) -> tuple[Tensor, Tensor]:
        """(action [..., A], zeros [...] for the entropy that it does not have)."""
        smooth = (noise_A * self.std).clamp(-self.clip, self.clip)
        wide = self.network(z).tanh() + smooth
        action = wide + (wide.clamp(-1.0, 1.0) - wide).detach()  # at the bounds there is a gradient too
        return action, torch.zeros_like(action[..., 0])
