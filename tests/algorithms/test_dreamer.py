"""Dreamer: gradients of its policy on a toy world, what its hooks hand each other, its switches."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from ludus.algorithms._dreamer_variants import VARIANTS
from ludus.algorithms._world import SIZES
from ludus.algorithms.dreamer import Dreamer, DreamerConfig
from ludus.components.actor import WorldActorConfig, WorldPolicy
from ludus.config.compose import load
from ludus.errors import ConfigError
from ludus.learning import package
from ludus.session.loading import transfer
from support import build, close, config, moment

# ---- a toy world: linear, known ----------------------------------------------------------------------

GAMMA, LAM = 0.9, 0.8
HOW: dict[str, Any] = {
    "horizon": 1, "imagine_last": None, "actor_gradient": "dynamics", "return_normalization": False,
    "slow_critic": "none", "replay_critic_scale": 0.0, "entropy": False,
}  # fmt: skip
MOVES = torch.tensor([[0.9, 0.2], [-0.3, 0.8]], dtype=torch.float64)
START = torch.tensor([0.4, -0.7], dtype=torch.float64)


class ToyWorld(torch.nn.Module):
    """x' = x M + a K, reward -(x' - goal)^2; it is as it is."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.push = torch.nn.Parameter(torch.randn(actions, 2, dtype=torch.float64, generator=generator))
        self.representation = SimpleNamespace(noise_dim=0)
        self.reward = Head(lambda x: -(x - torch.tensor([0.3, 0.1])).square().sum(-1))

    def features(self, state: dict[str, torch.Tensor]) -> torch.Tensor:
        return state["x"]

    def imagine(self, state: dict[str, torch.Tensor], action: torch.Tensor, noise: Any) -> dict[str, torch.Tensor]:
        return {"x": state["x"] @ MOVES + action @ self.push}

    def lives(self, features: torch.Tensor, otherwise: float) -> torch.Tensor:
        return torch.full_like(features[..., 0], GAMMA)


class Head:
    """A head whose parameters are the features and whose mean is a given function of them."""

    def __init__(self, mean: Any) -> None:
        self.mean = mean

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        return features

    def loss(self, params: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (self.mean(params) - target).square()


def value(x: torch.Tensor) -> torch.Tensor:
    return x[..., 0] * 0.7 - x[..., 1].square()


def toy(space: gym.Space, noise: Any, **actor: Any) -> Any:
    """Networks of a toy world with a real policy, in double precision."""
    torch.manual_seed(1)
    policy = WorldPolicy(WorldActorConfig(layers=1, units=4, output_scale=1.0, **actor), 2, space).double()
    torch.nn.init.normal_(policy.output.bias, std=0.5)
    width = int(getattr(space, "n", 0)) or 1
    slow = Head(lambda x: value(x) + 5)
    nets = SimpleNamespace(world=ToyWorld(width), actor=policy, critic=Head(value), target_critic=slow, noise=noise)
    nets.fixed = torch.no_grad()(lambda function, given: function(nets, given))
    nets.whole = lambda columns: columns  # one rank
    return nets


def losses(
    nets: Any, count: int, *, scale: tuple[float, float] = (0.0, 0.0), terminal: bool = False, **how: Any
) -> Any:
    algorithm = object.__new__(Dreamer)
    batch = {"terminal": torch.full((1, count), terminal), "first": torch.ones(1, count, dtype=torch.bool),
             "scale": torch.tensor(scale, dtype=torch.float64)}  # fmt: skip
    c = {"gamma": GAMMA, "lam": LAM, "entropy": how.pop("entropy_coef", 0.0), "mix": how.pop("mix", 0.1)}
    states = {"x": START.expand(1, count, 2)}
    return algorithm.controller_losses(nets, batch, states, c, **{**HOW, **how})


BOX, THREE = gym.spaces.Box(-1, 1, (1,), np.float32), gym.spaces.Discrete(3)


def fixed(seed: int = 0) -> Any:
    return lambda shape: torch.randn(tuple(shape), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("distribution", ["normal", "tanh_normal", "truncated_normal"])
def test_the_gradient_through_the_world_equals_finite_differences(distribution: str, horizon: int) -> None:
    """Of the mean of weighted lambda-returns, with respect to a policy that does not look: states are detached."""
    nets = toy(BOX, fixed(), distribution=distribution)
    torch.nn.init.zeros_(nets.actor.output.weight)
    bias = nets.actor.output.bias

    def objective() -> torch.Tensor:
        return losses(nets, 40, horizon=horizon)[0]

    (found,) = torch.autograd.grad(objective(), bias)
    for i in range(len(bias)):
        ends = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                bias[i] += step
                ends.append(objective().item())
                bias[i] -= step
        assert found[i].item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7)
    assert found.abs().min() > 1e-4


def chunks(nets: Any, count: int, **how: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean, standard error) of the policy's gradient over many draws."""
    found = []
    for seed in range(20):
        nets.noise = fixed(seed)
        loss = losses(nets, count, **how)[0]
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(nets.actor.parameters()))]))
    stacked = torch.stack(found)
    return stacked.mean(0), stacked.std(0) / 20**0.5


