"""The joint learner equals separate optimizers and a polyak loop, and its compiled update equals its eager one."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch
from torch import nn

from ludus.learning.compiled import Compiler
from ludus.learning.joint_learner import JointLearner
from ludus.learning.optimizer import OptimizerConfig

NUMBERS = {"lr": 0.01, "actor_lr": 0.02, "tau": 0.1}
CFG = OptimizerConfig(eps=1e-8)


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "trunk": nn.Linear(4, 6),
        "critic": nn.Sequential(nn.Linear(6 + 2, 8), nn.Tanh(), nn.Linear(8, 1)),
        "actor": nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)),
    }


def update(nets, batch, c, *, policy=True):
    """The shape of every off-policy actor-critic: the actor climbs the critic that was just changed."""
    features = nets["trunk"](batch["x"])
    with torch.no_grad():
        following = nets["target_trunk"](batch["y"])
        target = batch["r"] + 0.9 * nets["target_critic"](torch.cat([following, nets["actor"](following)], -1))
    critic = (nets["critic"](torch.cat([features, batch["a"]], -1)) - target).square().mean()
    nets.descend("critic", critic, c["lr"])
    if not policy:
        return critic, {"loss/critic": critic}
    features = features.detach()
    actor = -nets["critic"](torch.cat([features, nets["actor"](features)], -1)).mean()
    nets.descend("actor", actor, c["actor_lr"])
    nets.follow(c["tau"])
    return critic + actor, {"loss/critic": critic, "loss/actor": actor}


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    g = torch.Generator().manual_seed(1)
    shapes = {"x": 4, "y": 4, "a": 2, "r": 1}
    first = {"first": torch.zeros(16, dtype=torch.bool)}
    return [{name: torch.randn(16, size, generator=g) for name, size in shapes.items()} | first for _ in range(count)]


def learner(**kwargs) -> JointLearner:
    parts = {"critic": ("trunk", "critic"), "actor": ("actor",)}
    return JointLearner(networks(), update, CFG, parts=parts, targets=("trunk", "critic"), **kwargs)


class Reference:
    """The same with modules, torch.optim and a loop over parameters."""

    def __init__(self, max_grad_norm: float | None) -> None:
        self.nets, self.limit = networks(), max_grad_norm
        for name in ("trunk", "critic"):
            self.nets[f"target_{name}"] = copy.deepcopy(self.nets[name])
        self.parts = {"critic": ("trunk", "critic"), "actor": ("actor",)}
        self.optimizers = {
            part: torch.optim.Adam(self.parameters(names), lr=NUMBERS["lr" if part == "critic" else "actor_lr"])
            for part, names in self.parts.items()
        }

    def parameters(self, names) -> list[nn.Parameter]:
        return [p for name in names for p in self.nets[name].parameters()]

    def __getitem__(self, name: str) -> nn.Module:
        return self.nets[name]

    def descend(self, part: str, loss: torch.Tensor, lr: float) -> None:
        self.optimizers[part].zero_grad()
        loss.backward()
        if self.limit is not None:
            nn.utils.clip_grad_norm_(self.parameters(self.parts[part]), self.limit)
        self.optimizers[part].step()

    def follow(self, tau: float) -> None:
        with torch.no_grad():
            for name in ("trunk", "critic"):
                for slow, fast in zip(
                    self.nets[f"target_{name}"].parameters(), self.nets[name].parameters(), strict=True
                ):
                    slow.mul_(1 - tau).add_(tau * fast)


@pytest.mark.parametrize("max_grad_norm", [None, 0.05])
def test_equals_separate_optimizers(max_grad_norm: float | None) -> None:
    ours, reference = learner(max_grad_norm=max_grad_norm), Reference(max_grad_norm)
    for i, batch in enumerate(batches(20)):
        ours.step(batch, NUMBERS, policy=i % 2 == 0)
        update(reference, batch, NUMBERS, policy=i % 2 == 0)
    for name, module in reference.nets.items():
        for a, b in zip(ours.model[name].parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)
    assert (ours.optimizer.parts["critic"].count, ours.optimizer.parts["actor"].count) == (20, 10)


def test_targets_start_as_copies_and_move_by_tau() -> None:
    ours = learner()
    target = ours.layout.parts["target"]
    before = ours.theta.clone()
    assert torch.equal(before[target], before[ours.followed])
    ours.step(batches(1)[0], NUMBERS)
    expected = torch.lerp(before[target], ours.theta[ours.followed], NUMBERS["tau"])
    torch.testing.assert_close(ours.theta[target], expected)


def test_metrics_of_other_flags_are_means_of_their_own() -> None:
    ours = learner()
    for i, batch in enumerate(batches(9)):
        ours.step(batch, NUMBERS, policy=i % 3 == 0)
    assert sorted(variant.count for variant in ours._variants.values()) == [3, 6]
    metrics = ours.metrics()
    assert {"loss/critic", "loss/actor", "opt/grads/norm/critic", "opt/grads/norm/actor"} <= set(metrics)
    assert ours.metrics() == {}


def test_state_goes_on_exactly() -> None:
    one, other = learner(), learner()
    for batch in batches(5):
        one.step(batch, NUMBERS)
    state = copy.deepcopy(one.state_dict())
    other.load_state_dict(state)
    for batch in batches(5):
        one.step(batch, NUMBERS)
        other.step(batch, NUMBERS)
    assert torch.equal(one.theta, other.theta)
    other.theta.zero_()
    assert all(bool((p == 0).all()) for p in other.model.parameters()), "parameters are views of the flat tensor"


def test_targets_must_be_the_first_parts() -> None:
    with pytest.raises(AssertionError, match="first parts"):
        JointLearner(
            networks(), update, CFG, parts={"actor": ("actor",), "critic": ("trunk", "critic")}, targets=("trunk",)
        )


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
def test_compiled_equals_eager_for_every_set_of_flags(tmp_path) -> None:
    eager = learner(max_grad_norm=1.0)
    built = learner(max_grad_norm=1.0, compiler=Compiler("always", planned={16: 1}, folder=tmp_path))
    for i, batch in enumerate(batches(8)):
        for one in (eager, built):
            one.step(batch, NUMBERS, policy=i % 2 == 0)
    assert built.compiler.describe() == "compiled"
    assert len(list(tmp_path.glob("*.so"))) == 2
    torch.testing.assert_close(built.theta, eager.theta, atol=1e-6, rtol=1e-4)
    assert eager.metrics() == pytest.approx(built.metrics(), rel=1e-3)
