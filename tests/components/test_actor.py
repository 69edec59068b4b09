"""The policy of a world model: its distributions, and that it imagines the actions that it would take."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.acting.exploration import Level
from ludus.components.actor import WorldActorConfig, WorldPolicy
from ludus.components.world_player import SampleWorldPolicy

BOX = gym.spaces.Box(-3, 1, (2,), np.float32)
KINDS = ["normal", "tanh_normal", "truncated_normal"]


def policy(space: gym.Space, **settings: Any) -> WorldPolicy:
    torch.manual_seed(0)
    return WorldPolicy(WorldActorConfig(layers=1, units=8, **settings), 3, space)


@pytest.mark.parametrize("kind", KINDS)
def test_imagined_actions_are_those_that_would_be_stored(kind: str) -> None:
    """Between -1 and 1, whatever was drawn; its log-probability is that of what was drawn."""
    made = policy(BOX, distribution=kind, output_scale=3.0)
    params = made(torch.randn(500, 3))
    action, drawn = made.draw(params, torch.randn(500, 2))
    strategy = SampleWorldPolicy(made.distribution, BOX, Level(0.0))
    np.testing.assert_allclose(action.detach(), strategy.stored(drawn.detach().numpy()), atol=1e-6)
    assert action.abs().max() <= 1 and (drawn.abs().max() > 1) == (kind != "truncated_normal")
    assert made.distribution.log_prob(params, drawn).isfinite().all()
    sent = strategy.for_environment(strategy.stored(drawn.detach().numpy()))
    assert all(BOX.contains(row) for row in sent)


def said(params: np.ndarray) -> Any:
    """Outputs of a policy."""
    return lambda _: params


@pytest.mark.parametrize("kind", KINDS)
def test_noise_of_exploration_is_added_to_stored_actions(kind: str) -> None:
    made = policy(BOX, distribution=kind)
    strategy = SampleWorldPolicy(made.distribution, BOX, Level(0.3))
    params = np.tile(np.float32([0.1, -0.2, -20.0, -20.0]), (4000, 1))  # as good as no deviation of its own
    middle = np.tanh(params[:, :2]) if kind == "tanh_normal" else params[:, :2]
    outputs = said(params)
    stored = strategy.stored(strategy.explore(outputs, np.random.default_rng(0)))
    assert (stored - middle).std() == pytest.approx(0.3, rel=0.05) and np.abs(stored).max() <= 1
    np.testing.assert_allclose(strategy.stored(strategy.draw(outputs, None)), middle, atol=1e-6)


def test_discrete_exploration_replaces_some_actions() -> None:
    made = policy(gym.spaces.Discrete(4))
    strategy = SampleWorldPolicy(made.distribution, gym.spaces.Discrete(4), Level(0.4))
    outputs = said(np.tile(np.float32([50, 0, 0, 0]), (4000, 1)))
    counts = np.bincount(strategy.explore(outputs, np.random.default_rng(0)), minlength=4) / 4000
    np.testing.assert_allclose(counts, [0.7, 0.1, 0.1, 0.1], atol=0.03)


def test_discrete_draws_are_one_hot_and_as_likely_as_said() -> None:
    made = policy(gym.spaces.Discrete(3), unimix=0.3, output_scale=50.0)
    params = made(torch.randn(1, 3)).expand(20_000, 3)
    torch.testing.assert_close(params.exp().sum(-1), torch.ones(20_000))
    assert params.exp().min() > 0.09, "a share of the uniform distribution"
    action, drawn = made.draw(params, torch.randn(20_000, 1))
    torch.testing.assert_close(action.detach(), torch.nn.functional.one_hot(drawn, 3).float())
    torch.testing.assert_close(drawn.bincount(minlength=3) / 20_000, params[0].exp(), atol=0.015, rtol=0)


def test_deviations_begin_where_the_papers_have_them() -> None:
    """0.1 + 0.9 sigmoid(2) in Dreamer 3, 5 in Dreamer 1, 1.1 in Dreamer 2; means begin at zero."""
    for kind, least, std in (("normal", 0.1, 0.8927), ("tanh_normal", 1e-4, 5.0001), ("truncated_normal", 0.1, 1.1)):
        params = policy(BOX, distribution=kind, min_std=least, output_scale=0.0)(torch.randn(5, 3))
        torch.testing.assert_close(params[:, 2:].exp(), torch.full((5, 2), std), atol=1e-3, rtol=0)
        assert not params[:, :2].any()


def test_means_are_bounded_as_in_the_papers() -> None:
    """Within the unit box, or within 5 before the squash."""
    for kind, most in (("normal", 1.0), ("truncated_normal", 1.0), ("tanh_normal", 5.0)):
        params = policy(BOX, distribution=kind, output_scale=1e3)(torch.randn(50, 3))
        assert params[:, :2].abs().max().item() == pytest.approx(most, rel=1e-3)
