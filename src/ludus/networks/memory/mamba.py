"""Mamba (Gu & Dao 2023, arXiv:2312.00752): a linear recurrence whose rates depend on the input.

Reading order: SelectiveMixer (figure 3 of the paper) -> networks.residual (the blocks around it) ->
kernels.selective_scan. A reset sets the decay of the state to 0 and hides earlier inputs from the convolution. States
are [B, N, E].
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear as affine
from torch.nn.functional import softplus

from ludus.kernels.convolution import silu_convolution
from ludus.kernels.normalization import gated
from ludus.kernels.selective_scan import selective_scan
from ludus.networks.residual import ResidualCore, StateSpaceConfig, first_step_sizes
from ludus.registry import MEMORY
from ludus.types import Tree


class MambaConfig(StateSpaceConfig):
    """Residual blocks of Mamba."""

    rate: float = Field(default=1.0, gt=0)
    """States of a channel begin to decay at 1 to `state_dim` times this; below 1 for tasks with long memories."""


class SelectiveMixer(nn.Module):
    """Convolution and selective scan of one half of the channels, gated by the other."""

    def __init__(self, cfg: MambaConfig) -> None:
        super().__init__()
        self.channels = E = cfg.channels
        self.rank, self.states, self.taps = math.ceil(cfg.hidden_dim / 16), cfg.state_dim, cfg.conv_width
        self.input = nn.Linear(cfg.hidden_dim, 2 * E, bias=False)
        bound = self.taps**-0.5
        self.conv_weight = nn.Parameter(torch.empty(E, self.taps).uniform_(-bound, bound))
        self.conv_bias = nn.Parameter(torch.empty(E).uniform_(-bound, bound))
        self.select = nn.Linear(E, self.rank + 2 * self.states, bias=False)
        self.delta = nn.Linear(self.rank, E)
        nn.init.uniform_(self.delta.weight, -(self.rank**-0.5), self.rank**-0.5)
        self.delta.bias.data = first_step_sizes(E)
        self.log_rate = nn.Parameter(torch.log(cfg.rate * torch.arange(1.0, self.states + 1)).unsqueeze(1).repeat(1, E))
        self.skip = nn.Parameter(torch.ones(E))
        self.output = nn.Linear(E, cfg.hidden_dim, bias=False)

    def initial_state(self, batch: int) -> Tree:
        """(newest inputs of the convolution [B, K - 1, E], states [B, N, E])."""
        new = self.skip.new_zeros
        return new(batch, self.taps - 1, self.channels), new(batch, self.states, self.channels)

    def forward(self, x_TBH: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """Outputs [T, B, H] and the state after the last step."""
        past_BKE, h_BNE = state
        x_TBE, gate_TBE = self.input(x_TBH).chunk(2, -1)
        x_TBE, past_BKE = silu_convolution(x_TBE, self.conv_weight, self.conv_bias, first_TB, past_BKE)
        delta_TBR, B_TBN, C_TBN = self.select(x_TBE).split([self.rank, self.states, self.states], -1)
        delta_TBE = softplus(affine(delta_TBR, self.delta.weight, self.delta.bias))
        rate_NE = -torch.exp(self.log_rate)
        y_TBE, h_BNE = selective_scan(x_TBE, delta_TBE, rate_NE, B_TBN, C_TBN, ~first_TB, h_BNE)
        return self.output(gated(y_TBE + self.skip * x_TBE, gate_TBE)), (past_BKE, h_BNE)


@MEMORY.register("mamba")
class Mamba(ResidualCore):
    """Blocks around the selective scan."""

    Config, Mixer = MambaConfig, SelectiveMixer
