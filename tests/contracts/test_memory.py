"""Every memory core: T steps at once == T single steps, nothing leaks across episodes, state carries on exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.acting.numpy_cores import NUMPY_CORES
from ludus.networks.memory import MemoryCore
from ludus.registry import MEMORY
from ludus.testing import MemoryCoreContract
from ludus.types import Tree, tree_map

T, B, D = 40, 3, 5


POSITIONS = [f"{core} {kind}" for core in ("trxl", "gtrxl") for kind in ("absolute", "learned", "none")]
CORES = [*MEMORY.names(), *POSITIONS]
RECURRENT = [name for name in CORES if MEMORY[name.split()[0]].recurrent]


def make(name: str, **options: Any) -> MemoryCore:
    torch.manual_seed(0)
    name, _, positions = name.partition(" ")
    cls = MEMORY[name]
    if positions:  # episodes in the tests are longer than the limit
        options |= {"positions": positions, "position_limit": 7}
    return cls(cls.Config(**options), D)


def steps_and_starts(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(T, B, D, generator=generator), torch.rand(T, B, generator=generator) < 0.15


class TestCores(MemoryCoreContract):
    """Every core passes the suite that plugin authors are given."""

    features = D

    @pytest.fixture(autouse=True, params=CORES)
    def case(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def make(self) -> MemoryCore:
        return make(self.name)


class TestWindows(TestCores):
    """The same with two layers and a memory that is shorter than episodes are."""

    @pytest.fixture(autouse=True, params=[name for name in CORES if "trxl" in name])
    def case(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def make(self) -> MemoryCore:
        return make(self.name, memory_length=6, num_layers=2)


@pytest.mark.parametrize("name", RECURRENT)
def test_steps_in_numpy_equal_the_sequence(name: str) -> None:
    """On the weights as they are now, with episodes longer than a transformer's memory and several layers."""
    name, _, positions = name.partition(" ")
    cls = MEMORY[name]
    options = {"memory_length": 6, "positions": positions or "relative", "position_limit": 7}
    options = {**options, "num_layers": 2} if "memory_length" in cls.Config.model_fields else {}
    core = cls(cls.Config(**options), D)
    step = NUMPY_CORES[name](core, lambda parameter: parameter.detach().numpy())
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x, first = steps_and_starts(3)
    whole, end = core(x, core.initial_state(B), first)
    state = tree_map(lambda leaf: leaf.numpy(), core.initial_state(B))
    for t in range(T):
        y, state = step(x[t].numpy(), state, first[t].numpy())
        torch.testing.assert_close(torch.from_numpy(y), whole[t], atol=2e-5, rtol=1e-4)
    tree_map(lambda ours, leaf: torch.testing.assert_close(torch.from_numpy(ours), leaf, atol=2e-5, rtol=1e-4),
             state, end)  # fmt: skip


@pytest.mark.parametrize("name", RECURRENT)
def test_gradients_equal_those_of_single_steps(name: str) -> None:
    """Of inputs, start state and every weight, in double precision: hand-written backward passes against autograd."""
    core = make(name).double()
    x, first = steps_and_starts(10)
    x = x[:23].double().requires_grad_()
    first = first[:23]
    weight = torch.randn(23, B, core.out_dim, dtype=torch.float64)
    _, start = core(torch.randn(3, B, D, dtype=torch.float64), to_double(core.initial_state(B)), first[:3])
    start = tree_map(lambda leaf: leaf.detach().requires_grad_() if leaf.is_floating_point() else leaf, start)
    leaves = [x, *core.parameters(), *floats(start)]

    def grads(together: bool) -> tuple[torch.Tensor, ...]:
        state, outputs, step = start, [], 23 if together else 1
        for t in range(0, 23, step):
            y, state = core(x[t : t + step], state, first[t : t + step])
            outputs.append(y)
        loss = (torch.cat(outputs) * weight).sum() + sum(leaf.square().sum() for leaf in floats(state))
        return torch.autograd.grad(loss, leaves)

    for ours, single in zip(grads(True), grads(False), strict=True):
        torch.testing.assert_close(ours, single, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("name", RECURRENT)
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    core = make(name).double()
    x, first = steps_and_starts(11)
    first = first[:7, :2].clone()
    first[3, 0] = True
    start = tree_map(lambda leaf: leaf + 1 if not leaf.is_floating_point() else leaf, to_double(core.initial_state(2)))
    x = x[:7, :2].double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: core(x, start, first)[0][..., :3], (x,), atol=1e-6)


def floats(tree: Tree) -> list[torch.Tensor]:
    leaves: list[torch.Tensor] = []
    tree_map(lambda leaf: leaves.append(leaf) if leaf.is_floating_point() else None, tree)
    return leaves


def to_double(tree: Tree) -> Tree:
    return tree_map(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, tree)


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


