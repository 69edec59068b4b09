"""The numpy actor is the torch policy, to rounding, for every space and memory it stands in for."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.acting.actor import TorchActor
from ludus.acting.numpy_actor import NumpyActor, dense_layers, make_actor
from ludus.config.schema import Network
from ludus.networks.policy import PolicyNetwork
from ludus.types import Spaces

B = 6
OBSERVATIONS = {
    "box": gym.spaces.Box(-1, 1, (4,), np.float32),
    "matrix": gym.spaces.Box(-1, 1, (2, 3), np.float64),
    "discrete": gym.spaces.Discrete(7),
    "multi": gym.spaces.MultiDiscrete([3, 2]),
    "binary": gym.spaces.MultiBinary(4),
}
ACTIONS = {
    "discrete": gym.spaces.Discrete(3),
    "box": gym.spaces.Box(-1, 1, (2,), np.float32),
    "multi": gym.spaces.MultiDiscrete([2, 4]),
    "binary": gym.spaces.MultiBinary(3),
}


def observations(space: gym.Space, seed: int) -> np.ndarray:
    space.seed(seed)
    return np.stack([np.asarray(space.sample()) for _ in range(B)])


@pytest.mark.parametrize("memory", ["none", "gru", "lstm", "min_gru", "trxl", "gtrxl", "mamba", "mamba2"])
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_numpy_equals_torch(observation: str, action: str, memory: str) -> None:
    torch.manual_seed(0)
    spaces = Spaces(OBSERVATIONS[observation], ACTIONS[action])
    cfg = Network(memory=memory, encoder={"type": "mlp", "hidden_dims": [16], "activation": "relu"})
    policy = PolicyNetwork(cfg, spaces)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    fast, slow = make_actor(policy.trunk, policy.heads), TorchActor(policy.trunk, policy.heads)
    assert isinstance(fast, NumpyActor)
    fast_state, slow_state = fast.initial_state(B), slow.initial_state(B)
    rng = np.random.default_rng(0)
    for t in range(5):
        obs, first = observations(spaces.observation, t), rng.random(B) < 0.3
        ours, fast_state = fast(obs, fast_state, first)
        theirs, slow_state = slow(obs, slow_state, first)
        close = {"atol": 2e-6} if memory in ("none", "gru", "lstm") else {"atol": 1e-4, "rtol": 1e-4}  # sums of exps
        for head in policy.heads:
            np.testing.assert_allclose(ours(head), theirs(head), **close)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
def test_activations(activation: str) -> None:
    spaces = Spaces(OBSERVATIONS["box"], ACTIONS["discrete"])
    policy = PolicyNetwork(Network(actor={"hidden_dims": [32, 32], "activation": activation}), spaces)
    obs, first = observations(spaces.observation, 1), np.ones(B, bool)
    ours, theirs = (actor(policy.trunk, policy.heads)(obs, (), first)[0] for actor in (NumpyActor, TorchActor))
    np.testing.assert_allclose(ours("actor"), theirs("actor"), atol=2e-6)


def test_wide_or_convolutional_policies_act_in_torch() -> None:
    pixels = gym.spaces.Box(0, 255, (3, 40, 40), np.uint8)
    wide = Network(actor={"hidden_dims": [512]})
    for network, space in ((Network(), pixels), (wide, OBSERVATIONS["box"])):
        policy = PolicyNetwork(network, Spaces(space, ACTIONS["discrete"]))
        assert isinstance(make_actor(policy.trunk, policy.heads), TorchActor)


def test_refresh_takes_new_weights() -> None:
    spaces = Spaces(OBSERVATIONS["box"], ACTIONS["discrete"])
    policy = PolicyNetwork(Network(), spaces)
    actor = NumpyActor(policy.trunk, policy.heads)
    obs, first = observations(spaces.observation, 2), np.ones(B, bool)
    before = actor(obs, (), first, None)[0]("actor")
    with torch.no_grad():
        policy.actor[-1].bias.add_(1.0)
    stale = actor(obs, (), first, None)[0]("actor")
    actor.refresh()
    fresh = actor(obs, (), first, None)[0]("actor")
    np.testing.assert_array_equal(before, stale)
    np.testing.assert_allclose(fresh, before + 1, atol=1e-6)


def test_layer_gains() -> None:
    """Orthogonal: sqrt(2) inside, 0.01 for the policy, 1 for the value."""
    policy = PolicyNetwork(Network(), Spaces(OBSERVATIONS["box"], ACTIONS["discrete"]))
    hidden, out, value = policy.actor[2].weight, policy.actor[-1].weight, policy.critic[-1].weight
    torch.testing.assert_close(hidden @ hidden.T, 2 * torch.eye(64), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(out @ out.T, 1e-4 * torch.eye(3), atol=1e-6, rtol=1e-3)
    assert value.norm().item() == pytest.approx(1.0, abs=1e-4)


def test_layers_nobody_knows_are_refused() -> None:
    """Left out in silence they would make another policy of it."""
    for unknown in (torch.nn.GELU(), torch.nn.LayerNorm(4), torch.nn.Dropout()):
        with pytest.raises(ValueError, match="known activations"):
            dense_layers(torch.nn.Sequential(torch.nn.Linear(4, 4), unknown), torch.Tensor.numpy)
