"""TD-MPC: what a plan is worth and where it begins, what its losses mean, its switches."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from ludus.acting.exploration import Level
from ludus.algorithms.tdmpc import SIZES, VARIANTS, Planner, TDMPCConfig
from ludus.errors import ConfigError
from ludus.math.values import episode_discount
from ludus.session.player import build_player
from support import build, close, config, moment

QUICK: dict[str, Any] = {
    "size": "tiny", "latent": 16, "units": 16, "encoder_units": 16, "learning_starts": 8, "batch_size": 6,
    "candidates": 12, "policy_candidates": 3, "rounds": 2, "elites": 4,
}  # fmt: skip


def made(env: str = "Pendulum-v1", buffer: str = "uniform", **settings: Any) -> Any:
    buffers = {"replay": {"type": buffer, "size": 600}}
    return build(config({"name": "tdmpc", **QUICK, **settings}, env=env, environment={"num_envs": 2}, buffers=buffers))


def filled(one: Any, steps: int = 12) -> Any:
    """The moment for its hooks, after some random steps."""
    now = moment(one.config.algorithm.config, total_steps=100_000)
    for _ in range(steps):
        one.algorithm.collect(now)
    return now


# ---- settings --------------------------------------------------------------------------------------


def test_its_config_is_that_of_the_paper_and_loads_again() -> None:
    cfg = TDMPCConfig.model_validate({"size": "5m"})
    assert (cfg.latent, cfg.units, cfg.encoder_units, cfg.critics, cfg.simplex, cfg.bins) == (512, 512, 256, 5, 8, 101)
    assert (cfg.horizon, cfg.candidates, cfg.policy_candidates, cfg.rounds, cfg.elites) == (3, 512, 24, 6, 64)
    assert (cfg.batch_size, cfg.lr.start, cfg.rho.start, cfg.consistency_scale.start) == (256, 3e-4, 0.5, 20.0)
    assert TDMPCConfig.model_validate(cfg.model_dump(mode="json")) == cfg
    old = TDMPCConfig.model_validate({"variant": "v1"})
    assert (old.latent, old.units, old.simplex, old.bins, old.horizon, old.policy) == (
        50,
        512,
        0,
        0,
        5,
        "deterministic",
    )
    assert (old.min_std.at(0, 1), old.min_std.at(25_000, 50_000), old.gamma.start) == pytest.approx((0.5, 0.05, 0.99))  # type: ignore[union-attr]
    assert TDMPCConfig.model_validate(old.model_dump(mode="json")) == old


def test_sizes_fill_in_widths_and_what_is_said_wins() -> None:
    for name, widths in SIZES.items():
        cfg = TDMPCConfig.model_validate({"size": name})
        assert (cfg.latent, cfg.units, cfg.encoder_units, cfg.encoder_layers, cfg.critics) == widths
    assert TDMPCConfig.model_validate({"size": "19m", "units": 7}).units == 7
    small = TDMPCConfig.model_validate({"variant": "v1", "size": "tiny", "horizon": 2})
    assert (small.latent, small.horizon, small.layers) == (64, 2, "plain")


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.candidates.*elites"):
        made(elites=13)
    with pytest.raises(ConfigError, match=r"algorithm\.latent.*simplices of 8"):
        made(latent=20)
    with pytest.raises(ConfigError, match="tdmpc needs a bounded Box"):
        made(env="CartPole-v1")
    for wrong in ({"size": "2m"}, {"variant": "v3"}, {"sequence_length": 4}, {"bins": 1}, {"limit": 1e30}):
        with pytest.raises(ValidationError):
            TDMPCConfig.model_validate(wrong)
    beyond_floats: dict[str, Any]
    for beyond_floats in ({"temperature": 1e39}, {"max_std": 1e39}):
        with pytest.raises(ValidationError, match="less than or equal to"):
            TDMPCConfig.model_validate(beyond_floats)
    for least in (2.5, {"start": 2.5, "end": 0.05, "to": 100}, {"start": 0.05, "end": 2.5, "to": 100}):
        with pytest.raises(ValidationError, match=r"min_std 2\.5 is above max_std 2\.0"):
            TDMPCConfig.model_validate({"min_std": least})


def test_the_discount_follows_the_length_of_episodes() -> None:
    assert [episode_discount(steps) for steps in (10, 100, 200, 500, 1000, 10_000, None)] == pytest.approx(
        [0.95, 0.95, 0.975, 0.99, 0.995, 0.995, 0.995]
    )
    for settings, expected in (({}, 0.975), ({"episode_steps": 500}, 0.99), ({"gamma": 0.9}, 0.9)):
        one = made(**settings)  # Pendulum has 200 steps
        filled(one, 1)
        assert one.algorithm.levels["gamma"].value == pytest.approx(expected)
        player = build_player(one.config, one.spaces, one.state_dict()).algorithm  # it knows no environment
        assert player.levels["gamma"].value == pytest.approx(expected)
        close(one)


@pytest.mark.parametrize("switch", VARIANTS["v1"].items(), ids=lambda item: item[0])
def test_every_switch_can_be_set_on_its_own(switch: tuple[str, Any]) -> None:
    """A departure of the old variant from the new one, alone: it learns and acts."""
    name, value = switch
    value = 8 if name in ("learning_starts", "batch_size") else 5 if name == "policy_candidates" else value
    one = made(**{name: value, **({"latent": 50, "simplex": 5} if name == "size" else {})})
    now = filled(one)
    before = one.algorithm.learner.theta.clone()
    assert one.algorithm.update(now).updates == 1 and not torch.equal(before, one.algorithm.learner.theta)
    one.algorithm.collect(now)
    assert all(np.isfinite(number) for number in one.algorithm.learner.metrics().values())
    close(one)


def test_rewards_and_values_begin_at_zero() -> None:
    """As in TD-MPC2: plans do not chase what an untrained network says."""
    one = made()
    world, critic = (one.algorithm.learner.networks[name] for name in ("world", "critic"))
    seen = torch.rand(5, 17)
    with torch.no_grad():
        assert not world.reward(seen).any() and not critic(seen).any()
        assert world.dynamics(seen).any()
    close(one)


# ---- plans -----------------------------------------------------------------------------------------


class Toy(torch.nn.Module):
    """A point that actions move; the reward is where it stands, and beyond 1 an episode ends with chance `ends`."""

    action_dim = 1

    def __init__(self, ends: float = 0.0) -> None:
        super().__init__()
        self.chance, self.weight = ends, torch.nn.Parameter(torch.zeros(1))
        self.coding = SimpleNamespace(mean=lambda out: out)
        self.reward = lambda seen: seen[..., 0] + 10 * seen[..., 1]

    def encode(self, obs: torch.Tensor) -> torch.Tensor:
        return obs[..., :1]

    def dynamics(self, seen: torch.Tensor) -> torch.Tensor:
        return seen[..., :1] + seen[..., 1:]

    def follow(self, z: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return torch.cat([z.unsqueeze(0), z + actions.cumsum(0)])

    def lives(self, z: torch.Tensor) -> torch.Tensor:
        return 1 - self.chance * (z[..., 0] > 1).float()


def planner(world: Any = None, goal: float = 1.2, **settings: Any) -> Planner:
    """A planner in a world whose rewards, unless it is given, say how near the goal an action leads."""
    given = {"horizon": 3, "candidates": 200, "rounds": 6, "elites": 20, "policy_candidates": 8, "temperature": 20.0}
    cfg = TDMPCConfig.model_validate({**given, **settings})
    if world is None:
        world = Toy()
        world.reward = lambda seen: -(seen.sum(-1) - goal).square()
    critic = SimpleNamespace(members=2, value=lambda z, *_, **__: torch.zeros_like(z[..., 0]))
    networks = {"world": world, "critic": critic, "actor": lambda _, noise: ((0.3 * noise).clamp(-1, 1), None)}
    levels = {"gamma": Level(0.9), "min_std": Level(0.05), "horizon": Level(cfg.horizon)}
    context = SimpleNamespace(rng=None, compiler=None, num_envs=1, device=torch.device("cpu"))
    return Planner(cfg, networks, levels, context)  # type: ignore[arg-type]


def test_the_value_of_a_plan() -> None:
    """Discounted rewards of states and actions, then the value; each times the chance that it is reached."""
    actions = torch.tensor([[[0.5]], [[1.0]], [[-1.0]]])  # states 0, 0.5, 1.5, 0.5
    for chance in (0.0, 0.25, 1.0):
        worth = planner(Toy(chance)).worth
        worth.critic.value = lambda z, action, *_, **__: 7 + z[..., 0] + action[..., 0]
        pair, gamma = torch.tensor([0, 1]), torch.tensor(0.9)
        found = worth(torch.zeros(1, 1), actions, torch.full((1, 1), 1.0), pair, gamma)
        lives = 1 - chance
        expected = 5 + 0.9 * (0.5 + 10) + 0.81 * lives * (1.5 - 10) + 0.729 * lives * (7 + 0.5 + 0.3)
        assert found.item() == pytest.approx(expected)


def test_the_first_action_of_the_best_plan() -> None:
    """From each start at once: towards the goal as fast as it can, no farther."""
    starts = torch.tensor([[0.0], [1.0], [1.2], [3.0]])
    found = planner().plan(starts, torch.zeros(4, 3, 1), None)
    assert found["plan"][:, 0].tolist() == pytest.approx([1.0, 0.2, 0.0, -1.0], abs=0.1)
    best = [-0.04, 0.0, 0.0, -(0.8**2)]
    assert found["value"].tolist() == pytest.approx(best, abs=0.1)
    assert found["next"].shape == (4, 3, 1)


@pytest.mark.parametrize(("components", "rounds"), [(19, 6), (20, 8)])
def test_actions_of_many_components_take_two_more_rounds(components: int, rounds: int) -> None:
    one, scored = planner(policy_candidates=0), []
    one.size = components
    one.compiled = lambda _, actions, *__: scored.append(len(actions)) or actions.sum((0, 2))  # type: ignore[assignment]
    one.plan(torch.zeros(2, 1), torch.zeros(2, 3, components), None)
    assert scored == [3] * rounds


class SameForAll:
    """A random stream that draws the same numbers for every environment."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def standard_normal(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        at = {5: 2, 4: 1, 3: 0}[len(shape)]
        one = self.rng.standard_normal((*shape[:at], 1, *shape[at + 1 :]), dtype)
        return np.repeat(one, shape[at], at)

    def permutation(self, count: int) -> np.ndarray:
        return self.rng.permutation(count)

    def random(self, shape: tuple[int, int], dtype: Any) -> np.ndarray:
        return np.repeat(self.rng.random((1, 1), dtype), shape[0], 0)


