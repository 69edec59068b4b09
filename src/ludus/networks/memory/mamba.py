"""Mamba (Gu & Dao 2023, arXiv:2312.00752): a linear recurrence whose rates depend on the input.

Reading order: MambaConfig -> Mamba (project, residual blocks, norm) -> _Mixer (figure 3 of the paper). A reset sets the
decay of the state to 0 and hides earlier inputs from the convolution. Layouts follow `math.scan`: states [B, N, E].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import linear as affine
from torch.nn.functional import silu, softplus

from ludus.config.model import Model
from ludus.math.convolution import causal_convolution
from ludus.math.normalization import rms_norm_numpy, silu_numpy
from ludus.math.scan import selective_scan
from ludus.networks.layers import RMSNorm, linear
from ludus.networks.memory import MemoryCore, Step, Take
from ludus.registry import MEMORY
from ludus.types import Array, Tree

DELTA_RANGE = (1e-3, 1e-1)
"""Step sizes at the start, drawn log-uniformly."""


class MambaConfig(Model):
    """Residual blocks of Mamba."""

    hidden_dim: PositiveInt = 64
    """Width of the residual stream."""
    num_layers: PositiveInt = 1
    """Blocks."""
    state_dim: PositiveInt = 16
    """States per channel."""
    conv_width: PositiveInt = 4
    """Taps of the causal convolution."""
    expand: float = Field(default=2.0, gt=0)
    """Channels of a block in units of `hidden_dim`."""


@MEMORY.register("mamba")
class Mamba(MemoryCore):
    """Input projection, blocks x + mixer(norm(x)), norm."""

    Config = MambaConfig

    def __init__(self, cfg: MambaConfig, in_dim: int) -> None:
        super().__init__()
        self.out_dim = cfg.hidden_dim
        self.project = linear(in_dim, cfg.hidden_dim, gain=1.0)
        self.norms: Any = nn.ModuleList(RMSNorm(cfg.hidden_dim) for _ in range(cfg.num_layers))
        self.mixers: Any = nn.ModuleList(_Mixer(cfg) for _ in range(cfg.num_layers))
        self.norm = RMSNorm(cfg.hidden_dim)

    def initial_state(self, batch: int) -> Tree:
        return tuple(mixer.initial_state(batch) for mixer in self.mixers)

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        x_TBH, last = self.project(x_TBD), []
        for norm, mixer, start in zip(self.norms, self.mixers, state, strict=True):
            y_TBH, end = mixer(norm(x_TBH), start, first_TB)
            x_TBH = x_TBH + y_TBH
            last.append(end)
        return self.norm(x_TBH), tuple(last)

    def numpy_step(self, take: Take) -> Step:
        project, bias, scale = take(self.project.weight.t()), take(self.project.bias), take(self.norm.weight)
        layers = [(take(n.weight), m.numpy_step(take)) for n, m in zip(self.norms, self.mixers, strict=True)]

        def step(x_BD: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
            x, last = x_BD @ project + bias, []
            for (weight, mixer), start in zip(layers, state, strict=True):
                y, end = mixer(rms_norm_numpy(x, weight), start, first_B)
                x = x + y
                last.append(end)
            return rms_norm_numpy(x, scale), tuple(last)

        return step


class _Mixer(nn.Module):
    """Convolution and selective scan of one half of the channels, gated by the other."""

    def __init__(self, cfg: MambaConfig) -> None:
        super().__init__()
        self.channels = E = max(1, int(cfg.expand * cfg.hidden_dim))
        self.rank, self.states, self.taps = math.ceil(cfg.hidden_dim / 16), cfg.state_dim, cfg.conv_width
        self.input = nn.Linear(cfg.hidden_dim, 2 * E, bias=False)
        bound = self.taps**-0.5
        self.conv_weight = nn.Parameter(torch.empty(E, self.taps).uniform_(-bound, bound))
        self.conv_bias = nn.Parameter(torch.empty(E).uniform_(-bound, bound))
        self.select = nn.Linear(E, self.rank + 2 * self.states, bias=False)
        self.delta = nn.Linear(self.rank, E)
        nn.init.uniform_(self.delta.weight, -(self.rank**-0.5), self.rank**-0.5)
        low, high = (math.log(bound) for bound in DELTA_RANGE)
        start = torch.empty(E).uniform_(low, high).exp()
        self.delta.bias.data = start + torch.log(-torch.expm1(-start))  # softplus of it is `start`
        self.log_rate = nn.Parameter(torch.log(torch.arange(1.0, self.states + 1)).unsqueeze(1).repeat(1, E))
        self.skip = nn.Parameter(torch.ones(E))
        self.output = nn.Linear(E, cfg.hidden_dim, bias=False)

    def initial_state(self, batch: int) -> Tree:
        """(newest inputs of the convolution, states)."""
        new = self.skip.new_zeros
        return new(batch, self.taps - 1, self.channels), new(batch, self.states, self.channels)

    def forward(self, x_TBH: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        past_BKE, h_BNE = state
        x_TBE, gate_TBE = self.input(x_TBH).chunk(2, -1)
        x_TBE, past_BKE = causal_convolution(x_TBE, self.conv_weight, self.conv_bias, first_TB, past_BKE)
        x_TBE = silu(x_TBE)
        delta_TBR, B_TBN, C_TBN = self.select(x_TBE).split([self.rank, self.states, self.states], -1)
        delta_TBE = softplus(affine(delta_TBR, self.delta.weight, self.delta.bias))
        rate_NE = -torch.exp(self.log_rate)
        y_TBE, h_BNE = selective_scan(x_TBE, delta_TBE, rate_NE, B_TBN, C_TBN, ~first_TB, h_BNE)
        return self.output((y_TBE + self.skip * x_TBE) * silu(gate_TBE)), (past_BKE, h_BNE)

    def numpy_step(self, take: Take) -> Step:
        """The same for one step."""
        w_in, w_select, w_delta, w_out = (
            take(layer.weight.t()) for layer in (self.input, self.select, self.delta, self.output)
        )
        taps, conv_bias, delta_bias, log_rate, skip = (
            take(p) for p in (self.conv_weight.t(), self.conv_bias, self.delta.bias, self.log_rate, self.skip)
        )
        E, R, N = self.channels, self.rank, self.states

        def step(x_BH: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
            past_BKE, h_BNE = (leaf * ~first_B[:, None, None] for leaf in state)
            both = x_BH @ w_in
            window = np.concatenate([past_BKE, both[:, None, :E]], 1)
            x = silu_numpy((window * taps).sum(1) + conv_bias)
            chosen = x @ w_select
            delta = np.logaddexp(0.0, chosen[:, :R] @ w_delta + delta_bias)
            h_BNE = np.exp(delta[:, None] * -np.exp(log_rate)) * h_BNE
            h_BNE += (delta * x)[:, None] * chosen[:, R : R + N, None]
            y = (chosen[:, None, R + N :] @ h_BNE)[:, 0] + skip * x
            return (y * silu_numpy(both[:, E:])) @ w_out, (window[:, 1:], h_BNE)

        return step
