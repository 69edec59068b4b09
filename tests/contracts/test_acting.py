"""Acting is the network that learns: every algorithm, every activation, in the encoder and in the heads."""

from __future__ import annotations

from typing import get_args

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.config.schema import Head
from ludus.experiment import build_player
from ludus.networks.encoders.mlp import MLPConfig
from ludus.types import Spaces
from support import config

B, T = 8, 4
OBSERVATION = gym.spaces.Box(-1, 1, (4,), np.float32)
DISCRETE, BOX = gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,), np.float32)
ACTIONS = {"ppo": DISCRETE, "reinforce": BOX, "ppo_replay": DISCRETE, "dqn": DISCRETE, "sac": BOX, "td3": BOX}
ENCODER, HEAD = (get_args(part.model_fields["activation"].annotation) for part in (MLPConfig, Head))


def acted_and_computed(algorithm: str, encoder: str, head: str, memory: str) -> tuple[np.ndarray, np.ndarray]:
    """What `act` says the policy puts out over some steps, and what the network itself puts out."""
    network = {
        "encoder": {"type": "mlp", "hidden_dims": [16, 16], "activation": encoder},
        "memory": memory,
        "actor": {"hidden_dims": [16], "activation": head},
        "critic": {"hidden_dims": [16], "activation": head},
    }
    player = build_player(config(algorithm, network=network), Spaces(OBSERVATION, ACTIONS[algorithm]), None).algorithm
    net = player.net if algorithm == "dqn" else player.policy
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    rng = np.random.default_rng(0)
    state, found = player.initial_state(B), []
    obs, first = rng.normal(size=(T, B, 4)).astype(np.float32), rng.random((T, B)) < 0.2
    for t in range(T):
        _, state, info = player.act(obs[t], state, first[t], deterministic=True)
        found.append(next(iter(info.values())))
    with torch.no_grad():
        computed, *_ = net(torch.from_numpy(obs), net.initial_state(B), torch.from_numpy(first))
    return np.stack(found), computed.numpy()


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("activation", ENCODER)
@pytest.mark.parametrize("algorithm", ACTIONS)
def test_acting_is_the_network_whatever_the_encoder_activation(algorithm: str, activation: str, memory: str) -> None:
    np.testing.assert_allclose(*acted_and_computed(algorithm, activation, "tanh", memory), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("activation", HEAD)
@pytest.mark.parametrize("algorithm", ACTIONS)
def test_acting_is_the_network_whatever_the_head_activation(algorithm: str, activation: str) -> None:
    np.testing.assert_allclose(*acted_and_computed(algorithm, "tanh", activation, "none"), atol=2e-5, rtol=1e-4)


def test_a_gelu_encoder_acts_as_it_learns() -> None:
    """The one that acted as if it had no activation at all."""
    np.testing.assert_allclose(*acted_and_computed("ppo", "gelu", "tanh", "none"), atol=2e-5, rtol=1e-4)