def test_plans_for_many_environments_equal_plans_for_each() -> None:
    """With the networks of a real run, from other states and warm starts."""
    one = made(critics=5)
    now = filled(one)
    for _ in range(3):
        one.algorithm.update(now)
    actor = one.algorithm.behaviour.actor
    z, start = torch.rand(4, 16), torch.rand(4, 3, 1) - 0.5
    whole = actor.plan(z, start, SameForAll())
    for b in range(4):
        alone = actor.plan(z[b : b + 1], start[b : b + 1], SameForAll())
        for name, tensor in alone.items():
            torch.testing.assert_close(tensor[0], whole[name][b], atol=1e-4, rtol=1e-4)
    close(one)


def test_the_plan_is_carried_and_an_episode_begins_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one, starts = made(), []
    now, actor = filled(one), one.algorithm.behaviour.actor
    one.algorithm.update(now)
    plan = actor.plan
    monkeypatch.setattr(actor, "plan", lambda z, start, rng: starts.append(start.clone()) or plan(z, start, rng))
    obs, state = one.collector.newest_obs, one.algorithm.initial_state(2)
    assert state["plan"].shape == (2, 3, 1) and not state["plan"].any()
    for first in ([True, True], [False, False], [False, True]):
        before = state
        _, state, _ = one.algorithm.act(obs, before, np.array(first), deterministic=False)
        for b in range(2):
            kept = torch.zeros(3, 1) if first[b] else torch.cat([before["plan"][b, 1:], torch.zeros(1, 1)])
            assert torch.equal(starts[-1][b], kept)
        assert state["plan"].any() and not torch.equal(state["plan"], before["plan"])
    close(one)


