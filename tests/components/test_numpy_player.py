"""A world model acts in numpy as it does in torch."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.algorithms.dreamer import DreamerConfig
from ludus.components.actor import WorldPolicy
from ludus.components.numpy_player import NumpyPlayer, make_player
from ludus.components.world_model import WorldModel
from ludus.components.world_player import WorldPlayer
from ludus.types import Spaces, tree_leaves

B = 3
VECTOR = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
MIXED = gym.spaces.Dict({"place": VECTOR, "gear": gym.spaces.Discrete(3), "counts": gym.spaces.MultiDiscrete([2, 4])})
IMAGE = gym.spaces.Box(0, 255, (3, 16, 16), np.uint8)
DISCRETE, BOX = gym.spaces.Discrete(4), gym.spaces.Box(-2.0, 2.0, (2,), np.float32)


def players(observation: gym.Space, action: gym.Space, **settings: Any) -> tuple[WorldPlayer, WorldPlayer]:
    """(numpy, torch) over the same weights."""
    cfg = DreamerConfig.model_validate({"size": "tiny", **settings})
    torch.manual_seed(0)
    world = WorldModel(cfg, Spaces(observation, action))
    actor = WorldPolicy(cfg.actor, world.representation.feature_dim, action)
    for parameter in (*world.parameters(), *actor.parameters()):
        parameter.data += 0.1 * torch.randn_like(parameter)
    heads = {"actor": actor, "critic": lambda features: world.reward.mean(world.reward(features))}
    return make_player(world, heads), WorldPlayer(world, heads)


@pytest.mark.parametrize("likeliest", [False, True])
@pytest.mark.parametrize(
    ("observation", "action", "settings"),
    [
        (VECTOR, DISCRETE, {}),
        (MIXED, BOX, {}),
        (VECTOR, DISCRETE, {"variant": "v2"}),
        (VECTOR, BOX, {"variant": "v2"}),
        (VECTOR, BOX, {"variant": "v1"}),
        (VECTOR, BOX, {"encoder": {"activation": "relu"}, "representation": {"blocks": 4, "unimix": 0.2}}),
    ],
)
def test_a_player_in_numpy_is_the_one_in_torch(
    observation: gym.Space, action: gym.Space, settings: dict[str, Any], likeliest: bool
) -> None:
    """Over episodes that begin at different times; both draw the same numbers from their random streams."""
    ours, theirs = players(observation, action, **settings)
    assert type(ours) is NumpyPlayer
    streams = [None, None] if likeliest else [np.random.default_rng(7), np.random.default_rng(7)]
    states, random = [one.initial_state(B) for one in (ours, theirs)], np.random.default_rng(3)
    observation.seed(0), action.seed(0)
    space, actions = (gym.vector.utils.batch_space(one, B) for one in (observation, action))
    space.seed(1), actions.seed(1)
    for t in range(12):
        obs, first = space.sample(), random.random(B) < (0.3 if t else 1.0)
        if isinstance(obs, dict):
            obs = dict(obs)
        chosen = np.clip(actions.sample(), -1, 1) if action is BOX else actions.sample()
        outputs = []
        for i, (one, stream) in enumerate(zip((ours, theirs), streams, strict=True)):
            output, states[i] = one(obs, states[i], first, stream)
            outputs.append(output)
            states[i] = one.remember(states[i], chosen)
        for head in ("actor", "critic"):
            np.testing.assert_allclose(outputs[0](head), outputs[1](head), atol=2e-5, rtol=1e-4, err_msg=f"{head} {t}")
        for a, b in zip(*map(tree_leaves, states), strict=True):
            assert a.dtype == np.float32 and a.shape == tuple(b.shape)
            np.testing.assert_allclose(a, b.numpy(), atol=1e-5, err_msg=str(t))
    if not likeliest:
        assert streams[0].bit_generator.state == streams[1].bit_generator.state


def test_new_weights_are_seen_at_once() -> None:
    ours, theirs = players(VECTOR, DISCRETE)
    obs, first = np.ones((B, 5), np.float32), np.ones(B, bool)
    for parameter in ours.world.parameters():
        parameter.data.mul_(0.5)
    found = [one(obs, one.initial_state(B), first)[0]("actor") for one in (ours, theirs)]
    np.testing.assert_allclose(*found, atol=1e-5)


def test_images_and_other_representations_act_in_torch() -> None:
    for observation, settings in ((IMAGE, {}), (VECTOR, {"representation": {"type": "identity"}})):
        assert type(players(observation, DISCRETE, **settings)[0]) is WorldPlayer