@pytest.mark.parametrize("distribution", ["normal", "tanh_normal", "truncated_normal"])
def test_both_gradients_have_the_same_expectation(distribution: str) -> None:
    """One step ahead, where the two estimate the same thing; the baseline biases nothing."""
    nets = toy(BOX, None, distribution=distribution)
    (ours, error), (theirs, other) = (chunks(nets, 4000, actor_gradient=kind) for kind in ("reinforce", "dynamics"))
    assert theirs.abs().max() > 0.03
    assert ((ours - theirs).abs() < 5 * (error.square() + other.square()).sqrt() + 1e-9).all()


@pytest.mark.parametrize("gradient", ["reinforce", "both"])
def test_the_gradient_by_log_probabilities_is_that_of_all_trajectories(gradient: str) -> None:
    """Three actions, two steps, written out: lambda-returns, advantages, weights; `both` has a tenth of it."""
    nets = toy(THREE, None, unimix=0.02)
    actor, push = nets.actor, nets.world.push.detach()
    expected = torch.zeros(())
    for a in range(3):
        for b in range(3):
            x0 = START
            x1 = x0 @ MOVES + push[a]
            x2 = x1 @ MOVES + push[b]
            reward1, reward2 = nets.world.reward.mean(x1), nets.world.reward.mean(x2)
            return1 = reward2 + GAMMA * value(x2)
            return0 = reward1 + GAMMA * ((1 - LAM) * value(x1) + LAM * return1)
            log0, log1 = actor(x0)[a], actor(x1)[b]
            chance = (log0 + log1).exp().detach()
            terms = log0 * (return0 - value(x0)) + GAMMA * log1 * (return1 - value(x1))
            expected = expected - chance * terms / 2
    (exact,) = torch.autograd.grad(expected, actor.output.bias)
    mix = 1.0 if gradient == "reinforce" else 0.1
    (ours, error), (through, _) = (
        chunks(nets, 3000, horizon=2, actor_gradient=kind) for kind in (gradient, "dynamics")
    )
    at = slice(-len(exact), None)
    rest = 0.0 if gradient == "reinforce" else 0.9 * through[at]
    assert exact.abs().max() > 0.05
    assert ((ours[at] - rest - mix * exact).abs() < 5 * error[at] + 1e-9).all()


@pytest.mark.parametrize("distribution", ["normal", "tanh_normal", "truncated_normal"])
def test_a_draw_counts_as_given_where_its_log_probability_is_taken(distribution: str) -> None:
    """Also where the draw itself has a gradient, for the way through the world."""
    nets = toy(BOX, fixed(), distribution=distribution)
    bias = nets.actor.output.bias
    kinds = {"reinforce": 0.1, "both": 1.0}  # nothing but log-probabilities
    found = [
        torch.autograd.grad(losses(nets, 50, horizon=2, actor_gradient=kind, mix=mix)[0], bias)[0]
        for kind, mix in kinds.items()
    ]
    torch.testing.assert_close(*found)


def test_the_range_is_that_of_the_returns() -> None:
    _, _, returns, _, scale = losses(toy(BOX, fixed()), 50, return_normalization=True)
    levels = torch.tensor([0.05, 0.95], dtype=torch.float64)
    torch.testing.assert_close(scale, 0.01 * torch.quantile(returns.flatten(), levels))


def test_the_range_of_returns_does_not_change_what_entropy_is_worth() -> None:
    nets = toy(BOX, fixed())
    for kind in ("reinforce", "dynamics", "both"):
        found = []
        for scale in ((0.0, 0.0), (0.0, 8.0)):
            plain, bonus = (
                losses(nets, 5, actor_gradient=kind, scale=scale, entropy=True, entropy_coef=weight)[0]
                for weight in (0.0, 1.0)
            )
            found.append(bonus - plain)
        torch.testing.assert_close(*found)


def test_returns_are_normalised_in_every_gradient() -> None:
    """By the range of returns if that is more than 1 (a known mistake: only in the gradient through the world)."""
    nets = toy(BOX, fixed())
    bias = nets.actor.output.bias
    for kind in ("reinforce", "dynamics"):

        def gradient(actor_gradient: str = kind, **how: Any) -> tuple[torch.Tensor, torch.Tensor]:
            loss, *_, scale = losses(nets, 50, actor_gradient=actor_gradient, **how)
            return torch.autograd.grad(loss, bias)[0], scale.diff()

        plain, _ = gradient()
        wide, width = gradient(scale=(0.0, 8.0), return_normalization=True)
        narrow, _ = gradient(scale=(0.0, 0.1), return_normalization=True)
        torch.testing.assert_close(wide * width, plain)
        torch.testing.assert_close(narrow, plain)


def test_imagination_after_a_terminal_row_counts_for_nothing() -> None:
    nets = toy(BOX, fixed())
    for kind in ("reinforce", "dynamics", "both"):
        actor, critic, *_ = losses(nets, 5, terminal=True, horizon=3, actor_gradient=kind)
        assert actor.item() == 0 and critic.item() == 0
        assert losses(nets, 5, horizon=3, actor_gradient=kind)[1].item() > 0


def test_entropy_makes_the_policy_wider() -> None:
    nets = toy(BOX, fixed(), distribution="normal")
    gradients = [
        torch.autograd.grad(losses(nets, 50, entropy=True, entropy_coef=weight)[0], nets.actor.output.bias)[0]
        for weight in (0.0, 1.0)
    ]
    assert gradients[1][1] < gradients[0][1] - 1e-3 and gradients[1][0] == pytest.approx(gradients[0][0].item())