def test_random_steps_take_no_plan_and_others_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one, plans = made(), []
    actor = one.algorithm.behaviour.actor
    plan = actor.plan
    monkeypatch.setattr(actor, "plan", lambda *args: plans.append(1) or plan(*args))
    now = filled(one, 4)
    assert one.algorithm.behaviour.uniform and not plans and not one.collector.state["plan"].any()
    one.algorithm.update(now)
    one.algorithm.collect(now)
    assert len(plans) == 1 and one.collector.state["plan"].any()
    acted = one.algorithm.act(one.collector.newest_obs, one.collector.state, np.zeros(2, bool), deterministic=True)
    assert acted.info["value"].shape == (2,) and acted.info["std"].shape == (2, 1) and len(plans) == 2
    close(one)


def test_without_a_stream_the_mean_of_the_plan_else_one_of_the_best() -> None:
    """By their weights: with a high temperature always the very best one."""
    one = planner(goal=0.4)
    z, start = torch.zeros(300, 1), torch.zeros(300, 3, 1)
    calm = one.plan(z, start, None)
    assert torch.equal(calm["plan"], calm["next"][:, 0])
    drawn = one.plan(z, start, np.random.default_rng(0))
    assert not torch.equal(drawn["plan"], drawn["next"][:, 0])
    assert drawn["plan"].mean().item() == pytest.approx(drawn["next"][:, 0].mean().item(), abs=0.02)
    greedy = planner(goal=0.4, temperature=1e9)
    found = greedy.plan(z, start, np.random.default_rng(0))
    assert (
        (found["plan"] - found["next"][:, 0]).abs().mean() < 1e-4 < (drawn["plan"] - drawn["next"][:, 0]).abs().mean()
    )


