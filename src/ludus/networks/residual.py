"""What minGRU, Mamba and Mamba-2 share: residual blocks x + mixer(norm(x)) over time."""

from __future__ import annotations

import math
from typing import Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.kernels.normalization import rms_norm
from ludus.networks.encoders.mlp import linear
from ludus.networks.memory import MemoryCore
from ludus.types import Tree

DELTA_RANGE = (1e-3, 1e-1)
"""Step sizes at the start, drawn log-uniformly."""


class ResidualConfig(Model):
    """Residual blocks."""

    hidden_dim: PositiveInt = 64
    """Width of the residual stream."""
    num_layers: PositiveInt = 1
    """Blocks."""


class StateSpaceConfig(ResidualConfig):
    """Blocks around a state-space model."""

    state_dim: PositiveInt = 16
    """States per channel."""
    conv_width: PositiveInt = 4
    """Taps of the causal convolution."""
    expand: float = Field(default=2.0, gt=0)
    """Channels of a block in units of `hidden_dim`."""

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return max(1, int(self.expand * self.hidden_dim))


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension with a learned weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return rms_norm(x, self.weight)


class ResidualCore(MemoryCore):
    """Input projection, blocks x + mixer(norm(x)), norm."""

    Mixer: type[Any]
    """The part of a block that looks back in time: a module with `initial_state` and `forward` of a memory core."""

    def __init__(self, cfg: ResidualConfig, in_dim: int) -> None:
        super().__init__()
        self.out_dim = cfg.hidden_dim
        self.project = linear(in_dim, cfg.hidden_dim, gain=1.0)
        self.norms: Any = nn.ModuleList(RMSNorm(cfg.hidden_dim) for _ in range(cfg.num_layers))
        self.mixers: Any = nn.ModuleList(self.Mixer(cfg) for _ in range(cfg.num_layers))
        self.norm = RMSNorm(cfg.hidden_dim)

    def initial_state(self, batch: int) -> Tree:
        """The state of each block's mixer."""
        return tuple(mixer.initial_state(batch) for mixer in self.mixers)

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """Outputs [T, B, H] and the state after the last step."""
        x_TBH, last = self.project(x_TBD), []
        for norm, mixer, start in zip(self.norms, self.mixers, state, strict=True):
            y_TBH, end = mixer(norm(x_TBH), start, first_TB)
            x_TBH = x_TBH + y_TBH
            last.append(end)
        return self.norm(x_TBH), tuple(last)


def first_step_sizes(count: int) -> Tensor:
    """Numbers that softplus turns into step sizes drawn from `DELTA_RANGE`."""
    low, high = (math.log(bound) for bound in DELTA_RANGE)
    start = torch.empty(count).uniform_(low, high).exp()
    return start + torch.log(-torch.expm1(-start))
