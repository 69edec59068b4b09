"""The learner equals torch's own optimizers, clipping and a polyak loop, group by group."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ludus.learning.flat import FlatParameters
from ludus.learning.learner import Group, Learner, Networks
from ludus.learning.optimizer import OptimizerConfig
from ludus.learning.traced import traced_norm, traced_share
from toy_learners import (
    CFG,
    LR,
    NUMBERS,
    TRAINED,
    actor_critic,
    batches,
    fit,
    joint,
    learner,
    network,
    networks,
    squared_error,
    transitions,
)

TORCH = {
    "adam": lambda p, c: torch.optim.Adam(p, lr=0.01, eps=c.eps, weight_decay=c.weight_decay),
    "adamw": lambda p, c: torch.optim.AdamW(p, lr=0.01, eps=c.eps, weight_decay=c.weight_decay),
    "sgd": lambda p, c: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=c.weight_decay),
}


def torch_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict) -> None:
    """What one update of ours must come to."""
    optimizer.zero_grad()
    squared_error(model, batch).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()


def assert_equal_weights(ours: nn.Module, reference: nn.Module) -> None:
    for a, b in zip(ours.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


# ---- one group ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_equals_torch_optim(kind: str, decay: float) -> None:
    cfg = OptimizerConfig(type=kind, weight_decay=decay)
    ours, reference = learner(cfg), network()
    optimizer = TORCH[kind](reference.parameters(), cfg)
    for batch in batches(20):
        ours.update(fit, batch, LR)
        torch_step(reference, optimizer, batch)
    assert_equal_weights(ours.model["net"], reference)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("prefix", ["0", "2", "2.bias"])
def test_a_rate_of_their_own_equals_groups_of_torch_optim(kind: str, prefix: str) -> None:
    cfg = OptimizerConfig(type=kind, weight_decay=0.05)
    ours, reference = learner(cfg, slow=(prefix,)), network()
    slow = [p for name, p in reference.named_parameters() if name.startswith(prefix)]
    others = [p for name, p in reference.named_parameters() if not name.startswith(prefix)]
    optimizer = TORCH[kind]([{"params": others}, {"params": slow}], cfg)
    for step, batch in enumerate(batches(20)):
        rate = 0.003 * (1 - step / 20)  # annealed on its own
        ours.update(fit, batch, {"lr": 0.01, "slow_lr": rate})
        optimizer.param_groups[1]["lr"] = rate
        torch_step(reference, optimizer, batch)
    assert_equal_weights(ours.model["net"], reference)


def test_a_rate_that_is_not_given_is_the_common_one() -> None:
    plain, same = learner(), learner()
    for batch in batches(5):
        plain.update(fit, batch, LR)
        same.update(fit, batch, {"lr": 0.01, "slow_lr": 0.01})
    torch.testing.assert_close(plain.theta, same.theta)


def test_rates_may_be_given_in_any_order() -> None:
    group = Group(("net",), OptimizerConfig(type="sgd", betas=(0.0, 0.999)), rates={"late": ("2",), "early": ("0",)})

    def update(nets: Networks, batch: dict, c: dict) -> dict:
        loss = squared_error(nets.net, batch)
        nets.step("net", loss, 1.0, late=c["late"], early=c["early"])
        return {"loss": loss}

    moved = []
    for late, early in ((1.0, 0.0), (0.0, 1.0)):
        ours = Learner({"net": network()}, {"net": group}, generator=np.random.default_rng(0))
        before = ours.layout.unflatten(ours.theta.clone())
        ours.update(update, batches(1)[0], {"late": late, "early": early})
        after = ours.layout.unflatten(ours.theta)
        moved.append({name for name in after if not torch.equal(before[name], after[name])})
    assert moved == [{"net.2.weight", "net.2.bias"}, {"net.0.weight", "net.0.bias"}]


def test_a_rate_for_no_parameters_changes_nothing() -> None:
    plain, none = learner(), learner(slow=("memory",))
    for batch in batches(3):
        plain.update(fit, batch, LR)
        none.update(fit, batch, {"lr": 0.01, "slow_lr": 1.0})
    torch.testing.assert_close(plain.theta, none.theta)


def test_a_short_gradient_is_not_stretched() -> None:
    free, clipped = (learner(OptimizerConfig(type="sgd"), max_grad_norm=norm) for norm in (None, 1_000.0))
    for one in (free, clipped):
        one.update(fit, batches(1)[0], LR)
    assert torch.equal(free.theta, clipped.theta)


@pytest.mark.parametrize("size", [1, 255, 256, 1000])
def test_compiled_updates_clip_as_eager_ones_do(size: int) -> None:
    grad = torch.randn(size, generator=torch.Generator().manual_seed(size))
    norm = traced_norm(grad)
    torch.testing.assert_close(norm, grad.norm())
    for longest in (0.5 * float(norm), 2.0 * float(norm)):
        torch.testing.assert_close(traced_share(longest, norm), torch.tensor(min(longest / float(norm), 1.0)))


# ---- flat storage ------------------------------------------------------------------------------------


def test_parameters_stay_views_after_loading() -> None:
    ours, other = learner(), learner()
    for batch in batches(3):
        ours.update(fit, batch, LR)
    other.load_state_dict(ours.state_dict())
    assert torch.equal(other.theta, ours.theta)
    other.theta.zero_()
    assert all(bool((p == 0).all()) for p in other.model.parameters())


def test_flatten_keeps_values() -> None:
    model, same = network(), network()
    flat = FlatParameters(model, ["2.bias", "0.", "2.weight"])
    assert flat.theta.numel() == sum(p.numel() for p in same.parameters())
    for a, b in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_parameter_in_no_group_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="exactly one group"):
        learner(parts={"in": ("0",)})


def test_a_stretch_has_no_gaps() -> None:
    flat = FlatParameters(network(), [""])
    assert flat.span(["0.bias", "2.weight"]) == slice(64, 64 + 16 + 32)
    with pytest.raises(AssertionError, match="not neighbours"):
        flat.span(["0.weight", "2.weight"])


# ---- several groups, slow copies ---------------------------------------------------------------------


class Reference:
    """The same with modules, torch.optim and a loop over parameters."""

    def __init__(self, limits: dict[str, float]) -> None:
        nets, self.limits, self.rng = networks(), limits, np.random.default_rng(0)
        self.nets = {**nets, **{f"target_{name}": copy.deepcopy(nets[name]) for name in ("trunk", "critic")}}
        self.__dict__.update(self.nets)
        self.optimizers = {
            "critic": torch.optim.Adam(self.parameters("critic"), lr=NUMBERS["lr"]),
            "actor": torch.optim.SGD(self.parameters("actor"), lr=NUMBERS["actor_lr"], momentum=0.5),
        }

    def parameters(self, group: str) -> list[nn.Parameter]:
        return [p for name in TRAINED[group] for p in self.nets[name].parameters()]

    def noise(self, shape) -> torch.Tensor:
        return torch.from_numpy(self.rng.standard_normal(tuple(shape), np.float32))

    def step(self, group: str, loss: torch.Tensor, lr: float) -> None:
        self.optimizers[group].zero_grad()
        loss.backward()
        if group in self.limits:
            nn.utils.clip_grad_norm_(self.parameters(group), self.limits[group])
        self.optimizers[group].step()

    @torch.no_grad()
    def polyak(self, name: str, tau: float) -> None:
        for slow, fast in zip(self.nets[f"target_{name}"].parameters(), self.nets[name].parameters(), strict=True):
            slow.mul_(1 - tau).add_(tau * fast)


@pytest.mark.parametrize("limits", [{}, {"critic": 0.05, "actor": 0.5}])
def test_groups_equal_separate_optimizers(limits: dict[str, float]) -> None:
    """Each with its own optimizer, learning rate and gradient norm; slow copies in any order."""
    ours, reference = joint(max_grad_norm=limits), Reference(limits)
    for i, batch in enumerate(transitions(20)):
        ours.update(actor_critic, batch, NUMBERS, policy=i % 2 == 0)
        list(actor_critic(reference, batch, NUMBERS, policy=i % 2 == 0))
    for name, module in reference.nets.items():
        for a, b in zip(ours.model[name].parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)
    assert {label: group.optimizer.count for label, group in ours.groups.items()} == {"actor": 10, "critic": 20}
    assert ours.updates == 20


def test_slow_copies_start_as_copies_and_move_by_tau() -> None:
    ours = joint()
    named = dict(ours.model.named_parameters())
    pairs = [(named[f"target_{name}"], fast) for name, fast in named.items() if f"target_{name}" in named]
    assert len(pairs) == 6 and all(torch.equal(slow, fast) for slow, fast in pairs)
    before = [slow.clone() for slow, _ in pairs]
    ours.update(actor_critic, transitions(1)[0], NUMBERS)
    for old, (slow, fast) in zip(before, pairs, strict=True):
        torch.testing.assert_close(slow, torch.lerp(old, fast, NUMBERS["tau"]))
        assert not slow.requires_grad
    ours.polyak("critic", 1.0)
    assert torch.equal(ours.model["target_critic"][0].weight, ours.model["critic"][0].weight)
    assert not torch.equal(ours.model["target_trunk"].weight, ours.model["trunk"].weight)


def test_slow_copies_follow_whatever_the_order_of_the_flat_tensor() -> None:
    """Parts order the parameters of a group by their own."""
    group = Group(("net",), CFG, parts={"out": ("2",), "in": ("0",)})
    ours = Learner({"net": network()}, {"net": group}, targets=["net"], generator=np.random.default_rng(0))
    ours.theta[:100].add_(torch.arange(100.0))
    ours.polyak("net", 1.0)
    for slow, fast in zip(ours.model["target_net"].parameters(), ours.model["net"].parameters(), strict=True):
        assert torch.equal(slow, fast)


def test_several_functions_work_on_the_same_networks() -> None:
    """A world model and its controller, say: each function has its own metrics and steps only its own group."""

    def imitate(nets, batch, c):
        loss = (nets.actor(nets.trunk(batch["x"]).detach()) - batch["a"]).square().mean()
        nets.step("actor", loss, c["lr"])
        return {"loss/imitation": loss}

    ours, (batch,) = joint(), transitions(1)
    critic = ours.model["critic"][0].weight.clone()
    assert ours.update(imitate, batch, {"lr": 0.1}) == {}
    assert torch.equal(ours.model["critic"][0].weight, critic)
    ours.update(actor_critic, batch, NUMBERS, policy=False)
    assert not torch.equal(ours.model["critic"][0].weight, critic)
    assert {"loss/imitation", "loss/critic"} <= set(ours.metrics())


# ---- outputs, noise, accumulation --------------------------------------------------------------------


def test_outputs_are_returned_and_the_batch_stays_as_it_is() -> None:
    ours, (batch,) = joint(), transitions(1)
    before = {name: column.clone() for name, column in batch.items()}
    outputs = ours.update(actor_critic, batch, NUMBERS)
    assert outputs["error"].shape == (1, 16)
    assert set(batch) == set(before) and all(torch.equal(batch[name], before[name]) for name in before)


def test_noise_comes_from_the_generator_in_the_order_of_the_calls() -> None:
    seen = []

    def function(nets, batch, c):
        seen.extend([nets.noise((1, 3, 2)), nets.noise((2, 3, 1))])
        return fit(nets, batch, c)

    learner().update(function, batches(1)[0], LR)
    rng = np.random.default_rng(0)
    for noise in seen:
        np.testing.assert_array_equal(noise.numpy(), rng.standard_normal(noise.shape, np.float32))


def test_other_noise_gives_other_weights() -> None:
    one, other = joint(seed=0), joint(seed=1)
    for each in (one, other):
        each.update(actor_critic, transitions(1)[0], NUMBERS)
    assert not torch.equal(one.theta, other.theta)


def time_major(size: int) -> dict:
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(3, size, 4, generator=generator), torch.randn(3, size, 2, generator=generator)
    return {"x": x, "y": y, "state": (torch.arange(size),), "scale": torch.ones(5)}


@pytest.mark.parametrize(("size", "count"), [(8, 4), (7, 3), (3, 5)])
def test_accumulated_gradients_are_those_of_the_whole_batch(size: int, count: int) -> None:
    """Also where parts differ in size; three steps, so that Adam and clipping see the same too."""
    whole, parts = learner(), learner()
    for _ in range(3):
        whole.update(fit, time_major(size), LR)
        parts.update(fit, time_major(size), LR, accumulate=count)
        torch.testing.assert_close(parts.grad, whole.grad, atol=1e-7, rtol=1e-5)
    torch.testing.assert_close(parts.theta, whole.theta, atol=1e-6, rtol=1e-5)
    assert parts.metrics() == pytest.approx(whole.metrics(), rel=1e-4)
    assert parts.updates == 3


@pytest.mark.parametrize("count", [2, 3, 16])
def test_an_actor_critic_accumulates_step_by_step(count: int) -> None:
    """The actor's gradient is that along the critic after its step; noise, errors and slow copies are the same too."""
    whole, parts = (joint(max_grad_norm={"critic": 0.05}) for _ in range(2))
    for batch in transitions(4):
        expected = whole.update(actor_critic, batch, NUMBERS)
        found = parts.update(actor_critic, batch, NUMBERS, accumulate=count)
        torch.testing.assert_close(found["error"], expected["error"], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(parts.theta, whole.theta, atol=1e-6, rtol=1e-4)
    assert parts.metrics() == pytest.approx(whole.metrics(), rel=1e-3)
    assert [group.optimizer.count for group in parts.groups.values()] == [4, 4]


def test_several_steps_without_a_yield_cannot_accumulate() -> None:
    def hasty(nets, batch, c):
        fit(nets, batch, c)
        return fit(nets, batch, c)

    learner().update(hasty, time_major(4), LR)
    with pytest.raises(TypeError, match="has to yield"):
        learner().update(hasty, time_major(4), LR, accumulate=2)


def test_every_draw_of_an_accumulated_update_is_another_one() -> None:
    def noisy(nets, batch, c):
        value = nets.critic(torch.cat([nets.trunk(batch["x"]), batch["a"]], -1))
        error = value - nets.noise(value.shape) * nets.noise(value.shape)
        nets.step("critic", error.square().mean(), c["lr"])
        return {"loss/critic": error.mean()}

    whole, parts = joint(), joint()
    whole.update(noisy, transitions(1)[0], NUMBERS)
    parts.update(noisy, transitions(1)[0], NUMBERS, accumulate=2)
    torch.testing.assert_close(parts.theta, whole.theta, atol=1e-6, rtol=1e-4)
    assert not whole.updating, "modules are compiled in updates only"


def test_noise_without_a_column_for_each_sample_cannot_be_cut() -> None:
    """Cut along another dimension it would be broadcast, and nobody would notice."""

    def noisy(nets, batch, c):
        value = nets.critic(torch.cat([nets.trunk(batch["x"]), batch["a"]], -1)).squeeze(-1)
        error = value - nets.noise(value.shape)
        nets.step("critic", error.square().mean(), c["lr"])
        return {"loss/critic": error.mean()}

    joint().update(noisy, transitions(1)[0], NUMBERS)
    with pytest.raises(TypeError, match=r"noise of shape \(1, 8\).*\[\.\.\., B, D\]"):
        joint().update(noisy, transitions(1)[0], NUMBERS, accumulate=2)


# ---- mistakes of an update function --------------------------------------------------------------


def stale(nets, batch, c):
    """The actor's loss was computed with the critic before its step."""
    features = nets.trunk(batch["x"])
    critic = nets.critic(torch.cat([features, batch["a"]], -1)).square().mean()
    features = features.detach()
    actor = -nets.critic(torch.cat([features, nets.actor(features)], -1)).mean()
    nets.step("critic", critic, c["lr"])
    nets.step("actor", actor, c["actor_lr"])
    return {"loss/actor": actor}


def through_the_slow_copy(nets, batch, c):
    """The slow copy moves between the loss and its gradient."""
    features = nets.trunk(batch["x"]).detach()
    actor = -nets.target_critic(torch.cat([features, nets.actor(features)], -1)).mean()
    nets.polyak("critic", c["tau"])
    nets.step("actor", actor, c["actor_lr"])
    return {"loss/actor": actor}


@pytest.mark.parametrize("function", [stale, through_the_slow_copy])
def test_a_loss_of_weights_that_have_moved_since_is_refused(function) -> None:
    """Its gradient would be that of other weights, and compiled updates would take the right one."""
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        joint().update(function, transitions(1)[0], NUMBERS)


def test_columns_that_a_function_adds_to_its_batch_are_its_own() -> None:
    """As in a compiled or accumulated update: the caller may use the batch again."""

    def writes(nets, batch, c):
        batch["x"] = batch["x"] * 2
        return fit(nets, batch, c)

    (batch,) = batches(1)
    before = batch["x"]
    learner().update(writes, batch, LR)
    assert batch["x"] is before


def test_an_unknown_network_cannot_be_followed() -> None:
    def misspelt(nets, batch, c):
        found = fit(nets, batch, c)
        nets.polyak("nett", 0.5)
        return found

    with pytest.raises(KeyError, match="there is no network 'nett' among net"):
        learner().update(misspelt, batches(1)[0], LR)


def test_an_unknown_group_cannot_take_a_step() -> None:
    def misspelt(nets, _, c):
        nets.step("nett", torch.zeros(()), c["lr"])

    with pytest.raises(KeyError, match="there is no group 'nett' among"):
        learner().update(misspelt, batches(1)[0], LR)


@pytest.mark.parametrize("returned", [None, {"loss": 0.5}, ({}, None), ({"loss": torch.zeros(())}, [1])])
def test_an_update_that_returns_no_tensors_is_told_so(returned: Any) -> None:
    with pytest.raises(TypeError, match=r"an update returns metrics, or \(metrics, outputs\), as dicts of tensors"):
        learner().update(lambda *_: returned, batches(1)[0], LR)


@pytest.mark.parametrize("name", ["step", "noise", "norms"])
def test_a_network_cannot_hide_what_nets_can_do(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' cannot be the name of a network"):
        Learner({name: nn.Linear(1, 1)}, {}, generator=np.random.default_rng(0))


# ---- metrics and state -------------------------------------------------------------------------------


def test_metrics_are_means_since_the_last_call() -> None:
    ours = learner()
    seen = []
    for batch in batches(4):
        with torch.no_grad():
            seen.append(float(squared_error(ours.model["net"], batch)))
        ours.update(fit, batch, LR)
    metrics = ours.metrics()
    assert metrics["loss/error"] == pytest.approx(sum(seen) / 4, rel=1e-5)
    assert metrics["opt/grads/norm/all"] == pytest.approx(
        (metrics["opt/grads/norm/in"] ** 2 + metrics["opt/grads/norm/out"] ** 2) ** 0.5, rel=0.05
    )
    assert ours.metrics() == {}


def test_metrics_of_other_flags_are_means_of_their_own() -> None:
    ours = joint()
    for i, batch in enumerate(transitions(9)):
        ours.update(actor_critic, batch, NUMBERS, policy=i % 3 == 0)
    assert sorted(sums.count for sums in ours.sums.kinds.values()) == [3, 6]
    metrics = ours.metrics()
    assert {"loss/critic", "loss/actor", "opt/grads/norm/critic", "opt/grads/norm/actor"} <= set(metrics)
    assert ours.metrics() == {}


def test_a_metric_of_several_kinds_of_updates_is_the_mean_of_all() -> None:
    ours, seen = joint(), []
    for i, batch in enumerate(transitions(9)):
        ours.update(actor_critic, batch, NUMBERS, policy=i % 3 == 0)
        seen.append(ours.last("loss/critic"))
    assert ours.metrics()["loss/critic"] == pytest.approx(sum(seen) / 9, rel=1e-5)


def test_the_last_update_can_be_asked_for() -> None:
    ours, (one, other) = joint(), transitions(2)
    ours.update(actor_critic, one, NUMBERS)
    ours.metrics()
    ours.update(actor_critic, other, NUMBERS)
    newest = ours.last("loss/critic")
    assert ours.metrics()["loss/critic"] == pytest.approx(newest)


def test_every_update_is_a_new_version() -> None:
    ours = learner()
    ours.update(fit, batches(1)[0], LR)
    assert ours.version == 1
    ours.load_state_dict(ours.state_dict())
    assert ours.version == 2


def test_a_watched_learner_names_what_is_not_finite_and_keeps_it_out_of_the_metrics() -> None:
    ours = learner()
    ours.watched = True
    good, bad = batches(2)
    ours.update(fit, good, LR)
    assert ours.take_bad() is None
    ours.update(fit, {**bad, "y": bad["y"] * torch.nan}, LR)
    assert ours.take_bad() == "loss/error"
    assert ours.take_bad() is None
    assert all(value == value for value in ours.metrics().values())


def test_state_goes_on_exactly() -> None:
    one, other = joint(), joint(seed=5)
    for batch in transitions(5):
        one.update(actor_critic, batch, NUMBERS)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    other.generator.bit_generator.state = one.generator.bit_generator.state  # a stream of the run, saved with it
    for batch in transitions(5):
        one.update(actor_critic, batch, NUMBERS)
        other.update(actor_critic, batch, NUMBERS)
    assert torch.equal(one.theta, other.theta)
    other.theta.zero_()
    assert all(bool((p == 0).all()) for p in other.model.parameters()), "parameters are views of the flat tensor"