def test_collecting_adds_the_noise_of_the_plan() -> None:
    one = made()
    strategy, known = one.algorithm.behaviour.strategy, {"plan": np.full((400, 1), 0.2), "std": np.full((400, 1), 0.1)}
    outputs = type("Outputs", (), {"batch": 400, "__call__": lambda _, name: known[name].astype(np.float32)})()
    drawn = strategy.stored(strategy.explore(outputs, np.random.default_rng(0)))
    assert drawn.std() == pytest.approx(0.1, rel=0.15) and drawn.mean() == pytest.approx(0.2, abs=0.02)
    np.testing.assert_array_equal(strategy.draw(outputs, None), known["plan"].astype(np.float32))
    known["std"] = np.full((400, 1), 9.0)
    assert np.abs(strategy.stored(strategy.explore(outputs, np.random.default_rng(0)))).max() == 1.0
    close(one)


def test_the_horizon_and_the_least_deviation_may_follow_schedules() -> None:
    """A longer plan keeps its shape in memory; what is not planned is zero."""
    ramp = {"start": 1.0, "end": 3.0, "to": 100}
    one = made(planning_horizon=ramp, min_std={"start": 0.5, "end": 0.05, "to": 100})
    cfg, algorithm = one.config.algorithm.config, one.algorithm
    now = filled(one)
    algorithm.update(now)
    for position, horizon, least in ((0, 1, 0.5), (60, 2, 0.23), (5_000, 3, 0.05)):
        algorithm.collect(moment(cfg, position))
        assert algorithm.levels["min_std"].value == pytest.approx(least)
        plan = one.collector.state["plan"]
        assert plan.shape == (2, 3, 1) and plan[:, :horizon].all() and not plan[:, horizon:].any()
    player = build_player(one.config, one.spaces, one.state_dict()).algorithm
    assert player.levels["horizon"].value == 3.0 and player.levels["min_std"].value == pytest.approx(0.05)
    close(one)


