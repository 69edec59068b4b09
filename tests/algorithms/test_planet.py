"""PlaNet: what a plan is worth, that it is the best one, and that nobody else's plan changes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from ludus.algorithms.planet import CrossEntropyPlanner, PlaNet, PlaNetConfig
from ludus.errors import ConfigError
from support import build, close, config, moment

SMALL = {"deter": 8, "hidden": 8, "stoch": 2}
QUICK: dict[str, Any] = {
    "learning_starts": 8, "batch_size": 3, "sequence_length": 4, "horizon": 3, "candidates": 12, "rounds": 2,
    "elites": 3, "encoder": {"layers": 1, "units": 8}, "decoder": {"layers": 1, "units": 8},
}  # fmt: skip


class Position:
    """A point that actions move, paid by how near it is to 1.2; it stops counting with chance `lives`."""

    action_dim = 1
    representation = SimpleNamespace(noise_dim=0)

    def __init__(self, lives: float = 1.0) -> None:
        self.chance = lives
        self.reward = type(
            "Reward", (), {"__call__": lambda _, x: x, "mean": lambda _, x: -(x[..., 0] - 1.2).square()}
        )()

    def parameters(self) -> Any:
        return iter([torch.zeros(1)])

    def imagine(self, state: dict[str, torch.Tensor], action: torch.Tensor, noise: Any) -> dict[str, torch.Tensor]:
        return {"x": state["x"] + 0.5 * action}

    def features(self, state: dict[str, torch.Tensor]) -> torch.Tensor:
        return state["x"]

    def lives(self, features: torch.Tensor, otherwise: float) -> torch.Tensor:
        return torch.full_like(features[..., 0], self.chance)


def planner(lives: float = 1.0, **settings: Any) -> CrossEntropyPlanner:
    cfg = PlaNetConfig.model_validate({"horizon": 4, "candidates": 300, "rounds": 8, "elites": 30, **settings})
    return CrossEntropyPlanner(Position(lives), cfg)  # type: ignore[arg-type]


def test_the_value_of_a_plan_is_the_sum_of_rewards_that_are_reached() -> None:
    actions = torch.tensor([[[1.0]], [[1.0]], [[-1.0]]])  # x: 0.5, 1.0, 0.5
    for lives in (1.0, 0.5):
        found = planner(lives).imagined_return({"x": torch.zeros(1, 1)}, actions, torch.zeros(3, 1, 0))
        assert found.item() == pytest.approx(-(0.49 + lives * 0.04 + lives**2 * 0.49))


def test_the_first_action_of_the_best_plan() -> None:
    """From each start at once: towards the goal as fast as it can, no farther."""
    starts = {"x": torch.tensor([[0.0], [1.0], [1.2], [3.0]])}
    action, value = planner().plan(starts, np.random.default_rng(0))
    assert action[:, 0].tolist() == pytest.approx([1.0, 0.4, 0.0, -1.0], abs=0.05)
    best = [-(0.49 + 0.04), 0.0, 0.0, -(1.3**2 + 0.8**2 + 0.3**2)]
    assert value.tolist() == pytest.approx(best, abs=0.02)


def test_every_step_of_every_candidate_is_imagined_with_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prior is rolled forward at random, as in the paper."""
    one, given = planner(rounds=1, horizon=3), []
    monkeypatch.setattr(one.world, "representation", SimpleNamespace(noise_dim=2), raising=False)
    imagine = one.world.imagine
    monkeypatch.setattr(one.world, "imagine", lambda *a: given.append(a[2]) or imagine(*a))
    one.plan({"x": torch.zeros(2, 1)}, np.random.default_rng(0))
    noise = torch.stack(given)
    assert noise.shape == (3, 600, 2) and len(noise.unique()) > 3500
    assert noise.std().item() == pytest.approx(1.0, abs=0.05)


def test_plans_of_environments_do_not_influence_each_other() -> None:
    one, other = (torch.tensor([[0.0], [x]]) for x in (0.3, -50.0))
    found = [planner().plan({"x": x}, np.random.default_rng(0))[0][0] for x in (one, other)]
    assert torch.equal(*found)


def made(name: str = "planet", env: str = "Pendulum-v1", **settings: Any) -> Any:
    algorithm = {"name": name, **QUICK, "representation": SMALL, **settings}
    return build(config(algorithm, env=env, environment={"num_envs": 2}, buffers={"replay": {"size": 300}}))


CATEGORICAL = {**SMALL, "latent": "categorical", "cell": "block_gru"}
STOCHASTIC = {"type": "identity", "dynamics": "stochastic"}


