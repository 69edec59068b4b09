"""Mamba-2 (Dao & Gu 2024, arXiv:2405.21060): heads with one decay each, computed as matrix products over chunks.

Reading order: DualMixer (figure 6 of the paper) -> networks.state_space (the blocks around it) -> math.dual. A
reset sets the decay of the state to 0 and hides earlier inputs from the convolution.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import linear as affine
from torch.nn.functional import softplus

from ludus.kernels.convolution import silu_convolution
from ludus.kernels.normalization import gated, inverse_rms, rms_norm_numpy, silu_numpy
from ludus.kernels.ssd import dual_scan
from ludus.networks.memory import Step, Take
from ludus.networks.state_space import Mixer, StateSpaceConfig, StateSpaceCore, first_step_sizes
from ludus.registry import MEMORY
from ludus.types import Array, Tree

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
        if self.channels % self.channels_per_head:
            raise ValueError(f"head_dim {self.head_dim} does not divide the {self.channels} channels of a block")
        return self


class DualMixer(Mixer):
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
        new = self.skip.new_zeros
        return new(batch, self.taps - 1, len(self.conv_bias)), new(batch, self.heads, self.states, self.head)

    def forward(self, x_TBH: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
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

    def numpy_step(self, take: Take) -> Step:
        w_in, w_out, taps = take(self.input.weight.t()), take(self.output.weight.t()), take(self.conv_weight.t())
        conv_bias, delta_bias, log_rate, skip, norm = (
            take(p) for p in (self.conv_bias, self.delta_bias, self.log_rate, self.skip, self.norm)
        )
        E, N, mixed, shape = self.channels, self.states, len(self.conv_bias), (-1, self.heads, 1, self.head)

        def step(x_BH: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
            past, h_BMNP = state[0] * ~first_B[:, None, None], state[1] * ~first_B[:, None, None, None]
            parts = x_BH @ w_in
            window = np.concatenate([past, parts[:, None, E : E + mixed]], 1)
            now = silu_numpy((window * taps).sum(1) + conv_bias)
            x_BM1P, B_BN, C_BN = now[:, :E].reshape(shape), now[:, E : E + N], now[:, E + N :]
            delta = np.logaddexp(0.0, parts[:, E + mixed :] + delta_bias)[:, :, None, None]
            h_BMNP = np.exp(delta * -np.exp(log_rate)[:, None, None]) * h_BMNP
            h_BMNP += delta * x_BM1P * B_BN[:, None, :, None]
            y = C_BN[:, None, None] @ h_BMNP + skip[:, None, None] * x_BM1P
            y = y.reshape(len(y), E) * silu_numpy(parts[:, :E])
            return rms_norm_numpy(y, norm) @ w_out, (window[:, 1:], h_BMNP)

        return step


@MEMORY.register("mamba2")
class Mamba2(StateSpaceCore):
    """Blocks around the dual form."""

    Config, Mixer = Mamba2Config, DualMixer
