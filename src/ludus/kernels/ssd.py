"""The state space dual form (Dao & Gu 2024, arXiv:2405.21060, section 6) with episode resets.

    h[t] = exp(log_decay[t]) h[t-1] + delta[t] B[t] x[t]        y[t] = C[t] h[t] + skip x[t]

Chunks of steps are a few matrix products; only states go from chunk to chunk. The backward pass is written by hand:
every factor is put into the small matrices between steps and states, and x itself is only copied. At an episode start
the decay is 0: pairs of steps in different episodes are masked out, and sums of logarithms start anew there, so that
not even rounding depends on what came before.
Shapes: T time, B batch, M heads, P channels of a head, N states, K chunks, Q steps of a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ludus.kernels import Kept, plain

CHUNK = 32
FAINT = -60.0
"""Logarithm below which a decay stays: smaller numbers add nothing and are slow to compute with."""


def dual_scan(
    x_TBMP: Tensor,
    delta_TBM: Tensor,
    log_decay_TBM: Tensor,
    B_TBN: Tensor,
    C_TBN: Tensor,
    skip_M: Tensor,
    first_TB: Tensor,
    start_BMNP: Tensor,
) -> tuple[Tensor, Tensor]:
    """(y_TBMP, state after the last step)."""
    if plain():
        return _one_step(x_TBMP, delta_TBM, log_decay_TBM, B_TBN, C_TBN, skip_M, first_TB, start_BMNP)
    steps = len(x_TBMP)
    size = min(steps, CHUNK)
    missing = -steps % size  # steps added at the end decay nothing and add nothing
    x, delta, decay, B, C, first = (
        _chunks(leaf, size, missing) for leaf in (x_TBMP, delta_TBM, log_decay_TBM, B_TBN, C_TBN, first_TB)
    )
    y_QKBMP, state = _Dual.apply(x, delta, decay, B, C, skip_M, first, start_BMNP)
    return y_QKBMP.transpose(0, 1).flatten(0, 1)[:steps], state


def _one_step(
    x: Tensor, delta: Tensor, log_decay: Tensor, B: Tensor, C: Tensor, skip: Tensor, first: Tensor, start: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for a single step, as a formula."""
    decay_BM = log_decay[0].exp() * ~first[0].unsqueeze(-1)
    fed_BMNP = B[0][:, None, :, None] * (delta[0].unsqueeze(-1) * x[0]).unsqueeze(2)
    h_BMNP = decay_BM[..., None, None] * start + fed_BMNP
    y_BMP = (C[0][:, None, :, None] * h_BMNP).sum(2) + skip.unsqueeze(-1) * x[0]
    return y_BMP.unsqueeze(0), h_BMNP


def _chunks(leaf_TB: Tensor, size: int, missing: int) -> Tensor:
    """[T, B, ...] as [Q, K, B, ...], zeros at the end."""
    if missing:
        leaf_TB = pad(leaf_TB, (0, 0) * (leaf_TB.ndim - 1) + (0, missing))
    return leaf_TB.unflatten(0, (-1, size)).transpose(0, 1)


class _Matrices:
    """`reach` between steps, `whole` from the state before a chunk, `kept` into the state after it."""

    def __init__(self, delta: Tensor, decay: Tensor, B: Tensor, C: Tensor, first: Tensor) -> None:
        self.B_KBQN, self.C_KBQN = (leaf.permute(1, 2, 0, 3).contiguous() for leaf in (B, C))
        self.delta_KBMQ = delta.permute(1, 2, 3, 0).contiguous()
        episode_KBQ = first.permute(1, 2, 0).to(decay.dtype).cumsum(-1)
        self.linked_KBQQ = (episode_KBQ.unsqueeze(-1) == episode_KBQ.unsqueeze(-2)).to(decay.dtype).tril_()
        # since the start of the chunk or episode; the first decay of an episode is in all its sums and cancels out
        total_KBMQ = decay.permute(1, 2, 3, 0) @ self.linked_KBQQ.mT
        gap_KBMQQ = total_KBMQ.unsqueeze(-1) - total_KBMQ.unsqueeze(-2)
        self.reach_KBMQQ = gap_KBMQQ.clamp_(FAINT, 0.0).exp_().mul_(self.linked_KBQQ.unsqueeze(2))
        self.match_KBQQ = self.C_KBQN @ self.B_KBQN.mT
        self.whole_KBMQ = total_KBMQ.clamp(min=FAINT).exp_() * (episode_KBQ == 0).unsqueeze(2)
        self.kept_KBMQ = self.reach_KBMQQ[..., -1, :] * self.delta_KBMQ
        self.from_state = self.C_KBQN.unsqueeze(2) * self.whole_KBMQ.unsqueeze(-1)  # [K, B, M, Q, N]
        self.to_state = self.B_KBQN.unsqueeze(2) * self.kept_KBMQ.unsqueeze(-1)
        self.decay_KBM11 = self.whole_KBMQ[..., -1, None, None]

    def between(self, skip_M: Tensor) -> Tensor:
        """[K, B, M, Q, Q]: from the input of each step to the output of each later one."""
        weight = self.match_KBQQ.unsqueeze(2) * self.reach_KBMQQ
        weight *= self.delta_KBMQ.unsqueeze(-2)
        weight.diagonal(dim1=-2, dim2=-1).add_(skip_M.unsqueeze(-1))
        return weight