# ---- learning --------------------------------------------------------------------------------------


class Ends(gym.Env):
    """Rewards tell the action, nothing else does; episodes of five steps end in one of two ways."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.terminates = 0, bool(self.np_random.integers(2))
        return self._obs(), {}

    def _obs(self) -> np.ndarray:
        return np.array([1 if self.terminates else -1, 0.2 * self.t, self.t == 5], np.float32)

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == 5
        return self._obs(), 2 * float(action[0]), over and self.terminates, over and not self.terminates, {}


class Linear(gym.Env):
    """x' = 0.9 R x + B a: it never ends by itself; the reward is the first number."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    TURN = 0.9 * np.array([[0.8, -0.6], [0.6, 0.8]])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=2)
        return self.x.astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.x = self.TURN @ self.x + np.array([0.3, 0.1]) * float(action[0])
        return self.x.astype(np.float32), float(self.x[0]), False, False, {}


for name, cls, limit in (("Ends", Ends, None), ("Linear", Linear, 20)):
    if f"TDMPC/{name}-v0" not in gym.registry:
        gym.register(f"TDMPC/{name}-v0", cls, max_episode_steps=limit)

LEARN = {"lr": 1e-3, "encoder_lr_scale": 1.0, "batch_size": 64, "units": 32, "learning_starts": 400}


def batch_of(one: Any, size: int = 64) -> dict[str, Any]:
    sample = one.algorithm.replay["replay"].sample_sequences(size, one.config.algorithm.config.horizon)
    return {name: torch.as_tensor(array.copy()) for name, array in sample.items()}


@pytest.fixture(scope="module")
def taught() -> Iterator[tuple[Any, Any, Any]]:
    """(world, batch, states along its actions) after some updates on random steps."""
    one = made(env="TDMPC/Ends-v0", **LEARN)
    now = filled(one, 250)
    for _ in range(250):
        one.algorithm.update(now)
    world, batch = one.algorithm.learner.networks["world"], batch_of(one)
    with torch.no_grad():
        z = world.follow(world.encode(batch["obs"][:1])[0], batch["action"])
    yield world, batch, z
    close(one)


def test_rewards_are_learned_with_their_actions(taught: Any) -> None:
    """One step later or earlier, the action would say nothing about them: the error would be their variance, 4/3."""
    world, batch, z = taught
    with torch.no_grad():
        found = world.coding.mean(world.reward(torch.cat([z[:-1], batch["action"]], -1)))
    alive = batch["mask"].float().cumprod(0).bool()
    error = (found - batch["reward"])[alive].square().mean().item()
    assert batch["reward"][alive].var().item() > 0.9 and error < 0.2


def test_terminations_are_learned_and_truncations_are_none(taught: Any) -> None:
    world, batch, z = taught
    alive = batch["mask"].float().cumprod(0).bool()
    with torch.no_grad():
        lives = world.lives(z[1:])
    ended, cut = batch["terminated"] & alive, batch["truncated"] & alive
    assert ended.any() and cut.any()
    assert lives[ended].max().item() < 0.3
    assert lives[cut].min().item() > 0.7 and lives[alive & ~ended].min().item() > 0.7


