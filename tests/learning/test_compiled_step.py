"""The step that is handed to the compiler computes what the eager one does; run here as traced, without compiling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ludus.learning import package
from ludus.learning.compiled import Compiler
from ludus.learning.joint_learner import JointLearner
from ludus.learning.learner import Learner
from ludus.learning.optimizer import OptimizerConfig

ADAM = OptimizerConfig(eps=1e-5)


@pytest.fixture
def compiler(monkeypatch) -> Compiler:
    """One whose machine code is the traced graph itself."""

    def obtain(function: Any, example: Any, *_: Any) -> Any:
        graph = package.trace(function, example)
        return lambda arguments: list(graph(*arguments))

    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package, "obtain", obtain)
    return Compiler("always", planned={8: 1})


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    g = torch.Generator().manual_seed(3)
    first = torch.zeros(8, dtype=torch.bool)
    return [
        {"x": torch.randn(8, 4, generator=g), "y": torch.randn(8, 2, generator=g), "first": first} for _ in range(count)
    ]


def layers(inputs: int, outputs: int) -> nn.Module:
    torch.manual_seed(inputs + outputs)
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def assert_same(eager: Learner, traced: Learner) -> None:
    torch.testing.assert_close(traced.theta, eager.theta, atol=1e-6, rtol=1e-5)
    for ours, theirs in zip(traced.optimizer.tensors, eager.optimizer.tensors, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    assert traced.metrics() == pytest.approx(eager.metrics(), rel=1e-4)
    assert traced.optimizer.count == eager.optimizer.count


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_the_traced_step_equals_the_eager_one(compiler: Compiler, kind: str) -> None:
    def loss(model: Any, batch: Any, c: Any) -> Any:
        error = (model(batch["x"]) - batch["y"]).square().mean()
        return error, {"loss/error": error}

    def learner(compiler: Compiler | None) -> Learner:
        cfg = OptimizerConfig(type=kind, weight_decay=0.01)
        return Learner(layers(4, 2), loss, cfg, max_grad_norm=0.1, parts={"all": ("",)}, compiler=compiler)

    eager, traced = learner(None), learner(compiler)
    for batch in batches(6):
        for one in (eager, traced):
            one.step(batch, {"lr": 0.01})
    assert_same(eager, traced)


def test_the_traced_update_of_several_networks_equals_the_eager_one(compiler: Compiler) -> None:
    def update(nets: Any, batch: Any, c: Any, *, policy: bool) -> Any:
        with torch.no_grad():
            target = batch["y"][:, :1] + 0.9 * nets["target_critic"](batch["x"])
        critic = (nets["critic"](batch["x"]) - target).square().mean()
        nets.descend("critic", critic, c["lr"])
        if not policy:
            return critic, {"loss/critic": critic}
        actor = (nets["actor"](batch["x"]) * nets["critic"](batch["x"]).detach()).square().mean()
        nets.descend("actor", actor, c["lr"])
        nets.follow(c["tau"])
        return critic + actor, {"loss/critic": critic, "loss/actor": actor}

    def learner(compiler: Compiler | None) -> JointLearner:
        networks = {"critic": layers(4, 1), "actor": layers(4, 2)}
        parts = {"critic": ("critic",), "actor": ("actor",)}
        return JointLearner(
            networks, update, ADAM, parts=parts, targets=("critic",), max_grad_norm=0.05, compiler=compiler
        )

    eager, traced = learner(None), learner(compiler)
    for i, batch in enumerate(batches(6)):
        for one in (eager, traced):
            one.step(batch, {"lr": 0.01, "tau": 0.1}, policy=i % 2 == 1)
    assert_same(eager, traced)
