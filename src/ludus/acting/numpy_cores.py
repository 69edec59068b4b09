"""One step of every memory core in numpy, for acting on the CPU; equal to the module's own step to rounding.

`NUMPY_CORES` maps the registered name of a core to a function of (core, take) that makes its step; `take` copies or
views a tensor as an array. A core without an entry acts through torch. Tests: tests/contracts/test_memory.py.

Shapes: B batch, D inputs, H hidden units, S steps a transformer looks at, N heads or states, P width of a head,
E channels, K taps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ludus.kernels.normalization import rms_norm_numpy, silu_numpy, standardized_numpy
from ludus.types import Array, Tree

if TYPE_CHECKING:
    from ludus.networks.attention import Attention
    from ludus.networks.memory.gru import GRU
    from ludus.networks.memory.gtrxl import Gate, GatedBlock
    from ludus.networks.memory.lstm import LSTM
    from ludus.networks.memory.mamba import SelectiveMixer
    from ludus.networks.memory.mamba2 import DualMixer
    from ludus.networks.memory.min_gru import MinGRULayer
    from ludus.networks.residual import ResidualCore
    from ludus.networks.transformer import TransformerBlock, TransformerCore

Take = Callable[[Tensor], Array]
Step = Callable[[Array, Tree, Array], tuple[Array, Tree]]
"""(x_BD, state, first_B) -> (y_BH, state)."""
Join = Callable[[Array, Array], Array]
"""(residual stream, output of half a block) -> residual stream."""


def _sigmoid(x: Array) -> Array:
    return 0.5 * np.tanh(0.5 * x) + 0.5


def gru(core: GRU, take: Take) -> Step:
    """h = n + z (h' - n)."""
    width, cell = core.out_dim, core.cell
    w_x, w_h, b_x, b_h = (take(p) for p in (cell.weight_ih.t(), cell.weight_hh.t(), cell.bias_ih, cell.bias_hh))

    def step(x_BD: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
        h = state[0] * ~first_B[:, None]
        gates_x, gates_h = x_BD @ w_x + b_x, h @ w_h + b_h
        gates = _sigmoid(gates_x[:, : 2 * width] + gates_h[:, : 2 * width])
        reset, update = gates[:, :width], gates[:, width:]
        candidate = np.tanh(gates_x[:, 2 * width :] + reset * gates_h[:, 2 * width :])
        h = candidate + update * (h - candidate)
        return h, (h,)

    return step


def lstm(core: LSTM, take: Take) -> Step:
    """c = f c' + i g, h = o tanh(c)."""
    width, cell = core.out_dim, core.cell
    w_x, w_h, b_x, b_h = (take(p) for p in (cell.weight_ih.t(), cell.weight_hh.t(), cell.bias_ih, cell.bias_hh))

    def step(x_BD: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
        h, c = (leaf * ~first_B[:, None] for leaf in state)
        gates = x_BD @ w_x + h @ w_h + b_x + b_h
        g = np.tanh(gates[:, 2 * width : 3 * width])
        gates = _sigmoid(gates)
        c = gates[:, width : 2 * width] * c + gates[:, :width] * g
        h = gates[:, 3 * width :] * np.tanh(c)
        return h, (h, c)

    return step


# ---- residual cores --------------------------------------------------------------------------------


def _residual(mixer_step: Callable[..., Step], core: ResidualCore, take: Take) -> Step:
    project, bias, scale = take(core.project.weight.t()), take(core.project.bias), take(core.norm.weight)
    pairs = zip(core.norms, core.mixers, strict=True)
    layers = [(take(norm.weight), mixer_step(mixer, take)) for norm, mixer in pairs]

    def step(x_BD: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
        x, last = x_BD @ project + bias, []
        for (weight, mixer), start in zip(layers, state, strict=True):
            y, end = mixer(rms_norm_numpy(x, weight), start, first_B)
            x = x + y
            last.append(end)
        return rms_norm_numpy(x, scale), tuple(last)

    return step


def _min_gru_layer(mixer: MinGRULayer, take: Take) -> Step:
    weight, bias, width = take(mixer.gates.weight.t()), take(mixer.gates.bias), mixer.gates.in_features

    def step(x_BH: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
        a = x_BH @ weight + bias
        z = _sigmoid(a[:, :width])
        h = state * ~first_B[:, None] * (1.0 - z) + z * a[:, width:]
        return h, h

    return step


def _selective(mixer: SelectiveMixer, take: Take) -> Step:
    w_in, w_select, w_delta, w_out = (
        take(layer.weight.t()) for layer in (mixer.input, mixer.select, mixer.delta, mixer.output)
    )
    taps, conv_bias, delta_bias, log_rate, skip = (
        take(p) for p in (mixer.conv_weight.t(), mixer.conv_bias, mixer.delta.bias, mixer.log_rate, mixer.skip)
    )
    E, R, N = mixer.channels, mixer.rank, mixer.states

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


def _dual(mixer: DualMixer, take: Take) -> Step:
    w_in, w_out, taps = take(mixer.input.weight.t()), take(mixer.output.weight.t()), take(mixer.conv_weight.t())
    conv_bias, delta_bias, log_rate, skip, norm = (
        take(p) for p in (mixer.conv_bias, mixer.delta_bias, mixer.log_rate, mixer.skip, mixer.norm)
    )
    E, N, mixed, shape = mixer.channels, mixer.states, len(mixer.conv_bias), (-1, mixer.heads, 1, mixer.head)

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


# ---- transformers --------------------------------------------------------------------------------


def _transformer(block_step: Callable[..., Join], core: TransformerCore, take: Take) -> Step:
    from ludus.networks.attention import sinusoids

    blocks = [block_step(block, take) for block in core.blocks]
    w_in, b_in, scale, bias = (
        take(p) for p in (core.project.weight.t(), core.project.bias, core.norm.weight, core.norm.bias)
    )
    places = None if core.places is None else take(core.places)

    def placed(x_BH: Array, position_B: Array) -> Array:
        if places is not None:
            return x_BH + places[np.minimum(position_B, len(places) - 1)]
        if core.positions == "absolute":
            return x_BH + sinusoids(torch.from_numpy(position_B), core.out_dim).numpy()
        return x_BH

    def step(x_BD: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
        memory, length_B = state
        length_B = length_B * ~first_B
        longest = min(core.memory, int(length_B.max()))  # nobody reads what is older than every open episode
        hidden_BS = np.arange(longest, -1, -1) > length_B[:, None]
        x_BH, kept = placed(x_BD @ w_in + b_in, length_B), []
        for block, past_BMH in zip(blocks, memory, strict=True):
            x_BSH = np.concatenate([past_BMH, x_BH[:, None]], 1)
            kept.append(x_BSH[:, 1:])
            x_BH = block(x_BSH[:, core.memory - longest :], hidden_BS)
        return standardized_numpy(x_BH) * scale + bias, (tuple(kept), length_B + 1)

    return step


def _block(block: TransformerBlock, take: Take, join: Join = np.add, join_after: Join = np.add) -> Join:
    """(inputs [B, S, H], hidden [B, S]) -> the residual stream [B, H] after the newest of them."""
    attend = _attention(block.attention, take, block.norm)
    layers: Any = block.feedforward
    norm, inner, _, outer = layers
    scale, bias, w_in, b_in, w_out, b_out = (
        take(p) for p in (norm.weight, norm.bias, inner.weight.t(), inner.bias, outer.weight.t(), outer.bias)
    )

    def step(x_BSH: Array, hidden_BS: Array) -> Array:
        x_BH = join(x_BSH[:, -1], attend(x_BSH, hidden_BS))
        inside = np.maximum((standardized_numpy(x_BH) * scale + bias) @ w_in + b_in, 0.0)
        return join_after(x_BH, inside @ w_out + b_out)

    return step


def _gated_block(block: GatedBlock, take: Take) -> Join:
    first, second = (_gate(gate, take) for gate in block.gates)
    return _block(block, take, lambda x, y: first(x, np.maximum(y, 0.0)), lambda x, y: second(x, np.maximum(y, 0.0)))


def _gate(gate: Gate, take: Take) -> Join:
    w_new, w_old, w_reset, bias = (
        take(p) for p in (gate.new.weight.t(), gate.old.weight.t(), gate.reset.weight.t(), gate.bias)
    )
    width = len(bias)

    def step(x: Array, y: Array) -> Array:
        new, old = y @ w_new, x @ w_old
        r = _sigmoid(new[:, :width] + old[:, :width])
        z = _sigmoid(new[:, width : 2 * width] + old[:, width:] - bias)
        return x + z * (np.tanh(new[:, 2 * width :] + (r * x) @ w_reset) - x)

    return step


def _attention(attention: Attention, take: Take, norm: nn.LayerNorm) -> Join:
    """(inputs before the norm [B, S, H], hidden [B, S]) -> attended values [B, H] for the newest one.

    Memory is never projected: the query goes through the key's weights instead, and the value's weights come after
    the average. The norm's bias adds the same number to the scores of all keys, which softmax cancels.
    """
    N, H = attention.heads, attention.query.in_features
    P = H // N
    w_query, w_output, w_key_value = (
        take(w) for w in (attention.query.weight.t(), attention.output.weight.t(), attention.key_value.weight)
    )
    w_key, w_value = w_key_value.reshape(2, N, P, H)
    scale, bias = take(norm.weight), take(norm.bias)
    far: tuple[Array, ...] = ()
    if attention.position is not None:
        tensors = (attention.position.weight, attention.content_bias, attention.position_bias, attention.sinusoids)
        far = tuple(map(take, tensors))

    def through(q_BH: Array, weight_NPH: Array) -> Array:
        return ((q_BH.reshape(-1, N, P) * P**-0.5).transpose(1, 0, 2) @ weight_NPH).transpose(1, 0, 2)

    def step(x_BSH: Array, hidden_BS: Array) -> Array:
        x_BSH = standardized_numpy(x_BSH)
        q_BH = (x_BSH[:, -1] * scale + bias) @ w_query
        if far:
            w_far, content_bias, far_bias, places_SH = far
            by_place = through(q_BH + far_bias, w_far.reshape(N, P, H)) @ places_SH[-x_BSH.shape[1] :].T
            scores_BNS = by_place + (through(q_BH + content_bias, w_key) * scale) @ x_BSH.transpose(0, 2, 1)
        else:
            scores_BNS = (through(q_BH, w_key) * scale) @ x_BSH.transpose(0, 2, 1)
        np.copyto(scores_BNS, -np.inf, where=hidden_BS[:, None])
        scores_BNS = np.exp(scores_BNS - scores_BNS.max(-1, keepdims=True))
        scores_BNS /= scores_BNS.sum(-1, keepdims=True)
        mean_BNH = (scores_BNS @ x_BSH) * scale + bias
        y_NBP = mean_BNH.transpose(1, 0, 2) @ w_value.transpose(0, 2, 1)
        return y_NBP.transpose(1, 0, 2).reshape(-1, H) @ w_output

    return step


NUMPY_CORES: dict[str, Callable[..., Step]] = {
    "none": lambda *_: lambda x_BD, state, _: (x_BD, state),
    "gru": gru,
    "lstm": lstm,
    "min_gru": partial(_residual, _min_gru_layer),
    "mamba": partial(_residual, _selective),
    "mamba2": partial(_residual, _dual),
    "trxl": partial(_transformer, _block),
    "gtrxl": partial(_transformer, _gated_block),
}