@pytest.mark.parametrize("variant", ["v2", "v1"])
def test_latent_states_of_a_linear_system_become_consistent(variant: str) -> None:
    """Predicted from the first observation and the actions; rewards are known by then: nothing collapsed."""
    one = made(env="TDMPC/Linear-v0", **{**LEARN, "variant": variant, "horizon": 3, "size": "tiny"})
    now, algorithm, found = filled(one, 250), one.algorithm, []
    for _ in range(3):
        for _ in range(100):
            algorithm.update(now)
        found.append(algorithm.learner.metrics()["loss/consistency"])
    world, batch = algorithm.learner.networks["world"], batch_of(one, 200)
    alive = batch["mask"].float().cumprod(0).bool()
    with torch.no_grad():
        z, real = world.follow(world.encode(batch["obs"][:1])[0], batch["action"]), world.encode(batch["obs"])
        rewards = world.coding.mean(world.reward(torch.cat([z[:-1], batch["action"]], -1)))
    spread = real.flatten(0, 1).var(0).mean().item()
    errors = [(z[t] - real[t])[alive[t - 1]].square().mean().item() for t in (1, 2, 3)]
    assert found[-1] < found[0] / 2 and max(errors) < 0.05 * spread, (found, errors, spread)
    error = (rewards - batch["reward"])[alive].square().mean().item()
    assert error < 0.1 * batch["reward"][alive].var().item()
    close(one)


def losses(one: Any, batch: dict[str, Any]) -> tuple[Any, dict[str, torch.Tensor], Any, Any]:
    """(networks, losses that would be stepped along, metrics and errors, noise of the policy) for the same noise."""
    generator, found = torch.Generator().manual_seed(0), {}
    nets = SimpleNamespace(**one.algorithm.learner.networks, polyak=lambda *_: None)
    drawn: list[torch.Tensor] = []
    nets.noise = lambda shape: drawn.append(torch.randn(tuple(shape), generator=generator)) or drawn[-1]
    nets.step = lambda group, loss, *_, **__: found.update({group: loss})
    c = {"gamma": 0.9, "rho": 0.5, "consistency_scale": 2.0, "reward_scale": 3.0, "value_scale": 5.0, "tau": 0.0}
    c |= {"entropy_coef": 0.1, "lr": 0.0, "encoder_lr": 0.0}
    metrics, outputs = one.algorithm.learn(nets, {**batch, "scale": torch.ones(())}, c)
    return nets, found, (metrics, outputs["error"]), drawn[0]