def test_lstm_equals_torch() -> None:
    core = make("lstm")
    x, _ = steps_and_starts(4)
    reference = torch.nn.LSTM(D, core.out_dim)
    reference.load_state_dict({f"{k}_l0": v for k, v in core.cell.state_dict().items()})
    h, c = torch.randn(2, B, core.out_dim)
    y, (last_h, last_c) = core(x, (h, c), torch.zeros(T, B, dtype=torch.bool))
    expected, (their_h, their_c) = reference(x, (h.unsqueeze(0), c.unsqueeze(0)))
    torch.testing.assert_close(y, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close((last_h, last_c), (their_h[0], their_c[0]), atol=1e-6, rtol=1e-5)


def test_lstm_fused_call_equals_the_scan() -> None:
    """What an accelerator runs is what the CPU runs: resets by shut gates, cells held over padding."""
    core = make("lstm")
    x, first = steps_and_starts(6)
    first[:, 0], first[-1, 1], first[0, 2] = False, True, True
    h, c = torch.randn(2, B, core.out_dim)
    grads = []
    for run in (core.scanned, core.fused):
        y, last = run(x, h, c, first)
        core.zero_grad()
        (y.square().sum() + last.square().sum()).backward()
        grads.append([y.detach(), last.detach(), *(p.grad.clone() for p in core.cell.parameters())])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)


WINDOWS = [("trxl", "relative"), ("gtrxl", "relative"), ("trxl", "absolute"), ("gtrxl", "learned"), ("trxl", "none")]


@pytest.mark.parametrize(("name", "positions"), WINDOWS)
class TestSlidingWindow:
    """Attention sees the newest steps of the episode, whatever the lengths of memory, sequence and episode."""

    @staticmethod
    def make(name: str, positions: str, memory: int, layers: int = 2) -> torch.nn.Module:
        torch.manual_seed(0)
        cls = MEMORY[name]
        sizes = {"hidden_dim": 16, "num_heads": 2, "memory_length": memory, "num_layers": layers}
        return cls(cls.Config(**sizes, positions=positions), D)

    @pytest.mark.parametrize("memory", [1, 5, 16, 100])
    def test_sequence_equals_single_steps(self, name: str, positions: str, memory: int) -> None:
        core = self.make(name, positions, memory)
        x, _ = steps_and_starts(12)
        first = torch.zeros(T, B, dtype=torch.bool)  # one episode much longer than the memory
        first[T // 2, 0] = True
        whole, end = core(x, core.initial_state(B), first)
        state, single = core.initial_state(B), []
        for t in range(T):
            y, state = core(x[t : t + 1], state, first[t : t + 1])
            single.append(y)
        torch.testing.assert_close(whole, torch.cat(single), atol=1e-5, rtol=1e-5)
        tree_map(lambda a, b: torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5), end, state)

    def test_reach_is_the_memory(self, name: str, positions: str) -> None:
        core = self.make(name, positions, memory=6, layers=1)
        x, _ = steps_and_starts(13)
        first = torch.zeros(T, B, dtype=torch.bool)
        other = x.clone()
        other[10] += 3.0
        ours, theirs = (core(sequence, core.initial_state(B), first)[0] for sequence in (x, other))
        changed = (ours != theirs).any(-1).all(-1)
        assert changed.nonzero().flatten().tolist() == list(range(10, 17))

    def test_order_matters_where_steps_have_positions(self, name: str, positions: str) -> None:
        """The same two inputs in the other order give another output, and the same one without positions."""
        core = self.make(name, positions, memory=8, layers=1)
        x, _ = steps_and_starts(14)
        first = torch.zeros(T, B, dtype=torch.bool)
        swapped = x.clone()
        swapped[[2, 4]] = x[[4, 2]]
        ours, theirs = (core(sequence[:7], core.initial_state(B), first[:7])[0][-1] for sequence in (x, swapped))
        difference = (ours - theirs).abs().max()
        assert difference < 1e-6 if positions == "none" else difference > 1e-4

    def test_positions_count_within_the_episode(self, name: str, positions: str) -> None:
        """The second episode of a row is computed as if it were the first, wherever calls are cut."""
        core = self.make(name, positions, memory=5)
        x, _ = steps_and_starts(16)
        first = torch.zeros(T, B, dtype=torch.bool)
        first[13] = True
        alone, _ = core(x[13:], core.initial_state(B), first[13:])
        _, state = core(x[:20], core.initial_state(B), first[:20])
        rest, (_, length) = core(x[20:], state, first[20:])
        torch.testing.assert_close(alone[7:], rest, atol=1e-5, rtol=1e-5)
        assert length.tolist() == [T - 13] * B


