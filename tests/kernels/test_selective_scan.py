"""Recurrences: known answers of other people's code, naive loops, derivatives in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import silu, softplus

from ludus.kernels.convolution import silu_convolution
from ludus.kernels.normalization import gated, inverse_rms, rms_norm
from ludus.kernels.selective_scan import _doubling, linear_scan, selective_scan
from ludus.kernels.ssd import CHUNK, dual_scan


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_selective_scan_equals_the_golden_vectors(golden: dict[str, Any]) -> None:
    case = {k: torch.tensor(v) for k, v in golden["mamba_selective_scan"].items() if k != "oracle"}
    first = torch.zeros(6, 2, dtype=torch.bool)
    u, delta, z = (case[name].permute(2, 0, 1) for name in ("u", "delta", "z"))  # batch, channel, time -> time first
    B, C = (case[name].permute(2, 0, 1) for name in ("B", "C"))
    delta = softplus(delta + case["delta_bias"])
    y, last = selective_scan(u, delta, case["A"].t(), B, C, ~first, torch.zeros(2, 4, 3))
    y = (y + case["D"] * u) * silu(z)
    torch.testing.assert_close(y.permute(1, 2, 0), case["out"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last.transpose(1, 2), case["last_state"], atol=1e-5, rtol=1e-5)


def test_selective_scan_beyond_one_span() -> None:
    T, B, E, N = 70, 2, 3, 2
    x, delta = random(T, B, E), softplus(random(T, B, E, seed=1))
    A, b, c = -random(N, E, seed=2).exp(), random(T, B, N, seed=3), random(T, B, N, seed=4)
    keep, start = torch.rand(T, B) > 0.1, random(B, N, E, seed=5)
    inputs = [leaf.requires_grad_() for leaf in (x, delta, A, b, c, start)]
    h, outputs = start, []
    for t in range(T):
        h = torch.exp(delta[t].unsqueeze(1) * A) * h * keep[t, :, None, None]
        h = h + (delta[t] * x[t]).unsqueeze(1) * b[t].unsqueeze(-1)
        outputs.append((c[t].unsqueeze(-1) * h).sum(1))
    y, last = selective_scan(x, delta, A, b, c, keep, start)
    torch.testing.assert_close(y, torch.stack(outputs))
    torch.testing.assert_close(last, h)
    weight = random(T, B, E, seed=6)
    ours = torch.autograd.grad((y * weight).sum() + last.square().sum(), inputs)
    loop = torch.autograd.grad((torch.stack(outputs) * weight).sum() + h.square().sum(), inputs)
    for mine, theirs in zip(ours, loop, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_linear_scan_two_ways_and_its_derivative() -> None:
    decay, value, start = random(13, 2, 3).sigmoid(), random(13, 2, 3, seed=1), random(2, 3, seed=2)
    decay[5, 0] = 0.0
    torch.testing.assert_close(linear_scan(decay, value, start), _doubling(decay, value, start))
    inputs = [leaf.requires_grad_() for leaf in (decay, value, start)]
    assert torch.autograd.gradcheck(linear_scan, inputs)


@pytest.mark.parametrize("steps", [1, CHUNK, 2 * CHUNK + 5])
def test_dual_equals_the_recurrence(steps: int) -> None:
    T, B, M, P, N = steps, 2, 2, 3, 4
    x, delta, decay = random(T, B, M, P), softplus(random(T, B, M, seed=1)), -random(T, B, M, seed=2).exp()
    b, c, skip = random(T, B, N, seed=3), random(T, B, N, seed=4), random(M, seed=5)
    first, start = torch.rand(T, B) < 0.1, random(B, M, N, P, seed=6)
    inputs = [leaf.requires_grad_() for leaf in (x, delta, decay, b, c, skip, start)]
    h, outputs = start, []
    for t in range(T):
        h = decay[t].exp()[..., None, None] * h * ~first[t, :, None, None, None]
        h = h + delta[t][..., None, None] * b[t][:, None, :, None] * x[t].unsqueeze(2)
        outputs.append((c[t][:, None, :, None] * h).sum(2) + skip.unsqueeze(-1) * x[t])
    y, last = dual_scan(x, delta, decay, b, c, skip, first, start)
    torch.testing.assert_close(y, torch.stack(outputs))
    torch.testing.assert_close(last, h)
    weight = random(T, B, M, P, seed=7)
    ours = torch.autograd.grad((y * weight).sum() + last.square().sum(), inputs)
    loop = torch.autograd.grad((torch.stack(outputs) * weight).sum() + h.square().sum(), inputs)
    for mine, theirs in zip(ours, loop, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_fast_decay_stays_finite() -> None:
    """Rates that underflow within a chunk, and a loud episode before a quiet one."""
    x, ones = torch.ones(40, 1, 1, 2, requires_grad=True), torch.ones(40, 1, 1)
    first = torch.zeros(40, 1, dtype=torch.bool)
    first[20] = True
    decay = torch.cat([torch.full((20, 1, 1), -1e4), torch.full((20, 1, 1), -0.1)])
    y, _ = dual_scan(x, ones, decay, ones, ones, torch.zeros(1), first, torch.zeros(1, 1, 1, 2))
    y.sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())
    expected = torch.stack([sum(torch.tensor(-0.1 * k).exp() for k in range(n + 1)) for n in range(20)])
    torch.testing.assert_close(y[20:, 0, 0, 0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("steps", [1, 2, 9, 70])
def test_convolution_equals_a_sum_over_the_episode(steps: int, taps: int) -> None:
    B, E = 2, 3
    x, weight, bias, past = (
        random(steps, B, E),
        random(E, taps, seed=1),
        random(E, seed=2),
        random(B, taps - 1, E, seed=3),
    )
    first = torch.rand(steps, B, generator=torch.Generator().manual_seed(steps)) < 0.2
    inputs = [leaf.requires_grad_() for leaf in (x, weight, bias, past)]
    rows, window = [], past
    for t in range(steps):
        window = torch.cat([window * ~first[t, :, None, None], x[t].unsqueeze(1)], 1)
        rows.append(torch.nn.functional.silu((window * weight.t()).sum(1) + bias))
        window = window[:, 1:]
    y, newest = silu_convolution(x, weight, bias, first, past)
    torch.testing.assert_close(y, torch.stack(rows))
    torch.testing.assert_close(newest, window)
    scale = random(steps, B, E, seed=4)
    ours = torch.autograd.grad((y * scale).sum() + newest.square().sum(), inputs, allow_unused=True)
    loop = torch.autograd.grad((torch.stack(rows) * scale).sum() + window.square().sum(), inputs, allow_unused=True)
    for mine, theirs in zip(ours, loop, strict=True):
        if mine is not None and mine.numel():
            torch.testing.assert_close(mine, theirs)


def test_gate_equals_torch() -> None:
    x, gate = random(4, 2, 6).requires_grad_(), random(4, 2, 6, seed=1).requires_grad_()
    torch.testing.assert_close(gated(x, gate), x * torch.nn.functional.silu(gate))
    assert torch.autograd.gradcheck(gated, (x, gate))


def test_rms_norm_equals_torch() -> None:
    x, weight = random(4, 2, 6).requires_grad_(), random(6, seed=1).requires_grad_()
    torch.testing.assert_close(rms_norm(x, weight), torch.nn.functional.rms_norm(x, (6,), weight, eps=1e-5))
    torch.testing.assert_close(x * inverse_rms(x), rms_norm(x, torch.ones(6, dtype=torch.float64)))
    assert torch.autograd.gradcheck(rms_norm, (x, weight))
    assert torch.autograd.gradcheck(inverse_rms, (x,))