def test_what_the_slow_critic_is_for() -> None:
    """It is bootstrapped from as a target, and it pulls at the critic as a regularizer; here it says 5 more."""
    nets = toy(BOX, fixed())
    plain, target, regularizer = (losses(nets, 6, slow_critic=kind) for kind in ("none", "target", "regularizer"))
    torch.testing.assert_close(target[2] - plain[2], torch.full((1, 6), 5 * GAMMA, dtype=torch.float64))
    torch.testing.assert_close(regularizer[2], plain[2])
    torch.testing.assert_close(regularizer[1] - plain[1], torch.tensor(25.0, dtype=torch.float64))


def test_a_world_without_ends_is_discounted_too() -> None:
    """By gamma itself, where no head has learned it."""
    nets = toy(BOX, fixed())
    learned = losses(nets, 6, horizon=3)[2]
    nets.world.lives = lambda features, otherwise: torch.full_like(features[..., 0], otherwise)
    torch.testing.assert_close(losses(nets, 6, horizon=3)[2], learned)


def test_imagination_can_begin_at_the_last_rows_only() -> None:
    nets, algorithm = toy(BOX, fixed()), object.__new__(Dreamer)
    batch = {"terminal": torch.zeros(4, 3, dtype=torch.bool), "first": torch.zeros(4, 3, dtype=torch.bool),
             "last": torch.zeros(4, 3, dtype=torch.bool), "reward": torch.randn(4, 3, dtype=torch.float64),
             "scale": torch.zeros(2, dtype=torch.float64)}  # fmt: skip
    states = {"x": torch.randn(4, 3, 2, dtype=torch.float64)}
    c = {"gamma": GAMMA, "lam": LAM, "entropy": 0.0, "mix": 0.1}
    for last in (1, 2):
        how = {**HOW, "imagine_last": last, "replay_critic_scale": 0.3}
        actor, critic, returns, *_ = algorithm.controller_losses(nets, batch, states, c, **how)
        assert returns.shape == (last, 3) and torch.isfinite(torch.stack([actor, critic])).all()
        x = states["x"][-last:]
        alone = {**batch, **{name: batch[name][-last:] for name in ("terminal", "first", "last", "reward")}}
        again = algorithm.controller_losses(nets, alone, {"x": x}, c, **{**how, "imagine_last": None})
        torch.testing.assert_close(again[1:3], (critic, returns))


def replayed_rows() -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """(rows, features, bootstrap values): the first episode is truncated at row 2, the second terminates at row 5."""
    generator = torch.Generator().manual_seed(4)
    rows = {"reward": torch.randn(7, 1, dtype=torch.float64, generator=generator)}
    for name, where in (("first", (0, 3, 6)), ("last", (2, 5)), ("terminal", (5,))):
        rows[name] = torch.zeros(7, 1, dtype=torch.bool)
        rows[name][list(where)] = True
    rows["scale"] = torch.zeros(2, dtype=torch.float64)
    return rows, *(torch.randn(7, 1, *shape, dtype=torch.float64, generator=generator) for shape in ((2,), ()))


def test_the_critic_learns_replayed_rewards_up_to_the_end_of_each_episode() -> None:
    """Written out: lambda-returns that stop at ends, and no loss where the next row is another episode."""
    rows, x, bootstrap = replayed_rows()
    reward, boot, expected = rows["reward"][:, 0], bootstrap[:, 0], torch.zeros((), dtype=torch.float64)
    for first, end, terminal in ((0, 2, False), (3, 5, True)):
        following = torch.tensor(0.0) if terminal else boot[end]
        for t in reversed(range(first, end)):
            mixed = following if t + 1 == end else (1 - LAM) * boot[t + 1] + LAM * following
            following = reward[t + 1] + GAMMA * mixed
            expected = expected + (value(x[t, 0]) - following).square() / 6
    c = {"gamma": GAMMA, "lam": LAM}
    found = object.__new__(Dreamer).replayed_loss(toy(BOX, fixed()), x, rows, bootstrap, c, "none")
    torch.testing.assert_close(found, expected)


def recording(nets: Any, x: torch.Tensor) -> list[tuple[Any, ...]]:
    """Stand-ins for what an update does to its networks: (network, loss or tau, learning rate), in order."""
    done: list[tuple[Any, ...]] = []
    nets.step = lambda name, loss, rate: done.append((name, loss.item(), rate))
    nets.polyak = lambda name, tau: done.append((f"slow {name}", tau))
    nets.world.representation.initial_state = lambda _: {"x": x}
    nets.world.losses = lambda *_: (torch.tensor(3.0), SimpleNamespace(states={"x": x}, features=x), {})
    return done


