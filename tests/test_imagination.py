"""Rows that a world model observed and predicted: equal to its own steps, judged by hand-made answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.components.implicit_model import ImplicitModel, ImplicitModelConfig
from ludus.components.latent_view import LatentView
from ludus.components.world_model import WorldModel, WorldModelConfig
from ludus.imagination import DreamedEpisode, Episode, Imagination, agreement, dream, facts, reliability, returns
from ludus.math.symlog import symexp, symlog
from ludus.types import Spaces

BOX = gym.spaces.Box(-9, 9, (3,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (1, 8, 8), np.uint8)
RSSM = {"type": "rssm", "deter": 16, "hidden": 8, "stoch": 3, "classes": 4, "blocks": 2}


def world(observation: gym.Space = BOX, action: gym.Space | None = None, **settings: Any) -> WorldModel:
    torch.manual_seed(0)
    cfg = WorldModelConfig.model_validate({"representation": RSSM, "reward": {"type": "gaussian"}, **settings})
    made = WorldModel(cfg, Spaces(observation, action or gym.spaces.Discrete(2)))
    with torch.no_grad():  # nothing stays at zero
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def episode(rows: int = 12, *, terminal: bool = True) -> Episode:
    rng = np.random.default_rng(1)
    ends = np.zeros(rows, bool)
    ends[-1] = terminal
    obs = rng.normal(size=(rows, 3)).astype(np.float32)
    return Episode(obs, rng.integers(2, size=rows), rng.normal(size=rows).astype(np.float32), ends)


def imagination(*dreams: DreamedEpisode, context: int, horizon: int) -> Imagination:
    return Imagination(list(dreams), context, horizon, ("a", "b", "c"), {}, frozenset())


def by_hand(model: WorldModel, one: Episode, start: int, steps: int) -> list[torch.Tensor]:
    """Features of `steps` rows after row `start`, called step by step."""
    action = model.act_vector(torch.as_tensor(one.action).unsqueeze(1))
    state, found = model.representation.initial_state(1), []
    for t in range(start + 1):
        row = model.observe(
            torch.as_tensor(one.obs[t])[None, None], action[t : t + 1], torch.tensor([[t == 0]]), state, None
        )
        state = {name: part[-1] for name, part in row.states.items()}
    for t in range(start + 1, start + 1 + steps):
        state = model.representation.imagine(state, action[t], None)
        found.append(model.features(state)[0])
    return found


@torch.no_grad()
def test_predictions_are_the_steps_of_the_representation() -> None:
    model, one = world(), episode()
    found = dream(model, one, context=4, horizon=3)
    assert found.ahead.tolist() == [0, 0, 0, 0, 1, 2, 3, 1, 2, 3, 1, 2]
    for start, steps in ((3, 3), (6, 3), (9, 2)):
        rows = slice(start + 1, start + 1 + steps)
        features = torch.stack(by_hand(model, one, start, steps))
        reward = model.reward.mean(model.reward(features))
        np.testing.assert_allclose(found.reward.predicted[rows], reward, atol=1e-5)
        errors = (model.predict(features[:, None])["vector"][:, 0].numpy() - one.obs[rows]) ** 2
        np.testing.assert_allclose(found.errors["vector"].predicted[rows], errors.mean(1), rtol=1e-4)
    assert found.shown["vector"].predicted.shape == (7, 3)
    vector = model.predict(torch.stack(by_hand(model, one, 3, 3))[:, None])["vector"][:, 0]
    np.testing.assert_allclose(found.shown["vector"].predicted[4:], vector, atol=1e-5)
    assert np.abs(found.reward.predicted - found.reward.reconstructed)[4:].max() > 1e-4


@torch.no_grad()
def test_the_context_is_the_posterior() -> None:
    model, one = world(), episode()
    found = dream(model, one, context=5, horizon=4)
    action = model.act_vector(torch.as_tensor(one.action).unsqueeze(1))
    first = torch.arange(12).unsqueeze(1) == 0
    state = model.representation.initial_state(1)
    seen = model.observe(torch.as_tensor(one.obs).unsqueeze(1), action, first, state, None)
    vector = model.decoder.predict(seen.features)["vector"][:, 0].numpy()
    np.testing.assert_allclose(found.shown["vector"].reconstructed, vector[:9], atol=1e-6)
    np.testing.assert_allclose(found.shown["vector"].predicted[:5], vector[:5], atol=1e-6)
    np.testing.assert_array_equal(found.shown["vector"].real, one.obs[:9])
    np.testing.assert_allclose(
        found.reward.reconstructed, model.reward.mean(model.reward(seen.features))[:, 0], atol=1e-6
    )


def test_a_perfect_model_makes_no_error() -> None:
    model = world(representation={"type": "identity"})
    one = episode(30)
    moves = np.array([[0.1, 0.2, -0.1], [-0.3, 0.1, 0.2]], np.float32)
    one = replace(one, obs=np.cumsum(moves[one.action], 0))

    def sample(vector: torch.Tensor, action: torch.Tensor, noise: object) -> torch.Tensor:
        return symlog(symexp(vector) + action @ torch.as_tensor(moves))

    model.representation.dynamics.sample = sample  # type: ignore[union-attr,method-assign,assignment]
    table = facts(imagination(dream(model, one, 5, 10), context=5, horizon=10))["errors"]["vector"]
    assert [row["ahead"] for row in table] == [0, 1, 2, 5, 10]
    assert [row["rows"] for row in table] == [30, 3, 3, 3, 2]
    assert all(row["error"] < 1e-9 for row in table)
    changed = [np.mean((one.obs[t] - one.obs[t - 2]) ** 2) for t in (6, 16, 26)]
    assert table[2]["unchanged"] == pytest.approx(np.mean(changed), rel=1e-5)


def test_without_a_decoder_the_state_itself_is_compared() -> None:
    found = dream(world(decoder={"type": "none"}), episode(), 4, 3)
    assert set(found.errors) == {"state"}
    assert found.errors["state"].reconstructed.max() == 0 < found.errors["state"].predicted[4:].min()


def test_images_and_vectors_are_parts_of_one_observation() -> None:
    one, rng = episode(300), np.random.default_rng(2)
    pixels = rng.integers(256, size=(300, 1, 8, 8), dtype=np.uint8)
    model = world(gym.spaces.Dict({"camera": IMAGE, "touch": BOX}))
    found = dream(model, replace(one, obs={"camera": pixels, "touch": one.obs}), 5, 45)
    assert set(found.errors) == {"image0", "vector"} and len(found.errors["image0"].predicted) == 300
    np.testing.assert_allclose(found.shown["image0"].real, pixels[:50] / 255, atol=1e-6)
    assert found.shown["image0"].predicted.shape == (50, 1, 8, 8)


def test_values_are_those_of_the_rewards_that_follow() -> None:
    reward = np.array([9.0, 1.0, 2.0, 4.0])
    np.testing.assert_allclose(returns(reward, 0.5, 0.0), [1 + 1 + 1, 2 + 2, 4, 0])
    np.testing.assert_allclose(returns(reward, 0.5, 8.0), [3 + 1, 4 + 2, 4 + 4, 8])
    model = world()
    for terminal, last in ((True, 0.0), (False, 7.0)):
        found = dream(model, episode(terminal=terminal), 4, 3, 0.9, lambda x: torch.full_like(x[..., 0], 7.0))
        assert found.value is not None
        assert found.value.real[-1] == last and found.value.predicted.tolist() == [7.0] * 12


def test_a_discount_is_no_end() -> None:
    model = world()
    assert model.continues is not None
    model.continues.mean = lambda params: torch.full_like(params[..., 0], 0.9)  # type: ignore[method-assign]
    found = dream(model, episode(), 4, 3, discount=0.9)
    assert found.continues is not None
    np.testing.assert_allclose(found.continues.predicted, 1.0)
    assert found.continues.real.tolist() == [1.0] * 11 + [0.0]
    assert dream(world(continue_scale=0.0), episode(), 4, 3).continues is None


def test_agreement_and_reliability() -> None:
    real, guess = np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.5, 2.5])
    assert agreement(real, guess) == {"rows": 3, "correlation": pytest.approx(1), "mean_absolute_error": 0.5}
    assert agreement(np.ones(3), guess)["correlation"] is None
    bins = reliability(np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.7, 0.7, 0.0]))
    assert [row["rows"] for row in bins] == [1, 0, 2, 0, 1]
    assert bins[2]["predicted"] == pytest.approx(0.3) and bins[2]["observed"] == 0.5
    assert bins[4]["predicted"] == bins[4]["observed"] == 1.0 and bins[1]["observed"] is None
    assert [row["rows"] for row in reliability(np.ones(2), np.array([0.5, 1.0]))] == [1, 0, 0, 1, 0], "from 0.5 on"


def test_first_rows_are_judged_by_nothing() -> None:
    """No reward led to the first observation, and no context of a shorter episode is imagined."""
    told = facts(imagination(dream(world(), episode(), 4, 3), dream(world(), episode(6), 4, 3), context=4, horizon=3))
    assert told["rows"] == {"observed": 18, "imagined": 10} and told["value"] is None
    assert told["reward"]["observed"]["rows"] == 16 and told["reward"]["imagined"]["rows"] == 10
    assert sum(row["rows"] for row in told["ends"]["imagined"]) == 10


@torch.no_grad()
def test_an_implicit_model_predicts_what_its_own_dynamics_and_rewards_say() -> None:
    """A row has the reward of the step that led to it: of the state before and the action in between."""
    torch.manual_seed(0)
    spaces = Spaces(BOX, gym.spaces.Box(-1, 1, (2,), np.float32))
    model = ImplicitModel(ImplicitModelConfig(latent=16, units=8, bins=0), spaces)
    for parameter in model.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    rng, view = np.random.default_rng(1), LatentView(model, spaces, 16)
    one = replace(episode(8), action=rng.uniform(-1, 1, (8, 2)).astype(np.float32))
    found = dream(view, one, 3, 2, 0.9, lambda x: x[..., 0])
    obs, act = torch.as_tensor(one.obs), torch.as_tensor(one.action)
    z = model.encode(obs[:, None])[:, 0]
    seen = [float(model.reward(torch.cat([z[t - 1], act[t]]))) for t in range(1, 8)]
    np.testing.assert_allclose(found.reward.reconstructed[1:], seen, rtol=1e-5)
    ahead = model.follow(z[2:3], act[3:5, None])[:, 0]
    np.testing.assert_allclose(
        found.reward.predicted[3:5],
        [float(model.reward(torch.cat([ahead[t], act[3 + t]]))) for t in range(2)],
        rtol=1e-5,
    )
    squares = (ahead[1:] - z[3:5]).square().mean(1)
    np.testing.assert_allclose(found.errors["latent"].predicted[3:5], squares, rtol=1e-4)
    assert found.continues is not None and found.value is not None
    np.testing.assert_allclose(found.continues.predicted[3:5], model.lives(ahead[1:]), rtol=1e-5)
    np.testing.assert_allclose(found.value.predicted[3:5], ahead[1:, 0], rtol=1e-5)
    assert not facts(imagination(found, context=3, horizon=2))["decoder"]