def shaken(one: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        one.algorithm.learner.theta.add_(0.1 * torch.randn(one.algorithm.learner.theta.shape, generator=generator))


def test_targets_and_losses_are_those_of_the_paper() -> None:
    """Written out step by step: the lesser of two slow critics, weights rho^t, scales."""
    one = made(env="TDMPC/Ends-v0", dropout=0.0)
    filled(one, 60)
    shaken(one)
    batch = batch_of(one, 40)
    nets, found, (metrics, error), noise = losses(one, batch)
    world, coding, critic = nets.world, nets.world.coding, nets.critic
    parts = dict.fromkeys(("consistency", "reward", "value", "ends"), 0.0)
    with torch.no_grad():
        state = world.encode(batch["obs"][:1])[0]
        alive = torch.ones(40)
        for t in range(3):
            alive = alive * batch["mask"][t]
            following = world.encode(batch["obs"][t + 1 : t + 2])[0]
            action, _ = nets.actor(following, noise[t])
            q = coding.mean(nets.target_critic(torch.cat([following, action], -1))).min(0).values
            target = batch["reward"][t] + 0.9 * (1 - batch["terminated"][t].float()) * q
            seen = torch.cat([state, batch["action"][t]], -1)
            state = world.dynamics(seen)
            weight = 0.5**t * alive / 40 / 3
            parts["consistency"] += (weight * (state - following).square().mean(-1)).sum()
            parts["reward"] += (weight * coding.loss(world.reward(seen), batch["reward"][t])).sum()
            parts["value"] += sum((weight * coding.loss(head, target)).sum() for head in critic(seen)) / 2
            chance = world.ends(state).squeeze(-1).sigmoid()
            ended = batch["terminated"][t]
            parts["ends"] += (alive / 120 * -torch.where(ended, chance, 1 - chance).log()).sum()
            off = (coding.mean(critic(seen)).mean(0) - target).abs() * alive
            torch.testing.assert_close(error[t], off, atol=1e-4, rtol=1e-4)
    for name, expected in parts.items():
        assert metrics[f"loss/{name}"].item() == pytest.approx(expected.item(), rel=1e-4), name
    whole = 2 * parts["consistency"] + 3 * parts["reward"] + 5 * parts["value"] + parts["ends"]
    assert found["model"].item() == pytest.approx(whole.item(), rel=1e-4)
    close(one)


def test_what_comes_after_the_end_of_an_episode_does_not_count() -> None:
    one = made(env="TDMPC/Ends-v0", dropout=0.0)
    filled(one, 60)
    shaken(one)
    batch = batch_of(one, 40)
    over = batch["mask"].float().cumprod(0) == 0
    assert over.any()
    (_, before, _, _), changed = losses(one, batch), {**batch}
    changed["reward"] = torch.where(over, 99.0, batch["reward"])
    changed["action"] = torch.where(over.unsqueeze(-1), -0.7, batch["action"])
    changed["terminated"] = batch["terminated"] ^ over
    changed["obs"] = torch.cat([batch["obs"][:1], torch.where(over.unsqueeze(-1), 5.0, batch["obs"][1:])])
    _, after, (_, error), _ = losses(one, changed)
    for name, loss in before.items():
        assert after[name].item() == pytest.approx(loss.item(), rel=1e-5), name
    assert not error[over].any()
    close(one)


def test_of_many_critics_two_are_asked() -> None:
    one = made(critics=5)
    shaken(one)
    critic, z, action = one.algorithm.learner.networks["critic"], torch.rand(7, 16), torch.rand(7, 1)
    with torch.no_grad():
        values = critic.coding.mean(critic(torch.cat([z, action], -1)))
        pair = torch.tensor([4, 1])
        torch.testing.assert_close(critic.value(z, action, pair, least=True), values[pair].min(0).values)
        torch.testing.assert_close(critic.value(z, action, pair, least=False), values[pair].mean(0))
    close(one)


def test_sequences_weigh_as_the_buffer_says() -> None:
    one = made(env="TDMPC/Ends-v0", dropout=0.0)
    filled(one, 60)
    shaken(one)
    batch = batch_of(one, 40)
    whole, half = (losses(one, {**batch, "weight": share * batch["weight"]})[2][0] for share in (1.0, 0.5))
    for name in ("consistency", "reward", "value", "ends"):
        assert half[f"loss/{name}"].item() == pytest.approx(0.5 * whole[f"loss/{name}"].item(), rel=1e-5), name
    close(one)


def test_latent_states_are_to_equal_those_of_the_slow_encoder() -> None:
    """As in the first version; targets of values are still those of the encoder's states."""
    one = made(consistency_target="slow", dropout=0.0)
    filled(one, 30)
    shaken(one)
    batch = batch_of(one, 20)
    nets, _, (metrics, _), _ = losses(one, batch)
    with torch.no_grad():
        z = nets.world.follow(nets.world.encode(batch["obs"][:1])[0], batch["action"])
        off = (z[1:] - nets.target_world.encode(batch["obs"][1:])).square().mean(-1)
        weight = (0.5 ** torch.arange(3)).unsqueeze(1) * batch["mask"].float().cumprod(0)
    assert metrics["loss/consistency"].item() == pytest.approx((weight * off).mean().item(), rel=1e-4)
    close(one)


def test_the_policy_asks_critics_of_its_own_draw() -> None:
    one = made(critics=5)
    filled(one)
    asked = []
    for name in ("model_loss", "policy_loss"):
        whole = getattr(one.algorithm, name)
        setattr(one.algorithm, name, lambda *given, whole=whole: asked.append(given[-1].tolist()) or whole(*given))
    losses(one, batch_of(one, 4))
    assert len(asked) == 2 and asked[0] != asked[1] and all(len(set(pair)) == 2 for pair in asked)
    close(one)


@pytest.mark.parametrize("which", ["mean", "least"])
def test_plans_go_by_the_value_that_the_policy_goes_by(which: str) -> None:
    one = made(policy_value=which)
    shaken(one)
    worth, z = one.algorithm.behaviour.actor.worth, torch.rand(7, 16)
    with torch.no_grad():
        found = worth(z, torch.zeros(1, 7, 1), torch.zeros(7, 1), torch.tensor([0, 1]), torch.tensor(1.0))
        states = worth.world.follow(z, torch.zeros(1, 7, 1))
        seen = torch.cat([states[-1], worth.actor(states[-1], torch.zeros(7, 1))[0]], -1)
        both = worth.world.coding.mean(worth.critic(seen))
        reward = worth.world.coding.mean(worth.world.reward(torch.cat([z, torch.zeros(7, 1)], -1)))
        expected = reward + worth.world.lives(states[-1]) * (both.mean(0) if which == "mean" else both.amin(0))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(both[0], both[1])
    close(one)


def test_the_policy_climbs_scaled_values_and_entropy() -> None:
    one = made(entropy_coef=0.3)
    shaken(one)
    algorithm, nets = one.algorithm, SimpleNamespace(**one.algorithm.learner.networks)
    with torch.no_grad():
        nets.critic.layers[-1].weight.mul_(20.0)
    z, noise = torch.rand(4, 9, 16), torch.randn(4, 9, 1)
    alive = torch.ones(3, 9)
    alive[1:, 0] = 0.0
    rho = (0.5 ** torch.arange(4)).unsqueeze(1)
    batch = {"alive": alive, "rho": rho, "scale": torch.tensor(4.0)}
    with torch.no_grad():
        loss, scale, _ = algorithm.policy_loss(nets, z, batch, {"entropy_coef": 0.3}, noise, torch.tensor([0, 1]))
        action, entropy = nets.actor(z, noise)
        q = nets.critic.value(z, action, None, least=False)
    spread = q[0].quantile(0.95) - q[0].quantile(0.05)
    assert spread > 1.5, "less would count as 1, whatever it is the range of"
    torch.testing.assert_close(scale, 0.99 * torch.tensor(4.0) + 0.01 * spread)
    weight = rho * torch.cat([torch.ones(1, 9), alive])
    torch.testing.assert_close(loss, -(weight * (q / scale + 0.3 * entropy)).sum() / 36)
    close(one)


def test_who_learns_from_what() -> None:
    """Slow critics follow; the encoder may learn slower than the rest, here not at all."""
    one = made(encoder_lr_scale=0.0, tau=0.5)
    now, learner = filled(one), one.algorithm.learner
    shaken(one)
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    one.algorithm.update(now)
    after = learner.model.state_dict()
    for name, tensor in after.items():
        changed = not torch.equal(tensor, before[name])
        assert changed != name.startswith("world.encoder"), name
    for name in before:
        if name.startswith("target_"):
            halfway = (before[name] + after[name.removeprefix("target_")]) / 2
            torch.testing.assert_close(after[name], halfway)
    close(one)


def test_slow_copies_move_at_every_second_update() -> None:
    one = made(slow_every=2, consistency_target="slow")
    now, slow = filled(one), one.algorithm.learner.networks["target_world"]
    found = []
    for _ in range(4):
        before = [parameter.clone() for parameter in slow.parameters()]
        one.algorithm.update(now)
        found.append(any(not torch.equal(*pair) for pair in zip(before, slow.parameters(), strict=True)))
    assert found == [False, True, False, True]
    close(one)


def test_errors_become_priorities_and_the_range_of_values_is_kept() -> None:
    one = made(buffer="prioritized")
    now = filled(one)
    shaken(one)
    tree = one.algorithm.replay["replay"].tree
    one.algorithm.replay["replay"].sample_sequences(4, 3)
    before = tree.total() if callable(getattr(tree, "total", None)) else None
    one.algorithm.update(now)
    assert before is None or tree.total() != before
    one.algorithm.scale.value = torch.tensor(3.5)
    assert one.algorithm.state()["scale"].state_dict()["value"].item() == 3.5
    close(one)