def test_every_network_has_its_loss_its_rate_and_its_turn() -> None:
    """The replayed rewards count with their weight, in the critic's loss and, in a fused update, in the world's."""
    rows, x, _ = replayed_rows()
    nets, algorithm = toy(BOX, fixed()), object.__new__(Dreamer)
    c = {"gamma": GAMMA, "lam": LAM, "entropy": 0.0, "mix": 0.1, "tau": 0.02}
    c |= {"lr": 1.0, "actor_lr": 2.0, "critic_lr": 3.0}
    done, how = recording(nets, x), {**HOW, "horizon": 2}
    actor, critic, first, *_ = algorithm.controller_losses(nets, rows, {"x": x}, c, **how)
    replayed = algorithm.replayed_loss(nets, x, rows, first, c, "none").item()
    assert abs(replayed) > 0.1
    controller = [("actor", actor.item(), 2.0), ("critic", pytest.approx(critic.item() + 0.3 * replayed), 3.0)]
    algorithm.update(nets, rows, c, **{**how, "replay_critic_scale": 0.3})
    world = ("world", pytest.approx(3.0 + 0.3 * replayed), 1.0)
    assert done == [controller[0], world, controller[1], ("slow critic", 0.02)]
    done.clear()
    algorithm.learn_controller(nets, {**rows, "x": x}, c, **{**how, "replay_critic_scale": 0.3})
    assert done == [*controller, ("slow critic", 0.02)]


def test_replayed_rows_go_on_with_the_returns_that_are_imagined_from_them() -> None:
    nets, algorithm = toy(BOX, fixed()), object.__new__(Dreamer)
    x0, x1, x2 = algorithm.dream(nets, {"x": START.expand(5, 2)}, horizon=2, through=False).features
    last = nets.world.reward.mean(x2) + GAMMA * value(x2)
    expected = nets.world.reward.mean(x1) + GAMMA * ((1 - LAM) * value(x1) + LAM * last)
    torch.testing.assert_close(losses(nets, 5, horizon=2)[2][0], expected.detach())


def test_the_policy_is_not_told_how_its_view_of_a_state_depends_on_earlier_actions() -> None:
    """Through the world gradients reach actions, not what the policy reads."""
    nets = toy(BOX, fixed())
    found = object.__new__(Dreamer).dream(nets, {"x": START.expand(4, 2)}, horizon=3, through=True)
    grads = torch.autograd.grad(found.params[2].sum(), nets.world.push, allow_unused=True, retain_graph=True)
    assert grads == (None,)
    assert torch.autograd.grad(found.features[2].sum(), nets.actor.output.bias)[0].any()


def test_what_happens_is_drawn_apart_from_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """World and policy have noise of their own in every imagined step."""
    nets, given = toy(BOX, fixed()), []
    nets.world.representation.noise_dim = 2
    imagine, draw = nets.world.imagine, nets.actor.draw
    monkeypatch.setattr(nets.world, "imagine", lambda *a: given.append(a[2]) or imagine(*a))
    monkeypatch.setattr(nets.actor, "draw", lambda *a: given.append(a[1]) or draw(*a))
    object.__new__(Dreamer).dream(nets, {"x": START.expand(4, 2)}, horizon=2, through=False)
    action, world, action_, world_ = given
    torch.testing.assert_close(
        torch.stack([torch.cat([world, action], -1), torch.cat([world_, action_], -1)]), fixed()((2, 4, 3))
    )


# ---- a whole algorithm -------------------------------------------------------------------------------


