"""How off-policy algorithms act: epsilon, noise and bounds; values of actions, dueling and noisy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.acting.actor import Outputs
from ludus.acting.exploration import scale_to
from ludus.algorithms import Context
from ludus.config.schema import Network
from ludus.networks.q_values import NoisyLinear, QValues
from ludus.registry import ALGORITHMS
from ludus.spaces import scale_from
from ludus.types import Spaces

OBS = gym.spaces.Box(-1, 1, (4,), np.float32)
ACTIONS = gym.spaces.Discrete(3)
UNEVEN = gym.spaces.Box(np.array([0, -1], np.float32), np.array([3, 5], np.float32))
FIRST = np.ones(3_000, bool)


def player(name: str, action: gym.Space, **settings: Any) -> Any:
    """An algorithm that can only act."""
    torch.manual_seed(0)
    context = Context(
        spaces=Spaces(OBS, action),
        network=Network(),
        num_envs=1,
        device=torch.device("cpu"),
        rng=np.random.default_rng(1),
        evaluation_rng=np.random.default_rng(2),
    )
    return ALGORITHMS[name](ALGORITHMS[name].Config(**settings), context)


def observations(count: int = 3_000) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, 4)).astype(np.float32)


def greedy(dqn: Any, obs: np.ndarray) -> np.ndarray:
    values = dqn.net(torch.from_numpy(obs)[None], (), torch.zeros(1, len(obs), dtype=torch.bool))[0][0]
    return values.argmax(-1).numpy()


# ---- epsilon -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_collecting_is_greedy_but_for_epsilon(epsilon: float) -> None:
    """Of random actions a third is greedy by chance, and the others are spread evenly."""
    dqn = player("dqn", ACTIONS, epsilon=epsilon)
    obs = observations()
    stored, sent, *_ = dqn.behaviour.act(obs, (), FIRST)
    np.testing.assert_array_equal(stored, sent)
    best = greedy(dqn, obs)
    assert (stored == best).mean() == pytest.approx(1 - epsilon * 2 / 3, abs=0.03)
    if epsilon == 1:
        assert np.bincount(stored) / len(stored) == pytest.approx([1 / 3] * 3, abs=0.03)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_stochastic_evaluation_of_dqn_acts_with_its_epsilon(epsilon: float) -> None:
    dqn = player("dqn", ACTIONS, epsilon=epsilon)
    obs = observations()
    best = greedy(dqn, obs)
    np.testing.assert_array_equal(dqn.act(obs, (), FIRST, deterministic=True).action, best)
    found = dqn.act(obs, (), FIRST, deterministic=False).action
    assert (found == best).mean() == pytest.approx(1 - epsilon * 2 / 3, abs=0.03)


# ---- noisy layers ------------------------------------------------------------------------------------------------


def test_noise_is_drawn_and_is_what_the_paper_says() -> None:
    """y = (mu + sigma f(e_out) f(e_in)) x, f(e) = sign(e) sqrt|e|: mean 0, and E f(e)^2 = E|e|."""
    torch.manual_seed(0)
    layer = NoisyLinear(4, 3)
    x = torch.randn(7, 4)
    quiet = layer.eval()(x)
    torch.testing.assert_close(quiet, torch.nn.functional.linear(x, layer.weight, layer.bias))
    layer.train()
    first = layer(x)
    assert not torch.allclose(first, quiet)
    torch.testing.assert_close(layer(x), first)
    layer.new_noise()
    assert not torch.allclose(layer(x), first)
    drawn = []
    for _ in range(4_000):
        layer.new_noise()
        drawn.append(torch.outer(layer.noise_out, layer.noise_in))
        expected = layer.weight + layer.weight_sigma * drawn[-1]
    noise = torch.stack(drawn)
    torch.testing.assert_close(
        layer(x), torch.nn.functional.linear(x, expected, layer.bias + layer.bias_sigma * layer.noise_out)
    )
    assert noise.mean((0, 1, 2)) == pytest.approx(0.0, abs=0.02)
    assert noise.square().mean() == pytest.approx(2 / np.pi, abs=0.04)  # E|e| is sqrt(2 / pi), twice
    assert torch.equal(layer.weight_sigma, torch.full((3, 4), 0.5 / 2))


def test_every_step_of_a_noisy_network_has_noise_of_its_own() -> None:
    dqn = player("dqn", ACTIONS, noisy=True, epsilon=0.0)
    obs, seen = observations(50), set()
    for _ in range(5):
        dqn.behaviour.act(obs, (), FIRST[:50])
        seen.add(tuple(dqn.net.head.advantage[-1].noise_in.tolist()))
    assert len(seen) == 5


def test_greedy_actions_of_a_noisy_network_are_those_of_its_mean_weights() -> None:
    dqn = player("dqn", ACTIONS, noisy=True, epsilon=0.0)
    obs = observations(200)
    found = dqn.act(obs, (), FIRST[:200], deterministic=True).info["q"]
    dqn.net.eval()
    expected = dqn.net(torch.from_numpy(obs)[None], (), torch.zeros(1, 200, dtype=torch.bool))[0][0]
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-6)
    dqn.net.train()
    noisy = dqn.net(torch.from_numpy(obs)[None], (), torch.zeros(1, 200, dtype=torch.bool))[0][0]
    assert np.abs(found - noisy.detach().numpy()).max() > 1e-3


def test_stochastic_evaluation_of_a_noisy_network_has_noise_that_training_never_sees() -> None:
    dqn = player("dqn", ACTIONS, noisy=True, epsilon=0.0)
    obs = observations(200)
    noise, torch_state = dqn.net.head.advantage[-1].noise_in.clone(), torch.get_rng_state()
    training = dqn.behaviour.rng.bit_generator.state
    values = [dqn.act(obs, (), FIRST[:200], deterministic=False).info["q"] for _ in range(2)]
    quiet = dqn.act(obs, (), FIRST[:200], deterministic=True).info["q"]
    assert np.abs(values[0] - values[1]).max() > 1e-3 and np.abs(values[0] - quiet).max() > 1e-3
    assert torch.equal(noise, dqn.net.head.advantage[-1].noise_in) and torch.equal(torch_state, torch.get_rng_state())
    assert training == dqn.behaviour.rng.bit_generator.state


# ---- dueling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("atoms", [1, 5])
def test_dueling_advantages_have_mean_zero(atoms: int) -> None:
    """Q - V sums to 0 over the actions (Wang et al. 2016, eq. 9)."""
    net = QValues(Network(), Spaces(OBS, ACTIONS), dueling=True, atoms=atoms, noisy=False)
    obs, first = torch.randn(2, 6, 4), torch.zeros(2, 6, dtype=torch.bool)
    q = net(obs, (), first)[0].reshape(2, 6, 3, atoms)
    features, _ = net.trunk(obs, (), first)
    torch.testing.assert_close(q.mean(2), net.head.value(features))
    advantage = net.head.advantage(features).reshape(2, 6, 3, atoms)
    torch.testing.assert_close(q - q[:, :, :1], advantage - advantage[:, :, :1])


# ---- bounds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sac", "td3"])
@pytest.mark.parametrize("uniform", [True, False])
def test_stored_actions_are_of_the_unit_box_and_sent_ones_of_the_space(name: str, uniform: bool) -> None:
    """Bounds that are not symmetric: middle + half * stored."""
    one = player(name, UNEVEN)
    one.behaviour.uniform = uniform
    stored, sent, *_ = one.behaviour.act(observations(), (), FIRST)
    assert np.abs(stored).max() <= 1
    np.testing.assert_allclose(sent, np.array([1.5, 2.0]) + np.array([1.5, 3.0]) * stored, rtol=1e-5, atol=1e-6)
    if uniform:
        assert sent.min(0) == pytest.approx([0, -1], abs=0.05) and sent.max(0) == pytest.approx([3, 5], abs=0.05)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_the_greedy_action_is_the_squashed_middle(name: str) -> None:
    one = player(name, UNEVEN)
    with torch.no_grad():
        one.learner.theta.mul_(3.0)
        one.learner.model["actor"][-1].bias.add_(1.5)
    obs = observations(50)
    found = one.act(obs, (), FIRST[:50], deterministic=True).action
    mode = one.learner.model["actor"](torch.from_numpy(obs)).detach().numpy()[:, :2]
    assert np.abs(mode).max() > 1, "squashing must matter"
    np.testing.assert_allclose(found, np.array([1.5, 2.0]) + np.array([1.5, 3.0]) * np.tanh(mode), rtol=1e-4)


def test_actions_come_back_to_the_unit_box() -> None:
    stored = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    np.testing.assert_allclose(scale_from(UNEVEN)(scale_to(UNEVEN)(stored)), stored, atol=1e-6)
    assert scale_from(UNEVEN)(UNEVEN.high).tolist() == [1, 1] and scale_from(ACTIONS)(2) == 2


def test_what_a_critic_says_about_an_action_is_not_what_it_says_about_none() -> None:
    outputs = Outputs(1, ("critic",), np.zeros(1), lambda _, _head, *inputs: np.array(inputs).sum())
    assert (outputs("critic", np.ones(1)), outputs("critic")) == (1.0, 0.0)
