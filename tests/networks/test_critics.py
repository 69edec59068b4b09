"""An ensemble is its members side by side; features of batches with and without a memory."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.acting.actor import TorchActor
from ludus.acting.numpy_actor import NumpyActor, make_actor
from ludus.config.schema import Head, Network
from ludus.networks.critics import WIDE, Critics, EnsembleLinear, features_with_target
from ludus.networks.policy import ActorHead, Trunk

BOX = gym.spaces.Box(-1, 1, (5,), np.float32)


def test_ensemble_equals_separate_networks() -> None:
    critics = Critics(Head(hidden_dims=(16, 8), activation="relu"), Trunk(Network(), BOX), 3, action_dim=2)
    features, action = torch.randn(4, 6, 5), torch.randn(4, 6, 2)
    out = critics(features, action)
    assert out.shape == (3, 4, 6, 1)
    for member in range(3):
        x = torch.cat([features, action], -1)
        for layer in critics.layers:
            x = x @ layer.weight[member] + layer.bias[member] if isinstance(layer, EnsembleLinear) else layer(x)
        torch.testing.assert_close(out[member], x)


def test_members_differ_and_are_orthogonal() -> None:
    layer = EnsembleLinear(2, 16, 16, gain=1.0)
    assert not torch.allclose(layer.weight[0], layer.weight[1])
    for weight in layer.weight:
        torch.testing.assert_close(weight @ weight.T, torch.eye(16), atol=1e-5, rtol=0)


def test_one_member_learns_nothing_from_the_others() -> None:
    critics = Critics(Head(hidden_dims=(8,)), Trunk(Network(), BOX), 2)
    critics(torch.randn(1, 4, 5))[0].sum().backward()
    for layer in critics.layers:
        if isinstance(layer, EnsembleLinear):
            assert layer.weight.grad[0].abs().sum() > 0
            assert layer.weight.grad[1].abs().sum() == 0


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_live_actor_follows_without_a_refresh(memory: str) -> None:
    trunk = Trunk(Network(memory=memory), BOX)
    heads = {"actor": ActorHead(Head(), trunk, 4, default=WIDE), "critic": Critics(Head(), trunk, 2, action_dim=3)}
    fast, slow = make_actor(trunk, heads, live=True), TorchActor(trunk, heads)
    assert isinstance(fast, NumpyActor)
    obs, first = np.random.default_rng(0).standard_normal((3, 5), np.float32), np.zeros(3, bool)
    action = np.random.default_rng(1).standard_normal((3, 3), np.float32)
    for _ in range(2):
        ours, _ = fast(obs, fast.initial_state(3), first)
        theirs, _ = slow(obs, slow.initial_state(3), first)
        np.testing.assert_allclose(ours("actor"), theirs("actor"), atol=2e-6)
        np.testing.assert_allclose(ours("critic", action), theirs("critic", action), atol=2e-6)
        assert ours("critic", action).shape == (2, 3, 1)
        with torch.no_grad():
            for parameter in (p for part in (trunk, *heads.values()) for p in part.parameters()):
                parameter.add_(0.01)


def test_only_present_features_learn() -> None:
    trunk = Trunk(Network(encoder={"type": "mlp", "hidden_dims": [6]}), BOX)
    first = torch.zeros(1, 4, dtype=torch.bool)
    batch = {"obs": torch.randn(1, 4, 5), "next_obs": torch.randn(1, 4, 5), "first": first}
    now, following, target = features_with_target(trunk, trunk, batch, 0)
    assert now.requires_grad and not following.requires_grad and not target.requires_grad


def test_burn_in_equals_the_whole_pass() -> None:
    """Features after a burn-in are those of one pass over everything, without its gradient."""
    trunk = Trunk(Network(memory="gru"), BOX)
    obs, first = torch.randn(10, 3, 5), torch.zeros(10, 3, dtype=torch.bool)
    first[6, 1] = True
    state = (torch.randn(3, 64),)
    row = torch.arange(1, 6).unsqueeze(1).repeat(1, 3)
    row[0, 2] = 4  # one step that looks further ahead
    batch = {"obs": obs, "first": first, "state": state, "row": row}
    whole, _ = trunk(obs, state, first)
    now, following, target = features_with_target(trunk, trunk, batch, 4)
    torch.testing.assert_close(now, whole[4:-1])
    torch.testing.assert_close(following[:, :2], whole[5:, :2])
    torch.testing.assert_close(following[0, 2], whole[8, 2])
    torch.testing.assert_close(target, following)


def test_the_targets_burn_in_is_its_own() -> None:
    """A target trunk with other weights brings the stored memory up to date itself."""
    trunk, slow = Trunk(Network(memory="gru"), BOX), Trunk(Network(memory="gru"), BOX)
    obs, first = torch.randn(8, 3, 5), torch.zeros(8, 3, dtype=torch.bool)
    batch = {"obs": obs, "first": first, "state": (torch.randn(3, 64),)}
    batch["row"] = torch.arange(1, 5).unsqueeze(1).repeat(1, 3)
    now, following, target = features_with_target(trunk, slow, batch, 3)
    whole, whole_slow = (net(obs, batch["state"], first)[0] for net in (trunk, slow))
    torch.testing.assert_close(now, whole[3:-1])
    torch.testing.assert_close(following, whole[4:])
    torch.testing.assert_close(target, whole_slow[4:])
    assert (whole_slow - whole).abs().max() > 1e-2
