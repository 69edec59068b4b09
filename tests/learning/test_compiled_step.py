"""The update that is handed to the compiler computes what the eager one does; run here as traced, without compiling."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import toy_learners as toy
from ludus.learning import package
from ludus.learning.compiled import Compiler
from ludus.learning.learner import Group, Learner
from ludus.learning.optimizer import OptimizerConfig
from ludus.types import tree_leaves

NUMBERS = toy.NUMBERS


@pytest.fixture
def compiler(monkeypatch) -> Compiler:
    """One whose machine code is the traced graph itself."""

    def obtain(function: Any, example: Any, *_: Any) -> Any:
        graph = package.trace(function, example)
        return lambda: lambda arguments: list(graph(*arguments))

    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package, "obtain", obtain)
    return Compiler("always", planned={8: 1, 16: 1})


def assert_same(eager: Learner, traced: Learner) -> None:
    torch.testing.assert_close(traced.theta, eager.theta, atol=1e-6, rtol=1e-5)
    for label, group in traced.groups.items():
        theirs = eager.groups[label].optimizer
        assert group.optimizer.count == theirs.count
        for a, b in zip(group.optimizer.tensors, theirs.tensors, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    assert traced.metrics() == pytest.approx(eager.metrics(), rel=1e-4)


@pytest.mark.parametrize("slow", [None, 1e-3])
@pytest.mark.parametrize(
    ("kind", "agc"), [("adam", None), ("adamw", 0.02), ("laprop", None), ("laprop", 0.02), ("sgd", None)]
)
def test_the_traced_step_equals_the_eager_one(
    compiler: Compiler, kind: str, agc: float | None, slow: float | None
) -> None:
    cfg = OptimizerConfig(type=kind, weight_decay=0.01, agc=agc)
    eager, traced = toy.learner(cfg), toy.learner(cfg, compiler=compiler)
    scalars = {"lr": 0.01, **({"slow_lr": slow} if slow else {})}
    for batch in toy.batches(6):
        for one in (eager, traced):
            one.update(toy.fit, batch, scalars)
    assert [update.code is not None for update in traced.compiled.known.values()] == [True]
    assert_same(eager, traced)


def test_a_learner_clips_the_gradient_of_each_parameter_tensor() -> None:
    """`agc` reaches the step: with SGD and no momentum no tensor moves by more than its share."""
    learner = toy.learner(OptimizerConfig(type="sgd", betas=(0.0, 0.0), agc=0.02), max_grad_norm=None)
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    batch = {**toy.batches(1)[0]}
    batch["y"] = 1e3 * batch["y"]
    learner.update(toy.fit, batch, {"lr": 1.0})
    for name, parameter in learner.model.named_parameters():
        moved = (parameter.detach() - before[name]).norm().item()
        assert moved == pytest.approx(0.02 * before[name].norm().item(), rel=1e-4), name


def test_the_traced_update_of_several_networks_equals_the_eager_one(compiler: Compiler) -> None:
    """Noise is drawn outside, in the same order; outputs come back; slow copies and moments move."""
    limits = {"critic": 0.05, "actor": 0.1}
    eager, traced = (toy.joint(max_grad_norm=limits, compiler=c) for c in (None, compiler))
    for i, batch in enumerate(toy.transitions(6)):
        errors = [one.update(toy.actor_critic, batch, NUMBERS, policy=i % 2 == 1) for one in (eager, traced)]
        torch.testing.assert_close(errors[0]["error"], errors[1]["error"], atol=1e-6, rtol=1e-5)
    assert [update.code is not None for update in traced.compiled.known.values()] == [True, True]
    assert_same(eager, traced)
    assert eager.generator.bit_generator.state == traced.generator.bit_generator.state


def test_tracing_draws_no_random_number_and_moves_nothing(compiler: Compiler) -> None:
    """A resumed run traces again: if that moved a stream, it would not go on exactly."""
    learner, (batch,) = toy.joint(compiler=compiler), toy.transitions(1)
    before, torch_state, stream = learner.theta.clone(), torch.get_rng_state(), learner.generator.bit_generator.state

    def strange(nets: Any, batch: Any, c: Any) -> Any:
        torch.randn(3)
        return (yield from toy.actor_critic(nets, batch, c))

    learner.batch, learner.scalars = batch, NUMBERS
    learner.compiled.find((strange, (), ()), tree_leaves(batch), {})
    assert len(learner.compiled.known) == 1
    assert torch.equal(learner.theta, before)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert learner.generator.bit_generator.state == stream


class Model(nn.Module):
    """A world model, small: what it does is not in `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(2, 8), nn.Linear(8, 2)

    def imagine(self, start: torch.Tensor, steps: int) -> torch.Tensor:
        """Predicts its own inputs."""
        x, state = start, torch.zeros(len(start), 8)
        seen = []
        for _ in range(steps):
            state = self.cell(x, state)
            x = self.predict(state)
            seen.append(x)
        return torch.stack(seen)

    def predict(self, state: torch.Tensor) -> torch.Tensor:
        """One prediction."""
        return self.head(state)


def test_every_method_of_a_network_can_be_traced(compiler: Compiler) -> None:
    def update(nets: Any, batch: Any, c: Any) -> Any:
        before = nets.model.imagine(batch["y"], 3)
        loss = (before - batch["y"]).square().mean()
        nets.step("model", loss, c["lr"])
        after = nets.model.imagine(batch["y"], 3).detach()
        return {"loss": loss, "moved": (after - before).abs().mean()}, {"imagined": after}

    def learner(compiler: Compiler | None) -> Learner:
        torch.manual_seed(4)
        groups = {"model": Group(("model",), OptimizerConfig())}
        return Learner({"model": Model()}, groups, generator=np.random.default_rng(0), compiler=compiler)

    eager, traced = learner(None), learner(compiler)
    for batch in toy.batches(3):
        found = [one.update(update, batch, {"lr": 0.01}) for one in (eager, traced)]
        torch.testing.assert_close(found[0]["imagined"], found[1]["imagined"], atol=1e-6, rtol=1e-5)
    assert_same(eager, traced)
    assert all(isinstance(p, nn.Parameter) for p in traced.model.parameters()), "the modules stay as they were"


def test_what_steps_a_group_twice_stays_eager(compiler: Compiler) -> None:
    def twice(nets: Any, batch: Any, c: Any) -> Any:
        toy.fit(nets, batch, c)
        return toy.fit(nets, batch, c)

    learner = toy.learner(compiler=compiler)
    learner.update(twice, toy.batches(1)[0], {"lr": 0.01})
    assert learner.updates == 2 and "only once" in compiler.reason


@pytest.mark.parametrize("replaced", [False, True])
def test_what_changes_a_buffer_stays_eager(compiler: Compiler, replaced: bool) -> None:
    """Statistics of BatchNorm would be constants of the code, and tracing would move them."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.seen = toy.network(), nn.Buffer(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if replaced:
                self.seen = self.seen + 1
            else:
                self.seen += 1
            return self.inner(x) * (1 + self.seen)

    net, group = Counting(), Group(("net",), toy.CFG, rates={"slow": ()})
    learner = Learner({"net": net}, {"net": group}, generator=np.random.default_rng(0), compiler=compiler)
    for batch in toy.batches(2):
        learner.update(toy.fit, batch, {"lr": 0.01})
    assert net.seen == 2 and "changes the buffer net.seen" in compiler.reason


def test_updates_of_another_function_shape_or_flag_are_compiled_apart(compiler: Compiler) -> None:
    learner, asked = toy.joint(compiler=compiler), []
    get = compiler.get
    compiler.get = lambda function, example, *rest: asked.append(len(example)) or get(function, example, *rest)
    (large,), (small,), (other,) = (toy.transitions(1, size) for size in (16, 8, 5))
    for batch, policy in ((large, True), (large, True), (large, False), (small, True), (other, True)):
        learner.update(toy.actor_critic, batch, NUMBERS, policy=policy)
    assert len(asked) == 3, "a size that nobody planned is eager"


def test_code_gets_only_tensors_that_lie_in_memory_as_its_example_did(compiler: Compiler) -> None:
    """It reads memory without asking for types and strides; a copy, which code is made for, has no gaps."""
    strict_get, forms = compiler.get, []

    def get(function: Any, example: Any, *rest: Any) -> Any:
        code, made_for = strict_get(function, example, *rest)(), [(x.dtype, x.clone().stride()) for x in example]

        def run(arguments: Any) -> Any:
            assert [(x.dtype, x.stride()) for x in arguments[: len(example)]] == made_for
            forms.append(made_for)
            return code(arguments)

        return lambda: run

    compiler.get = get
    eager, traced = toy.joint(), toy.joint(compiler=compiler)
    plain, turned, gaps, double, renamed = toy.transitions(5)
    turned["x"] = turned["x"].transpose(1, 2).contiguous().transpose(1, 2)
    gaps["x"] = gaps["x"].repeat_interleave(2, -1)[..., ::2]
    double["r"] = double["r"].double()
    renamed = {name: renamed[name] for name in ("y", "x", "a", "r", "first")}
    for batch in (plain, turned, gaps, double, renamed):
        for learner in (eager, traced):
            learner.update(toy.actor_critic, batch, NUMBERS)
    assert_same(eager, traced)
    assert len(forms) == 5


def test_a_part_of_an_update_gets_such_tensors_too(compiler: Compiler) -> None:
    def part(nets: Any, inputs: Any) -> Any:
        return {"out": nets.net(inputs["x"])}

    def update(nets: Any, batch: Any, c: Any) -> Any:
        loss = (nets.fixed(part, {"x": batch["x"]})["out"] - nets.net(batch["x"]) - batch["y"]).square().mean()
        nets.step("net", loss, c["lr"])
        return {"loss/error": loss}

    strict_get, strides = compiler.get, []

    def get(function: Any, example: Any, *rest: Any) -> Any:
        code = strict_get(function, example, *rest)()
        return lambda: lambda arguments: strides.append(arguments[-1].stride()) or code(arguments)

    compiler.get = get
    learner, batch = toy.learner(compiler=compiler, whole=False), toy.batches(1)[0]
    learner.update(update, batch, toy.LR)
    learner.update(update, {**batch, "x": batch["x"].t().contiguous().t()}, toy.LR)
    assert strides == [(4, 1), (4, 1)]


def test_a_misspelt_network_is_not_compiled_away(compiler: Compiler) -> None:
    def misspelt(nets: Any, batch: Any, c: Any) -> Any:
        found = toy.fit(nets, batch, c)
        nets.polyak("nett", 0.5)
        return found

    with pytest.raises(KeyError, match="there is no network 'nett'"):
        toy.learner(compiler=compiler).update(misspelt, toy.batches(1)[0], toy.LR)


# ---- with a compiler -----------------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")


@needs_compiler
def test_compiled_equals_eager_and_is_cached(tmp_path) -> None:
    said: list[str] = []

    def compiler() -> Compiler:
        return Compiler("always", planned={8: 1}, folder=tmp_path, announce=said.append)

    eager, built, cached = (toy.learner(compiler=c) for c in (None, compiler(), compiler()))
    for step, batch in enumerate(toy.batches(10)):
        for one in (eager, built, cached):
            one.update(toy.fit, batch, {"lr": 0.01, "slow_lr": 1e-3 / (step + 1)})
    assert len(said) == 1, "the second learner finds the package of the first"
    assert built.compiler.describe() == cached.compiler.describe() == "compiled"
    assert torch.equal(built.theta, cached.theta)
    assert_same(eager, built)


@needs_compiler
def test_compiled_equals_eager_for_every_set_of_flags(tmp_path) -> None:
    compilers = None, Compiler("always", planned={16: 1}, folder=tmp_path)
    eager, built = (toy.joint(max_grad_norm={"critic": 1.0}, compiler=c) for c in compilers)
    for i, batch in enumerate(toy.transitions(8)):
        errors = [one.update(toy.actor_critic, batch, NUMBERS, policy=i % 2 == 0) for one in (eager, built)]
        torch.testing.assert_close(errors[0]["error"], errors[1]["error"], atol=1e-6, rtol=1e-4)
    assert built.compiler.describe() == "compiled"
    assert len(list(tmp_path.glob("*.so"))) == 2
    torch.testing.assert_close(built.theta, eager.theta, atol=1e-6, rtol=1e-4)
    assert eager.metrics() == pytest.approx(built.metrics(), rel=1e-3)


def test_auto_builds_nothing_for_a_short_run(tmp_path) -> None:
    short = Compiler("auto", planned={8: 100}, folder=tmp_path)
    toy.learner(compiler=short).update(toy.fit, toy.batches(1)[0], {"lr": 0.01})
    assert short.describe() == "eager (100 updates are planned, compiling pays from 30,000 on)"
    assert not list(tmp_path.iterdir())
