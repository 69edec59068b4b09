"""Every memory core: T steps at once == T single steps, nothing leaks across episodes, state carries on exactly."""

from __future__ import annotations

import pytest
import torch

from ludus.registry import MEMORY
from ludus.types import tree_map

T, B, D = 40, 3, 5


def make(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    cls = MEMORY[name]
    return cls(cls.Config(), D)


def steps_and_starts(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(T, B, D, generator=generator), torch.rand(T, B, generator=generator) < 0.15


@pytest.mark.parametrize("name", MEMORY.names())
def test_sequence_equals_single_steps(name: str) -> None:
    core = make(name)
    x, first = steps_and_starts()
    whole, end = core(x, core.initial_state(B), first)
    state, single = core.initial_state(B), []
    for t in range(T):
        y, state = core(x[t : t + 1], state, first[t : t + 1])
        single.append(y)
    torch.testing.assert_close(whole, torch.cat(single), atol=1e-5, rtol=1e-5)
    tree_map(lambda a, b: torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5), end, state)


@pytest.mark.parametrize("name", MEMORY.names())
def test_carried_state_equals_whole_sequence(name: str) -> None:
    core = make(name)
    x, first = steps_and_starts(1)
    whole, _ = core(x, core.initial_state(B), first)
    head, state = core(x[:17], core.initial_state(B), first[:17])
    tail, _ = core(x[17:], state, first[17:])
    torch.testing.assert_close(whole, torch.cat([head, tail]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MEMORY.names())
@pytest.mark.parametrize("reset", [0, 6, T - 1])
def test_nothing_leaks_into_a_new_episode(name: str, reset: int) -> None:
    core = make(name)
    x, _ = steps_and_starts(2)
    first = torch.zeros(T, B, dtype=torch.bool)
    first[reset] = True
    other = x.clone()
    other[:reset] += 100
    state = core.initial_state(B)
    loud = tree_map(lambda leaf: leaf + 50, state)
    y1, _ = core(x, state, first)
    y2, _ = core(other, loud, first)
    assert torch.equal(y1[reset:], y2[reset:])


@pytest.mark.parametrize("name", MEMORY.names())
def test_no_gradient_crosses_an_episode_start(name: str) -> None:
    core = make(name)
    x, _ = steps_and_starts(3)
    first = torch.zeros(T, B, dtype=torch.bool)
    first[20, 1] = True
    x.requires_grad_()
    y, _ = core(x, core.initial_state(B), first)
    y[20:, 1].sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad[:20, 1], torch.zeros(20, D))
    assert x.grad[20:, 1].abs().sum() > 0


def test_gru_equals_torch() -> None:
    core = make("gru")
    x, _ = steps_and_starts(4)
    reference = torch.nn.GRU(D, core.out_dim)
    reference.load_state_dict({f"{k}_l0": v for k, v in core.cell.state_dict().items()})
    h0 = torch.randn(B, core.out_dim)
    y, _ = core(x, (h0,), torch.zeros(T, B, dtype=torch.bool))
    torch.testing.assert_close(y, reference(x, h0.unsqueeze(0))[0], atol=1e-6, rtol=1e-5)


def test_gru_gradients_equal_a_masked_loop() -> None:
    """The inserted reset steps change no gradient."""
    core = make("gru")
    x, first = steps_and_starts(5)
    h = torch.randn(B, core.out_dim)
    core(x, (h,), first)[0].square().sum().backward()
    fused = [p.grad.clone() for p in core.cell.parameters()]
    core.zero_grad()
    state, outputs = h, []
    for t in range(T):
        state = core.cell(x[t], state * ~first[t].unsqueeze(-1))
        outputs.append(state)
    torch.stack(outputs).square().sum().backward()
    for ours, loop in zip(fused, core.cell.parameters(), strict=True):
        torch.testing.assert_close(ours, loop.grad, atol=1e-4, rtol=1e-4)


def test_gru_fused_call_equals_the_scan() -> None:
    """What an accelerator runs is what the CPU runs; resets by shut gates are exact."""
    core = make("gru")
    x, first = steps_and_starts(6)
    h = torch.randn(B, core.out_dim)
    scanned, _ = core(x, (h,), first)
    fused = core.fused(x, h, first)
    torch.testing.assert_close(fused, scanned, atol=1e-5, rtol=1e-5)
    scanned.square().sum().backward()
    grads = [p.grad.clone() for p in core.cell.parameters()]
    core.zero_grad()
    fused.square().sum().backward()
    for ours, theirs in zip(grads, core.cell.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.grad, atol=1e-3, rtol=1e-4)


def test_gru_scan_passes_gradcheck_to_its_inputs() -> None:
    """Gradients to inputs and initial state against the step loop."""
    core = make("gru")
    x, first = steps_and_starts(7)
    x.requires_grad_()
    h = torch.randn(B, core.out_dim, requires_grad=True)
    weight = torch.randn(T, B, core.out_dim)
    ours = torch.autograd.grad((core(x, (h,), first)[0] * weight).sum(), (x, h))
    state, outputs = h, []
    for t in range(T):
        state = core.cell(x[t], state * ~first[t].unsqueeze(-1))
        outputs.append(state)
    loop = torch.autograd.grad((torch.stack(outputs) * weight).sum(), (x, h))
    for a, b in zip(ours, loop, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