@pytest.mark.parametrize("name", ["trxl", "gtrxl"])
def test_learned_places_end_at_the_limit(name: str) -> None:
    """Without memory the output is that of the place alone; places past the limit are the last one."""
    cls = MEMORY[name]
    core = cls(cls.Config(hidden_dim=8, num_heads=2, memory_length=1, positions="learned", position_limit=6), D)
    first = torch.zeros(T, 1, dtype=torch.bool)
    y, _ = core(torch.ones(T, 1, D), core.initial_state(1), first)
    assert all((y[t] - y[t + 1]).abs().max() > 1e-3 for t in range(5))
    torch.testing.assert_close(y[7:], y[6:7].expand_as(y[7:]), atol=1e-6, rtol=1e-5)


def test_only_the_positions_in_use_have_parameters() -> None:
    def names(positions: str) -> set[str]:
        core = MEMORY["trxl"](MEMORY["trxl"].Config(positions=positions), D)
        return {name for name, _ in core.named_parameters()}

    relative = {f"blocks.0.attention.{name}" for name in ("position.weight", "content_bias", "position_bias")}
    assert names("relative") - names("none") == relative
    assert names("absolute") == names("none") and names("learned") - names("none") == {"places"}


def test_gtrxl_starts_near_its_input_projection() -> None:
    core = MEMORY["gtrxl"](MEMORY["gtrxl"].Config(gate_bias=50.0), D)
    x, first = steps_and_starts(15)
    y, _ = core(x, core.initial_state(B), first)
    torch.testing.assert_close(y, core.norm(core.project(x)), atol=1e-6, rtol=1e-5)


def test_mamba_starts_as_published() -> None:
    for name in ("mamba", "mamba2"):
        mixer = make(name).mixers[0]
        bias = mixer.delta.bias if name == "mamba" else mixer.delta_bias
        delta = torch.nn.functional.softplus(bias)
        assert delta.min() >= 1e-3 * 0.99 and delta.max() <= 1e-1 * 1.01
    torch.testing.assert_close(make("mamba").mixers[0].log_rate.exp()[:, 0], torch.arange(1.0, 17.0))


def test_mamba_forgets_at_the_rate_it_is_given() -> None:
    """States that decay 16 times slower hold more of what was seen 40 steps ago."""

    def held(rate: float) -> float:
        torch.manual_seed(0)
        core = MEMORY["mamba"](MEMORY["mamba"].Config(rate=rate), D)
        x = torch.randn(41, B, D, generator=torch.Generator().manual_seed(1))
        other = x.clone()
        other[0] = -x[0]
        first = torch.zeros(41, B, dtype=torch.bool)
        (y, _), (z, _) = (core(leaf, core.initial_state(B), first) for leaf in (x, other))
        return float((y[-1] - z[-1]).detach().norm())

    assert held(1 / 16) > 3 * held(1.0)
    rates = MEMORY["mamba"](MEMORY["mamba"].Config(rate=0.5), D).mixers[0].log_rate.exp()
    torch.testing.assert_close(rates[:, 0], 0.5 * torch.arange(1.0, 17.0))


def test_gru_starts_with_spans_up_to_its_horizon() -> None:
    """What was seen 40 steps ago reaches the output; with a bias of 0 it is gone."""

    def start(horizon: int) -> tuple[torch.Tensor, float]:
        torch.manual_seed(0)
        core = MEMORY["gru"](MEMORY["gru"].Config(horizon=horizon), D)
        x = torch.randn(41, B, D).requires_grad_()
        y, _ = core(x, core.initial_state(B), torch.zeros(41, B, dtype=torch.bool))
        y[-1].pow(2).sum().backward()
        assert x.grad is not None
        bias = core.cell.bias_ih.detach() + core.cell.bias_hh.detach()
        return bias, float(x.grad[0].norm() / x.grad[-1].norm())

    (zero, gone), (bias, kept) = start(1), start(40)
    assert not zero.any() and gone < 1e-6
    reset, update, candidate = bias.chunk(3)
    assert not reset.any() and not candidate.any() and kept > 1e-3
    span = 1.0 + update.exp()
    assert 2.0 <= span.min() < 8.0 and 32.0 < span.max() <= 40.0


def test_lstm_starts_with_spans_up_to_its_horizon() -> None:
    """The forget gate holds the cell for up to 40 steps, and the input gate lets as little in as it forgets."""
    cores = [MEMORY["lstm"](MEMORY["lstm"].Config(horizon=horizon), D) for horizon in (1, 40)]
    zero, bias = (core.cell.bias_ih.detach() + core.cell.bias_hh.detach() for core in cores)
    assert not zero.any()
    to_input, to_forget, candidate, to_output = bias.chunk(4)
    assert torch.equal(to_input, -to_forget) and not candidate.any() and not to_output.any()
    span = 1.0 + to_forget.exp()
    assert 2.0 <= span.min() < 8.0 and 32.0 < span.max() <= 40.0