@pytest.mark.parametrize("representation", [SMALL, CATEGORICAL, "identity", STOCHASTIC])
def test_it_learns_with_every_latent_state_and_acts(representation: Any) -> None:
    one = made(representation=representation)
    now, algorithm = moment(one.config.algorithm.config), one.algorithm
    for _ in range(8):
        algorithm.collect(now)
    before = algorithm.learner.theta.clone()
    for _ in range(2):
        assert algorithm.update_world_model(now).updates == 1
    algorithm.collect(now)
    assert not algorithm.behaviour.uniform and not torch.equal(before, algorithm.learner.theta)
    assert all(np.isfinite(number) for number in algorithm.learner.metrics().values())
    obs, first = one.collector.newest_obs, np.ones(2, bool)
    acted = [algorithm.act(obs, algorithm.initial_state(2), first, deterministic=True) for _ in range(2)]
    np.testing.assert_array_equal(acted[0].action, acted[1].action)
    assert np.abs(acted[0].action).max() <= 2.0 and np.isfinite(acted[0].info["value"]).all()
    close(one)


def test_random_steps_take_no_plan_and_others_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one, plans = made(), []
    now, algorithm = moment(one.config.algorithm.config), one.algorithm
    plan = algorithm.behaviour.actor.plan
    monkeypatch.setattr(algorithm.behaviour.actor, "plan", lambda *args: plans.append(1) or plan(*args))
    for _ in range(4):
        algorithm.collect(now)
    assert algorithm.behaviour.uniform and not plans
    algorithm.update_world_model(now)
    algorithm.collect(now)
    assert len(plans) == 1
    acted = algorithm.act(one.collector.newest_obs, algorithm.initial_state(2), np.ones(2, bool), deterministic=True)
    assert acted.info["value"].shape == (2,) and len(plans) == 2
    close(one)


def test_every_step_of_training_is_planned_with_candidates_of_its_own() -> None:
    """Greedy plans are always those of the same candidates."""
    one = made()
    now, algorithm, planner = moment(one.config.algorithm.config), one.algorithm, one.algorithm.behaviour.actor
    for _ in range(4):
        algorithm.collect(now)
    algorithm.update_world_model(now)
    obs, state, first = one.collector.newest_obs, algorithm.initial_state(2), np.ones(2, bool)
    rng = np.random.default_rng(5)
    drawn, again, greedy, same = (planner(obs, state, first, r)[0]("plan") for r in (rng, rng, None, None))
    assert not np.array_equal(drawn, again) and not np.array_equal(drawn, greedy)
    np.testing.assert_array_equal(greedy, same)
    close(one)


def test_its_learning_rate_rises_over_the_first_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    one, rates = made(warmup_updates=4, lr=1e-2), []
    now, learner = moment(one.config.algorithm.config), one.algorithm.learner
    update = learner.update
    monkeypatch.setattr(learner, "update", lambda *a: rates.append(a[2]["lr"]) or update(*a))
    for _ in range(4):
        one.algorithm.collect(now)
    for _ in range(5):
        one.algorithm.update_world_model(now)
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])
    close(one)


def test_its_model_learns_that_episodes_go_on_without_a_discount() -> None:
    """Plans add up rewards as they are."""
    given: list[float] = []

    def losses(batch: Any, noise: Any, discount: float) -> Any:
        given.append(discount)
        return torch.zeros(()), None, {}

    world = SimpleNamespace(representation=SimpleNamespace(noise_dim=1), losses=losses)
    nets: Any = SimpleNamespace(world=world, noise=torch.zeros, step=lambda *_: None)
    object.__new__(PlaNet).update(nets, {"first": torch.zeros(4, 3)}, {"lr": 1.0})
    assert given == [1.0]


def test_noise_is_added_while_collecting_only() -> None:
    """Stored actions stay in the unit box."""
    one = made(exploration=0.9)
    now, algorithm = moment(one.config.algorithm.config), one.algorithm
    for _ in range(8):
        algorithm.collect(now)
    algorithm.update_world_model(now)
    algorithm.collect(now)
    strategy = algorithm.behaviour.strategy
    plan = np.zeros((2, 1), np.float32)
    outputs = type("Outputs", (), {"batch": 2, "__call__": lambda *_: plan})()
    drawn = np.concatenate([strategy.stored(strategy.explore(outputs, np.random.default_rng(s))) for s in range(50)])
    assert drawn.std() > 0.4 and np.abs(drawn).max() <= 1
    assert strategy.facts(outputs, drawn[:2])["std"]() == pytest.approx(0.9)
    np.testing.assert_array_equal(strategy.stored(strategy.draw(outputs, None)), plan)
    close(one)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.elites.*candidates"):
        made(elites=13)
    with pytest.raises(ConfigError, match="planet needs a bounded Box"):
        made(env="CartPole-v1")
    with pytest.raises(ValidationError):
        PlaNetConfig.model_validate({"critic": {}})


def test_its_config_is_that_of_the_paper_and_loads_again() -> None:
    cfg = PlaNetConfig.model_validate({})
    rssm = cfg.representation.config
    assert (rssm.latent, rssm.cell, rssm.deter, rssm.stoch, rssm.free_nats) == ("gaussian", "gru", 200, 30, 3.0)
    assert (cfg.horizon, cfg.candidates, cfg.rounds, cfg.elites, cfg.reward.name) == (12, 1000, 10, 100, "gaussian")
    assert PlaNetConfig.model_validate(cfg.model_dump(mode="json")) == cfg
    assert cfg.cycle == ("collect", {"update_world_model": {"per_env_step": 0.1}})
