"""The flat learner equals torch's optimizers, and its compiled step equals its eager one."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

from ludus.learning.compiled import Compiler
from ludus.learning.learner import Layout, Learner, flatten, parts_of
from ludus.learning.optimizer import OptimizerConfig, traced_norm, traced_share


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


def squared_error(model, batch, c):
    loss = (model(batch["x"]) - batch["y"]).square().mean()
    return loss, {"loss/error": loss}


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "x": torch.randn(8, 4, generator=generator),
            "y": torch.randn(8, 2, generator=generator),
            "first": torch.zeros(8, dtype=torch.bool),
        }
        for _ in range(count)
    ]


def learner(cfg: OptimizerConfig, **kwargs) -> Learner:
    return Learner(network(), squared_error, cfg, max_grad_norm=0.1, parts={"in": ("0",), "out": ("2",)}, **kwargs)


SLOW_INPUT = {"slow_lr": ("0",)}
TORCH = {
    "adam": lambda p, c: torch.optim.Adam(p, lr=0.01, eps=c.eps, weight_decay=c.weight_decay),
    "adamw": lambda p, c: torch.optim.AdamW(p, lr=0.01, eps=c.eps, weight_decay=c.weight_decay),
    "sgd": lambda p, c: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=c.weight_decay),
}


def torch_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict) -> None:
    """What one step of ours must come to."""
    optimizer.zero_grad()
    squared_error(model, batch, {})[0].backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()


def assert_equal_weights(ours: nn.Module, reference: nn.Module) -> None:
    for a, b in zip(ours.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_equals_torch_optim(kind: str, decay: float) -> None:
    cfg = OptimizerConfig(type=kind, weight_decay=decay)
    ours, reference = learner(cfg), network()
    optimizer = TORCH[kind](reference.parameters(), cfg)
    for batch in batches(20):
        ours.step(batch, {"lr": 0.01})
        torch_step(reference, optimizer, batch)
    assert_equal_weights(ours.model, reference)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("prefix", ["0", "2", "2.bias"])
def test_a_rate_of_their_own_equals_groups_of_torch_optim(kind: str, prefix: str) -> None:
    cfg = OptimizerConfig(type=kind, weight_decay=0.05)
    ours, reference = learner(cfg, rates={"slow_lr": (prefix,)}), network()
    slow = [p for name, p in reference.named_parameters() if name.startswith(prefix)]
    others = [p for name, p in reference.named_parameters() if not name.startswith(prefix)]
    optimizer = TORCH[kind]([{"params": others}, {"params": slow}], cfg)
    for step, batch in enumerate(batches(20)):
        rate = 0.003 * (1 - step / 20)  # annealed on its own
        ours.step(batch, {"lr": 0.01, "slow_lr": rate})
        optimizer.param_groups[1]["lr"] = rate
        torch_step(reference, optimizer, batch)
    assert_equal_weights(ours.model, reference)


def test_a_rate_that_is_not_given_is_the_common_one() -> None:
    plain, able, same = learner(OptimizerConfig()), *(learner(OptimizerConfig(), rates=SLOW_INPUT) for _ in range(2))
    for batch in batches(5):
        plain.step(batch, {"lr": 0.01})
        able.step(batch, {"lr": 0.01})
        same.step(batch, {"lr": 0.01, "slow_lr": 0.01})
    assert torch.equal(plain.theta, able.theta)
    torch.testing.assert_close(plain.theta, same.theta)


def test_a_rate_for_no_parameters_changes_nothing() -> None:
    plain, none = learner(OptimizerConfig()), learner(OptimizerConfig(), rates={"slow_lr": ("memory",)})
    for batch in batches(3):
        plain.step(batch, {"lr": 0.01})
        none.step(batch, {"lr": 0.01, "slow_lr": 1.0})
    torch.testing.assert_close(plain.theta, none.theta)


def test_parameters_stay_views_after_loading() -> None:
    ours, other = learner(OptimizerConfig()), learner(OptimizerConfig())
    for batch in batches(3):
        ours.step(batch, {"lr": 0.01})
    other.load_state_dict(ours.state_dict())
    assert torch.equal(other.theta, ours.theta)
    other.theta.zero_()
    assert all(bool((p == 0).all()) for p in other.model.parameters())


def test_metrics_are_means_since_the_last_call() -> None:
    ours = learner(OptimizerConfig())
    seen = []
    for batch in batches(4):
        with torch.no_grad():
            seen.append(float(squared_error(ours.model, batch, {})[0]))
        ours.step(batch, {"lr": 0.01})
    metrics = ours.metrics()
    assert metrics["loss/error"] == pytest.approx(sum(seen) / 4, rel=1e-5)
    assert metrics["opt/grads/norm/all"] == pytest.approx(
        (metrics["opt/grads/norm/in"] ** 2 + metrics["opt/grads/norm/out"] ** 2) ** 0.5, rel=0.05
    )
    assert ours.metrics() == {}


def test_a_parameter_in_no_part_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="in no part"):
        Layout(network(), {"in": ("0",)})


def test_flatten_keeps_values() -> None:
    model, same = network(), network()
    theta, _ = flatten(model, Layout(model, {"all": ("",)}))
    assert theta.numel() == sum(p.numel() for p in same.parameters())
    for a, b in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
def test_compiled_equals_eager_and_is_cached(tmp_path) -> None:
    told: list[str] = []

    def compiler() -> Compiler:
        return Compiler("always", planned={8: 1}, folder=tmp_path, announce=told.append)

    eager = learner(OptimizerConfig())
    built = learner(OptimizerConfig(), compiler=compiler())
    cached = learner(OptimizerConfig(), compiler=compiler())
    for batch in batches(10):
        for one in (eager, built, cached):
            one.step(batch, {"lr": 0.01})
    assert len(told) == 1, "the second learner finds the package of the first"
    assert built.compiler.describe() == cached.compiler.describe() == "compiled"
    torch.testing.assert_close(built.theta, eager.theta, atol=1e-6, rtol=1e-5)
    assert torch.equal(built.theta, cached.theta)
    assert eager.metrics() == pytest.approx(built.metrics(), rel=1e-4)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
def test_compiled_equals_eager_with_a_rate_of_their_own(tmp_path) -> None:
    eager = learner(OptimizerConfig(), rates=SLOW_INPUT)
    compiler = Compiler("always", planned={8: 1}, folder=tmp_path)
    built = learner(OptimizerConfig(), rates=SLOW_INPUT, compiler=compiler)
    for step, batch in enumerate(batches(10)):
        for one in (eager, built):
            one.step(batch, {"lr": 0.01, "slow_lr": 1e-3 / (step + 1)})
    assert compiler.describe() == "compiled"
    torch.testing.assert_close(built.theta, eager.theta, atol=1e-6, rtol=1e-5)


def test_auto_builds_nothing_for_a_short_run(tmp_path) -> None:
    short = Compiler("auto", planned={8: 100}, folder=tmp_path)
    ours = learner(OptimizerConfig(), compiler=short)
    ours.step(batches(1)[0], {"lr": 0.01})
    assert short.describe() == "eager (100 updates are planned, compiling pays from 30,000 on)"
    assert not list(tmp_path.iterdir())


def time_major(size: int) -> dict:
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(3, size, 4, generator=generator), torch.randn(3, size, 2, generator=generator)
    return {"x": x, "y": y, "state": (torch.arange(size),)}


@pytest.mark.parametrize(("size", "count"), [(8, 4), (7, 3), (3, 5)])
def test_accumulated_gradients_are_those_of_the_whole_batch(size: int, count: int) -> None:
    """Also where parts differ in size; three steps, so that Adam and clipping see the same too."""
    whole, parts = learner(OptimizerConfig()), learner(OptimizerConfig())
    for _ in range(3):
        whole.step(time_major(size), {"lr": 0.01})
        parts.step(time_major(size), {"lr": 0.01}, accumulate=count)
        torch.testing.assert_close(parts.grad, whole.grad, atol=1e-7, rtol=1e-5)
    torch.testing.assert_close(parts.theta, whole.theta, atol=1e-6, rtol=1e-5)
    assert parts.metrics() == pytest.approx(whole.metrics(), rel=1e-4)
    assert parts.optimizer.count == 3


def test_parts_are_the_batch_and_nothing_else() -> None:
    batch = time_major(7)
    found = parts_of(batch, 3)
    assert [round(7 * share) for share, _ in found] == [3, 2, 2]
    assert torch.equal(torch.cat([part["x"] for _, part in found], 1), batch["x"])
    assert torch.equal(torch.cat([part["state"][0] for _, part in found]), batch["state"][0])


@pytest.mark.parametrize("size", [1, 255, 256, 1000])
def test_compiled_updates_clip_as_eager_ones_do(size: int) -> None:
    grad = torch.randn(size, generator=torch.Generator().manual_seed(size))
    norm = traced_norm(grad)
    torch.testing.assert_close(norm, grad.norm())
    for longest in (0.5 * float(norm), 2.0 * float(norm)):
        torch.testing.assert_close(traced_share(longest, norm), torch.tensor(min(longest / float(norm), 1.0)))


def test_a_short_gradient_is_not_stretched() -> None:
    free, clipped = (
        Learner(network(), squared_error, OptimizerConfig(type="sgd"), max_grad_norm=norm, parts={"all": ("",)})
        for norm in (None, 1_000.0)
    )
    for one in (free, clipped):
        one.step(batches(1)[0], {"lr": 0.01})
    assert torch.equal(free.theta, clipped.theta)


def test_metrics_of_other_flags_are_means_of_their_own() -> None:
    def loss(model, batch, c, *, more=False):
        error = (model(batch["x"]) - batch["y"]).square().mean()
        return error, {"loss/error": error, **({"loss/more": error * 0 + 3.0} if more else {})}

    ours = Learner(network(), loss, OptimizerConfig(), max_grad_norm=None, parts={"all": ("",)})
    for more in (False, True, True):
        ours.step(batches(1)[0], {"lr": 0.01}, more=more)
    assert ours.metrics()["loss/more"] == 3.0
    assert ours.last("loss/more") == 3.0


def test_a_watched_learner_names_what_is_not_finite_and_keeps_it_out_of_the_metrics() -> None:
    ours = learner(OptimizerConfig())
    ours.watched = True
    good, bad = batches(2)
    ours.step(good, {"lr": 0.01})
    assert ours.take_bad() is None
    ours.step({**bad, "y": bad["y"] * torch.nan}, {"lr": 0.01})
    assert ours.take_bad() == "loss/error"
    assert ours.take_bad() is None
    assert all(value == value for value in ours.metrics().values())
