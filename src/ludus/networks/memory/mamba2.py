"""Mamba-2 (Dao & Gu 2024, arXiv:2405.21060): heads with one decay each, computed as matrix products over chunks.

Reading order: DualMixer (figure 6 of the paper) -> networks.residual (the blocks around it) -> kernels.ssd. A
reset sets the decay of the state to 0 and hides earlier inputs from the convolution.
"""

from __future__ import annotations

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import linear as affine
from torch.nn.functional import softplus

from ludus.kernels.convolution import silu_convolution
from ludus.kernels.normalization import gated, inverse_rms
from ludus.kernels.ssd import dual_scan
from ludus.networks.residual import ResidualCore, StateSpaceConfig, first_step_sizes
from ludus.registry import MEMORY
from ludus.types import Tree

RATE_RANGE = (1.0, 16.0)
"""Rates of decay at the start, drawn uniformly."""


class Mamba2Config(StateSpaceConfig):
    """Residual blocks of Mamba-2."""

    head_dim: PositiveInt | None = None
    """Channels that share one decay; the default is the largest divisor of the channels of a block up to 64."""

    @property
    def channels_per_head(self) -> int:
        """`head_dim` or its default."""
        return self.head_dim or max(width for width in range(1, 65) if self.channels % width == 0)

    @model_validator(mode="after")
    def whole_heads(self) -> Mamba2Config:
        """Refuse heads that do not divide the channels."""
        if self.channels % self.channels_per_head:
            raise ValueError(f"head_dim {self.head_dim} does not divide the {self.channels} channels of a block")
        return self


class DualMixer(nn.Module):
    """One projection for everything, convolution of x, B and C, the dual form, a gated norm."""

    def __init__(self, cfg: Mamba2Config) -> None:
        super().__init__()
        self.channels, self.states, self.taps = cfg.channels, cfg.state_dim, cfg.conv_width
        self.head = cfg.channels_per_head
        self.heads = self.channels // self.head
        mixed = self.channels + 2 * self.states
        self.input = nn.Linear(cfg.hidden_dim, self.channels + mixed + self.heads, bias=False)
        bound = self.taps**-0.5
        self.conv_weight = nn.Parameter(torch.empty(mixed, self.taps).uniform_(-bound, bound))
        self.conv_bias = nn.Parameter(torch.empty(mixed).uniform_(-bound, bound))
        self.delta_bias = nn.Parameter(first_step_sizes(self.heads))
        self.log_rate = nn.Parameter(torch.empty(self.heads).uniform_(*RATE_RANGE).log())
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.norm = nn.Parameter(torch.ones(self.channels))
        self.output = nn.Linear(self.channels, cfg.hidden_dim, bias=False)

    def initial_state(self, batch: int) -> Tree:
        """(newest inputs of the convolution [B, K - 1, X], states [B, M, N, P])."""
        new = self.skip.new_zeros
        return new(batch, self.taps - 1, len(self.conv_bias)), new(batch, self.heads, self.states, self.head)

    def forward(self, x_TBH: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """Outputs [T, B, H] and the state after the last step."""
        past, h_BMNP = state
        gate_TBE, mixed, delta_TBM = self.input(x_TBH).split([self.channels, len(self.conv_bias), self.heads], -1)
        mixed, past = silu_convolution(mixed, self.conv_weight, self.conv_bias, first_TB, past)
        x_TBE, B_TBN, C_TBN = mixed.split([self.channels, self.states, self.states], -1)
        delta_TBM = softplus(delta_TBM + self.delta_bias)
        decay_TBM = -torch.exp(self.log_rate) * delta_TBM
        x_TBMP = x_TBE.unflatten(-1, (self.heads, self.head))
        y_TBMP, h_BMNP = dual_scan(x_TBMP, delta_TBM, decay_TBM, B_TBN, C_TBN, self.skip, first_TB, h_BMNP)
        gated_TBE = gated(y_TBMP.flatten(2), gate_TBE)
        # the norm's weight goes into the projection, its division behind it, where there are fewer channels
        return affine(gated_TBE, self.output.weight * self.norm) * inverse_rms(gated_TBE), (past, h_BMNP)


@MEMORY.register("mamba2")
class Mamba2(ResidualCore):
    """Blocks around the dual form."""

    Config, Mixer = Mamba2Config, DualMixer