class _Dual(torch.autograd.Function):
    """Inputs are [Q, K, B, ...]; inside, heads come before steps."""

    @staticmethod
    def forward(
        ctx: Kept, x: Tensor, delta: Tensor, decay: Tensor, B: Tensor, C: Tensor, *rest: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(outputs, last state) of inputs and of rest = (skip, first, state)."""
        skip, first, state = rest
        matrices = _Matrices(delta, decay, B, C, first)
        x_KBMQP = x.permute(1, 2, 3, 0, 4).contiguous()
        between = matrices.between(skip)
        before, after = [], matrices.to_state.mT @ x_KBMQP
        for whole, added in zip(matrices.decay_KBM11, after, strict=True):
            before.append(state)
            state = added.addcmul_(whole, state)
        before_KBMNP = torch.stack(before)
        y_KBMQP = between @ x_KBMQP
        _add_product(y_KBMQP, matrices.from_state, before_KBMNP)
        ctx.arrays = matrices
        ctx.save_for_backward(x_KBMQP, between, before_KBMNP)
        return y_KBMQP.permute(3, 0, 1, 2, 4), state.clone()

    @staticmethod
    def backward(ctx: Kept, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all inputs but `first`."""
        x_KBMQP, between, before_KBMNP = ctx.saved_tensors
        matrices: _Matrices = ctx.arrays
        dy_KBMQP, carry = grads[0].permute(1, 2, 3, 0, 4).contiguous(), grads[1]
        d_before = matrices.from_state.mT @ dy_KBMQP
        d_after = torch.empty_like(before_KBMNP)
        for k in range(len(d_after) - 1, -1, -1):
            d_after[k] = carry
            carry = torch.addcmul(d_before[k], matrices.decay_KBM11[k], carry)
        d_x = between.mT @ dy_KBMQP
        _add_product(d_x, matrices.to_state, d_after)
        d_between = dy_KBMQP @ x_KBMQP.mT
        d_skip = d_between.diagonal(dim1=-2, dim2=-1).sum((0, 1, 3))
        d_from, d_to = dy_KBMQP @ before_KBMNP.mT, x_KBMQP @ d_after.mT
        d_decay = (d_after * before_KBMNP).sum((-1, -2))
        back = _through(matrices, d_between, d_from, d_to, d_decay)
        return d_x.permute(3, 0, 1, 2, 4), *back, d_skip, None, carry


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right without a tensor in between."""
    total.flatten(0, 2).baddbmm_(left.flatten(0, 2), right.flatten(0, 2))


def _through(m: _Matrices, d_between: Tensor, d_from: Tensor, d_to: Tensor, d_decay: Tensor) -> tuple[Tensor, ...]:
    """From the gradients of the matrices to those of delta, decay, B and C."""
    slope = d_between * m.reach_KBMQQ
    matched = slope * m.match_KBQQ.unsqueeze(2)
    d_delta = matched.sum(-2)
    d_total = (matched @ m.delta_KBMQ.unsqueeze(-1)).squeeze(-1)
    d_total -= d_delta * m.delta_KBMQ
    d_match = slope.mul_(m.delta_KBMQ.unsqueeze(-2)).sum(2)

    d_kept = (d_to * m.B_KBQN.unsqueeze(2)).sum(-1)
    d_delta += d_kept * m.reach_KBMQQ[..., -1, :]
    d_kept *= m.kept_KBMQ
    d_total -= d_kept
    d_total[..., -1] += d_kept.sum(-1)

    d_whole = (d_from * m.C_KBQN.unsqueeze(2)).sum(-1)
    d_whole[..., -1] += d_decay
    d_total += d_whole * m.whole_KBMQ

    d_B = (d_to * m.kept_KBMQ.unsqueeze(-1)).sum(2) + d_match.mT @ m.C_KBQN
    d_C = (d_from * m.whole_KBMQ.unsqueeze(-1)).sum(2) + d_match @ m.B_KBQN
    steps_first = (leaf.permute(3, 0, 1, 2) for leaf in (d_delta, d_total @ m.linked_KBQQ))
    return *steps_first, d_B.permute(2, 0, 1, 3), d_C.permute(2, 0, 1, 3)