class Anything(gym.Env):
    """Random observations and rewards of the kinds asked for; episodes end at random in both ways."""

    def __init__(self, sees: str, acts: str) -> None:
        image, vector = gym.spaces.Box(0, 255, (1, 16, 16), np.uint8), gym.spaces.Box(-1, 1, (3,), np.float32)
        both = gym.spaces.Dict({"look": image, "feel": vector, "count": gym.spaces.Discrete(3)})
        self.observation_space = {"vector": vector, "image": image, "dict": both}[sees]
        self.action_space = gym.spaces.Discrete(3) if acts == "discrete" else gym.spaces.Box(-2, 2, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        ends = self.np_random.random(2) < 0.1
        return self.observation_space.sample(), float(self.np_random.normal()), bool(ends[0]), bool(ends[1]), {}


if "Probe/Anything-v0" not in gym.registry:
    gym.register("Probe/Anything-v0", Anything)

LITTLE = {"deter": 8, "hidden": 8, "stoch": 2, "classes": 4}
WIDTHS: dict[str, Any] = {
    "representation": LITTLE, "actor": {"layers": 1, "units": 8}, "critic": {"layers": 1, "units": 8},
    "encoder": {"layers": 1, "units": 8, "depth": 1}, "decoder": {"layers": 1, "units": 8, "depth": 1},
}  # fmt: skip


def made(
    sees: str = "vector", acts: str = "discrete", compile: str = "never", training: Any = None, **settings: Any
) -> Any:
    algorithm = {"name": "dreamer", "learning_starts": 8, "batch_size": 3, "sequence_length": 4, "horizon": 2, **WIDTHS,
                 **settings}  # fmt: skip
    environment, runtime = {"num_envs": 2, "kwargs": {"sees": sees, "acts": acts}}, {"compile": compile}
    sections = {"runtime": runtime, "buffers": {"replay": {"type": "online", "size": 400}}, "training": training or {}}
    return build(config(algorithm, env="Probe/Anything-v0", environment=environment, **sections))


def begun(**settings: Any) -> tuple[Any, Any]:
    """(algorithm with a few steps in its buffer, the moment of a cycle)"""
    one = made(**settings)
    now = moment(one.config.algorithm.config)
    for _ in range(10):
        one.algorithm.collect(now)
    close(one)
    return one.algorithm, now


@pytest.mark.parametrize("sees", ["vector", "image", "dict"])
@pytest.mark.parametrize("acts", ["discrete", "continuous"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_variant_learns_from_every_kind_of_observation_and_action(variant: str, acts: str, sees: str) -> None:
    algorithm, now = begun(sees=sees, acts=acts, variant=variant)
    for _ in range(2):
        for hook in [next(iter(step)) for step in now.cfg.cycle if isinstance(step, dict)]:
            assert algorithm.hooks()[hook](now).updates == 1
    found = algorithm.learner.metrics()
    assert {"loss/world", "loss/actor", "loss/critic", "loss/reward", "dream/return"} <= set(found)
    assert ("loss/vector" in found) == (sees != "image") and any("image" in name for name in found) == (
        sees != "vector"
    )
    assert all(np.isfinite(number) for number in found.values()), found


def test_a_cycle_is_one_update_or_two() -> None:
    for variant, hooks in (("v3", ["update"]), ("v1", ["update_world_model", "update_controller"])):
        cfg = DreamerConfig.model_validate(
            {"variant": variant, "train_ratio": 64, "batch_size": 4, "sequence_length": 8}
        )
        assert cfg.cycle == ("collect", *({hook: {"per_env_step": 2.0}} for hook in hooks))


def test_planned_updates_count_every_hook() -> None:
    given = {"batch_size": 4, "sequence_length": 8, "train_ratio": 16, "learning_starts": 100}
    for variant, hooks in (("v1", 2), ("v2", 2), ("v3", 1)):
        cfg = DreamerConfig.model_validate({"variant": variant, **given})
        assert cfg.planned_updates(300, 1) == 100 * hooks


def test_older_variants_take_observations_as_gaussian() -> None:
    scales = {name: DreamerConfig.model_validate({"variant": name}).observation_scale for name in VARIANTS}
    assert scales == {"v1": 0.5, "v2": 0.5, "v3": 1.0}


def spied(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(function, batch, outputs) of every update from here on."""
    calls: list[Any] = []
    update = algorithm.learner.update

    def spy(function: Any, batch: Any, *rest: Any, **static: Any) -> Any:
        outputs = update(function, batch, *rest, **static)
        calls.append((function.__name__, dict(batch), dict(outputs)))
        return outputs

    monkeypatch.setattr(algorithm.learner, "update", spy)
    return calls


def test_the_controller_goes_on_from_the_states_that_the_world_model_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, those of the same cycle only; without any it looks at rows of its own."""
    algorithm, now = begun(fused=False)
    calls = spied(algorithm, monkeypatch)
    hooks, cycle = algorithm.hooks(), replace(now, cycle=7)
    for name in ("update_world_model", "update_world_model", "update_controller", "update_controller"):
        assert hooks[name](cycle).updates == 1
    assert [name for name, *_ in calls] == ["learn_world", "learn_world", "learn_controller", "learn_controller"]
    for (_, rows, states), (_, given, _) in zip(calls[:2], calls[2:], strict=True):
        for name in ("deter", "stoch"):
            assert given[name] is states[name] and not states[name].requires_grad
        for name in ("reward", "terminal", "last", "first"):
            assert torch.equal(given[name], rows[name])
    assert not torch.equal(calls[2][1]["deter"], calls[3][1]["deter"])

    assert hooks["update_controller"](cycle).updates == 1 and calls[-1][0] == "learn_controller_alone"
    hooks["update_world_model"](cycle)
    hooks["update_controller"](replace(now, cycle=8))
    assert calls[-1][0] == "learn_controller_alone", "states of another cycle are stale"
    hooks["update_world_model"](replace(now, cycle=9))
    hooks["update_controller"](replace(now, cycle=9))
    assert calls[-1][1]["deter"] is calls[-2][2]["deter"]


def theta(algorithm: Any, name: str) -> torch.Tensor:
    return algorithm.learner.theta[algorithm.learner.where[name]].clone()


@pytest.mark.parametrize("gradient", ["reinforce", "dynamics", "both"])
def test_each_hook_changes_its_own_networks_only(gradient: str) -> None:
    """The controller alone leaves the world as it is, and the world model the controller."""
    algorithm, now = begun(fused=False, actor_gradient=gradient, acts="continuous", warmup_updates=0, lr=1e-2)
    names = ("world", "actor", "critic")
    for hook, changed in (("update_controller", {"actor", "critic"}), ("update_world_model", {"world"})):
        before = {name: theta(algorithm, name) for name in names}
        algorithm.hooks()[hook](now)
        assert {name for name in names if not torch.equal(before[name], theta(algorithm, name))} == changed


def test_in_a_fused_update_the_policy_moves_neither_world_nor_critic() -> None:
    """However large its loss is."""
    found = []
    for entropy in (1e-6, 1e3):
        algorithm, now = begun(
            entropy_coef=entropy, actor_gradient="both", acts="continuous", warmup_updates=0, lr=1e-2
        )
        algorithm.update_everything(now)
        found.append([theta(algorithm, name) for name in ("world", "critic", "actor")])
    (world, critic, actor), (world_, critic_, actor_) = found
    assert torch.equal(world, world_) and torch.equal(critic, critic_) and not torch.equal(actor, actor_)


def test_the_critic_on_replayed_rewards_trains_the_world_model_in_a_fused_update() -> None:
    found = []
    for scale in (0.0, 100.0):
        algorithm, now = begun(replay_critic_scale=scale, warmup_updates=0, lr=1e-2, critic={"output_scale": 1.0})
        algorithm.update_everything(now)
        found.append(theta(algorithm, "world"))
    assert not torch.equal(*found)


@pytest.mark.parametrize("slow_every", [1, 3])
@pytest.mark.parametrize("each", [1, 2])
def test_the_slow_critic_moves_with_every_so_many_updates_of_the_controller(slow_every: int, each: int) -> None:
    """Whatever the world model does meanwhile."""
    algorithm, now = begun(variant="v2", slow_every=slow_every)
    moves = []
    for cycle in range(12 // each):
        for _ in range(each):
            algorithm.update_world_model(replace(now, cycle=cycle))
        for _ in range(each):
            before = theta(algorithm, "target_critic")
            algorithm.update_controller(replace(now, cycle=cycle))
            moves.append(not torch.equal(before, theta(algorithm, "target_critic")))
    assert moves == [i % slow_every == slow_every - 1 for i in range(12)]


def test_learning_rates_of_actor_and_critic_rise_with_their_own_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that begins after the world model was trained has a warm-up of its own."""
    algorithm, now = begun(fused=False, warmup_updates=4, lr=1.0)
    seen: list[dict[str, float]] = []
    update = algorithm.learner.update

    def spy(function: Any, batch: Any, scalars: Any, **static: Any) -> Any:
        seen.append(dict(scalars))
        return update(function, batch, {**scalars, **dict.fromkeys(("lr", "actor_lr", "critic_lr"), 0.0)}, **static)

    monkeypatch.setattr(algorithm.learner, "update", spy)
    for _ in range(5):
        algorithm.update_world_model(now)
    for _ in range(5):
        algorithm.update_controller(now)
    assert [c["lr"] for c in seen[:5]] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [c["actor_lr"] for c in seen[5:]] == [c["critic_lr"] for c in seen[5:]] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_world_model_actor_and_critic_have_learning_rates_of_their_own() -> None:
    algorithm, now = begun(warmup_updates=0, lr=1.0, actor_lr=2.0, critic_lr=3.0)
    scalars = algorithm._scalars(now)
    assert [scalars[name] for name in ("lr", "actor_lr", "critic_lr")] == [1.0, 2.0, 3.0]


def test_a_curriculum_of_warm_up_world_model_controller_and_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each phase changes what it is for; in the joint one every controller update has states of its own cycle."""
    both = [{name: {"per_env_step": 0.8}} for name in ("update_world_model", "update_controller")]
    phases = [
        {"name": "fill", "hooks": ["collect"], "duration_steps": 24},
        {"name": "world", "type": "offline", "hooks": ["update_world_model"], "duration_updates": 3},
        {"name": "dream", "type": "offline", "hooks": ["update_controller"], "duration_updates": 3},
        {"name": "joint", "hooks": ["collect", *both], "duration_steps": 20},
    ]
    one = made(fused=False, training={"phases": phases, "total_timesteps": 44})
    calls = spied(one.algorithm, monkeypatch)
    one.run()
    one.close()
    names = [name for name, *_ in calls]
    assert names[:6] == ["learn_world"] * 3 + ["learn_controller_alone"] * 3
    assert Counter(names[6:]) == {"learn_world": 16, "learn_controller": 16}


@pytest.mark.parametrize("variant", ["v3", "v2"])
def test_imagination_that_is_traced_learns_what_the_eager_one_does(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is handed to the compiler, run without compiling; weights that changed since are seen."""
    traced = []

    def obtain(function: Any, example: Any, *_: Any) -> Any:
        graph = package.trace(function, example)
        traced.append(graph)
        return lambda: lambda arguments: list(graph(*arguments))

    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package, "obtain", obtain)
    found, graphs = [], []
    for compile in ("never", "always"):
        algorithm, now = begun(variant=variant, warmup_updates=0, lr=1e-2, compile=compile)
        for _ in range(3):
            for hook in [next(iter(step)) for step in now.cfg.cycle if isinstance(step, dict)]:
                algorithm.hooks()[hook](now)
            graphs.append(len(traced))
        found.append(algorithm.learner.theta)
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)
    assert graphs[:3] == [0, 0, 0] and graphs[3] == graphs[5] > 0, "later updates trace nothing anew"


def test_nothing_is_learned_before_there_is_enough() -> None:
    one = made(learning_starts=40)
    now = moment(one.config.algorithm.config)
    for _ in range(3):
        one.algorithm.collect(now)
    assert one.algorithm.behaviour.uniform
    for hook in ("update", "update_world_model", "update_controller"):
        assert one.algorithm.hooks()[hook](now).updates == 0
    close(one)


def test_learning_begins_with_the_first_whole_sequence() -> None:
    """Three rows are two steps."""
    one = made(learning_starts=1, sequence_length=3)
    now, updates = moment(one.config.algorithm.config), []
    for _ in range(3):
        one.algorithm.collect(now)
        updates.append(one.algorithm.update_everything(now).updates)
    assert updates == [0, 1, 1]
    close(one)


def test_stored_steps_are_learned_from_however_few_they_are() -> None:
    """Nothing is collected in an offline phase, so that there is nothing to wait for."""
    algorithm, now = begun(learning_starts=400)
    assert algorithm.update_everything(now).updates == 0
    assert algorithm.update_everything(replace(now, type="offline")).updates == 1


def test_once_it_has_learned_it_never_acts_at_random_again() -> None:
    """Also when its buffer begins empty: `ludus resume --rebuild-buffer`."""
    algorithm, now = begun()
    algorithm.update_everything(now)
    algorithm.replay["replay"].start_over()
    algorithm.collect(now)
    assert algorithm.replay["replay"].added < now.cfg.learning_starts and not algorithm.behaviour.uniform


def test_exploration_follows_its_schedule_and_is_part_of_a_checkpoint() -> None:
    one = made(exploration={"start": 0.8, "end": 0.2})
    for position, level in ((0, 0.8), (5_000, 0.5)):
        one.algorithm.collect(moment(one.config.algorithm.config, position))
        assert one.algorithm.state()["explores"].state_dict() == {"value": pytest.approx(level)}
        assert one.algorithm.behaviour.strategy.sigma.value == pytest.approx(level)
    close(one)


def test_an_entropy_bonus_is_left_out_only_if_it_is_always_zero() -> None:
    for coefficient, there in ((0.0, False), (3e-4, True), ({"start": 0.0, "end": 1e-3}, True)):
        algorithm, now = begun(entropy_coef=coefficient)
        algorithm.update_everything(now)
        assert ("policy/entropy" in algorithm.learner.metrics()) == there


def test_the_range_of_returns_moves_with_every_update_of_the_controller() -> None:
    algorithm, now = begun(fused=False, critic={"output_scale": 1.0})
    found = []
    for _ in range(3):
        algorithm.update_world_model(now)
        algorithm.update_controller(now)
        found.append(algorithm.scale.value.tolist())
    assert found[0] != found[1] != found[2]


def test_the_range_of_returns_is_part_of_a_checkpoint() -> None:
    """Small rewards would not show that it was lost: it counts from 1 on."""
    (saved, now), (loaded, _) = begun(critic={"output_scale": 5.0}), begun(critic={"output_scale": 5.0})
    saved.update_everything(now)
    assert saved.scale.value.any() and not loaded.scale.value.any()
    for name, part in saved.state().items():
        loaded.state()[name].load_state_dict(copy.deepcopy(part.state_dict()))
    assert torch.equal(loaded.scale.value, saved.scale.value)
    assert torch.equal(loaded.learner.theta, saved.learner.theta)


def test_stored_actions_lie_in_the_unit_box() -> None:
    """Those of the environment are scaled: its bounds are -2 and 2."""
    algorithm, now = begun(acts="continuous", variant="v1", learning_starts=4)
    algorithm.update_controller(now)
    drawn = np.concatenate([algorithm.replay["replay"].sample(64)["action"][0] for _ in range(3)])
    assert np.abs(drawn).max() <= 1.0 and np.abs(drawn).std() > 0.1
    assert algorithm.replay["replay"].scaled_actions, "who reads them later must know"


def test_a_slow_critic_that_the_other_run_has_not_begins_with_the_critic_that_was_taken_over() -> None:
    """A random one would be what the critic is told."""
    other, one = made(slow_critic="none"), made(slow_critic="target")
    with torch.no_grad():
        other.algorithm.learner.theta.add_(1.0)
    transfer(one, other.state_dict())
    learner = one.algorithm.learner
    critic, slow = (learner.theta[learner.where[name]] for name in ("critic", "target_critic"))
    assert torch.equal(critic, other.algorithm.learner.theta[other.algorithm.learner.where["critic"]])
    assert torch.equal(slow, critic)
    close(one)
    close(other)


def test_a_buffer_that_fills_sequences_up_is_refused() -> None:
    """The filling repeats the last observation of an episode, as if it began others."""
    for name in ("dreamer", "planet"):
        cfg = config({"name": name, **{key: WIDTHS[key] for key in ("encoder", "decoder")}}, env="Pendulum-v1",
                     buffers={"replay": {"type": "trajectory", "size": 400}})  # fmt: skip
        with pytest.raises(ConfigError, match=r"buffers\.replay\.type: fills sequences up.*online or uniform"):
            build(cfg)


# ---- config ------------------------------------------------------------------------------------------


def settings(**given: Any) -> DreamerConfig:
    return DreamerConfig.model_validate(given)


@pytest.mark.parametrize("size", [*SIZES])
def test_a_size_fills_in_widths_and_an_explicit_width_wins(size: str) -> None:
    wanted = SIZES[size]
    cfg = settings(size=size)
    rssm = cfg.representation.config
    assert (rssm.deter, rssm.hidden, rssm.classes, rssm.stoch) == (
        wanted.deter,
        wanted.units,
        wanted.classes,
        wanted.stoch,
    )
    parts = [cfg.encoder, cfg.decoder.config, cfg.reward.config, cfg.continues.config, cfg.critic.config, cfg.actor]
    assert Counter(part.units for part in parts) == {wanted.units: 6}
    assert cfg.encoder.depth == cfg.decoder.config.depth == wanted.depth
    cfg = settings(size=size, representation={"deter": 24}, reward={"units": 5}, actor={"units": 7})
    assert (cfg.representation.config.deter, cfg.reward.config.units, cfg.actor.units) == (24, 5, 7)
    assert cfg.representation.config.hidden == cfg.critic.config.units == wanted.units


def test_sizes_are_those_of_the_reference() -> None:
    assert [tuple(SIZES[name])[:4] for name in ("1m", "12m", "25m", "50m", "100m", "200m", "400m")] == [
        (512, 64, 4, 4), (2048, 256, 16, 16), (3072, 384, 24, 24), (4096, 512, 32, 32), (6144, 768, 48, 48),
        (8192, 1024, 64, 64), (12288, 1536, 96, 96),
    ]  # fmt: skip


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_another_part_is_one_word_and_keeps_the_width_of_the_size(variant: str) -> None:
    for given in ({"type": "two_hot"}, "two_hot", {"type": "gaussian"}, "gaussian"):
        cfg = settings(variant=variant, size="12m", reward=given, critic=given)
        name = given if isinstance(given, str) else given["type"]
        assert cfg.reward.name == cfg.critic.name == name
        assert cfg.reward.config.units == cfg.critic.config.units == 256 and cfg.critic.config.layers == 3
    for given in ("identity", {"type": "identity"}):
        cfg = settings(variant=variant, representation=given)
        assert cfg.representation.name == "identity" and cfg.representation.config.dynamics.name == "deterministic"
    assert settings(variant=variant, decoder="none").decoder.name == "none"


def test_variants_are_presets_of_independent_switches() -> None:
    v1, v2, v3 = (settings(variant=name) for name in ("v1", "v2", "v3"))
    latents = [(cfg.representation.config.latent, cfg.representation.config.cell) for cfg in (v1, v2, v3)]
    assert latents == [("gaussian", "gru"), ("categorical", "gru"), ("categorical", "block_gru")]
    assert [cfg.reward.name for cfg in (v1, v2, v3)] == ["gaussian", "gaussian", "two_hot"]
    assert [cfg.critic.name for cfg in (v1, v2, v3)] == ["gaussian", "gaussian", "two_hot"]
    assert [cfg.optimizer.type for cfg in (v1, v2, v3)] == ["adam", "adamw", "laprop"]
    assert [cfg.optimizer.agc for cfg in (v1, v2, v3)] == [None, None, 0.3]
    assert [cfg.slow_critic for cfg in (v1, v2, v3)] == ["none", "target", "regularizer"]
    assert [cfg.fused for cfg in (v1, v2, v3)] == [False, False, True]
    rssm = v2.representation.config
    assert (rssm.dynamics_scale, rssm.representation_scale, rssm.free) == (0.8, 0.2, "mean")
    mixed = settings(
        variant="v2", actor_gradient="dynamics", representation={"free_nats": 0.0}, optimizer={"type": "adam"}
    )
    assert (mixed.actor_gradient, mixed.representation.config.free_nats, mixed.optimizer.type) == (
        "dynamics",
        0.0,
        "adam",
    )
    assert mixed.optimizer.weight_decay == 0.0 and mixed.representation.config.dynamics_scale == 0.8


SAVED: list[dict[str, Any]] = [
    {},
    {"variant": "v1"},
    {"variant": "v2", "size": "12m"},
    {"representation": "identity"},
    {"variant": "v1", "reward": "two_hot", "lr": {"start": 1e-3, "end": 1e-4}},
]
WRONG: list[dict[str, Any]] = [
    {"critics": {}},
    {"reward": {"unit": 3}},
    {"representation": {"detr": 5}},
    {"variant": "v4"},
    {"size": "2m"},
    {"representation": {"type": "rsm"}},
    {"representation": {"type": "identity", "deter": 8}},
    {"actor": {"hidden": 3}},
    {"train_ratio": float("inf")},
]


@pytest.mark.parametrize("given", SAVED)
def test_a_dumped_config_loads_again_as_an_equal_one(given: dict[str, Any]) -> None:
    cfg = settings(**given)
    assert settings(**cfg.model_dump(mode="json")) == cfg


@pytest.mark.parametrize("given", WRONG)
def test_unknown_keys_and_names_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**given)


def test_unbounded_actions_are_refused() -> None:
    spaces: Any = SimpleNamespace(action=gym.spaces.Box(-np.inf, np.inf, (1,)))
    with pytest.raises(ConfigError, match="dreamer needs"):
        Dreamer(settings(), SimpleNamespace(spaces=spaces))  # type: ignore[arg-type]


def test_the_ratio_counts_replayed_rows_per_step() -> None:
    cfg = settings(train_ratio=512, batch_size=16, sequence_length=64)
    assert cfg.per_env_step == 0.5 and cfg.planned_updates(3_000, 1) == 1_000


def test_pong_at_the_reference_size_learns_in_the_smallest() -> None:
    """200 million parameters are for GPUs; everything else of the config is the same."""
    assert load("ALE-Pong-v5:dreamer").config.algorithm.config.size == "200m"
    small = [
        "algorithm.size=tiny",
        "algorithm.batch_size=2",
        "algorithm.sequence_length=4",
        "algorithm.learning_starts=32",
        "algorithm.train_ratio=1",
    ]
    short = [
        "buffers.replay={type: online, size: 200, storage: ram}",
        "training.total_timesteps=64",
        "environment.num_envs=2",
    ]
    run = build(load("ALE-Pong-v5:dreamer", [*small, *short, "training.evaluation.every_steps=0"]).config)
    run.run()
    run.close()
    assert run.spaces.observation.shape == (3, 64, 64)
    assert run.progress.updates > 0
