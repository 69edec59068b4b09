"""Acting is the network that learns: every algorithm, every activation, in the encoder and in the heads."""

from __future__ import annotations

from typing import get_args

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.config.schema import Head
from ludus.networks.encoders.mlp import MLPConfig
from ludus.session.player import build_player
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
    nets = player.learner.model
    whole = nets["q" if algorithm == "dqn" else "policy"] if algorithm not in ("sac", "td3") else None
    trunk = nets["trunk"] if whole is None else whole.trunk
    head = nets["actor"] if whole is None else whole.head if algorithm == "dqn" else whole.actor
    with torch.no_grad():
        for parameter in nets.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    rng = np.random.default_rng(0)
    state, found = player.initial_state(B), []
    obs, first = rng.normal(size=(T, B, 4)).astype(np.float32), rng.random((T, B)) < 0.2
    for t in range(T):
        _, state, info = player.act(obs[t], state, first[t], deterministic=True)
        found.append(np.concatenate([info[name] for name in ("q", "probabilities", "mean", "std") if name in info], -1))
    with torch.no_grad():
        features, _ = trunk(torch.from_numpy(obs), trunk.initial_state(B), torch.from_numpy(first))
        out = head(features)
    return np.stack(found), described(algorithm, out).numpy()


def described(algorithm: str, out: torch.Tensor) -> torch.Tensor:
    """What `info` should say about the outputs of a head."""
    if algorithm == "dqn":
        best = torch.nn.functional.one_hot(out.argmax(-1), 3)  # a player that never trained explores like a trained one
        return torch.cat([out, 0.05 / 3 + 0.95 * best], -1)
    if algorithm == "td3":
        return torch.cat([out.tanh(), torch.full_like(out, 0.1)], -1)
    if ACTIONS[algorithm] is DISCRETE:
        return out.softmax(-1)
    mean, log_std = out.chunk(2, -1)
    return torch.cat([mean, (log_std.clamp(max=2.0) if algorithm == "sac" else log_std).exp()], -1)


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
