"""C: every candidate acts by its own weights, and a player carries the latent state."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.acting.actor import Outputs
from ludus.acting.exploration import Level
from ludus.components.controller import Controller, RandomWalk, Steer

BOX, DISCRETE = (
    gym.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 1.0], np.float32)),
    gym.spaces.Discrete(3),
)


def told(**heads: np.ndarray) -> Outputs:
    return Outputs(len(next(iter(heads.values()))), tuple(heads), known=heads)


def test_it_has_the_weights_of_the_paper() -> None:
    assert Controller(288, gym.spaces.Box(-1, 1, (3,)), 0).weights == 867
    assert Controller(10, DISCRETE, 0).weights == 22 and Controller(10, BOX, 4).weights == 44 + 10


@pytest.mark.parametrize("hidden", [0, 5])
@pytest.mark.parametrize("space", [BOX, DISCRETE], ids=["box", "discrete"])
def test_each_candidate_acts_by_its_own_weights(space: gym.Space, hidden: int) -> None:
    controller = Controller(4, space, hidden)
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.standard_normal((3, controller.weights), np.float32))
    features = torch.from_numpy(rng.standard_normal((3, 2, 4), np.float32))
    found = controller(weights, features)
    for k in range(3):
        x, done = features[k].numpy(), 0
        for inputs, outputs in controller.layers:
            matrix = weights[k, done : done + inputs * outputs].numpy().reshape(inputs, outputs)
            bias = weights[k, done + inputs * outputs : done + (inputs + 1) * outputs].numpy()
            x, done = (np.tanh(x) if done else x) @ matrix + bias, done + (inputs + 1) * outputs
        expected = np.concatenate([np.zeros((2, 1)), x], 1) if space is DISCRETE else x
        np.testing.assert_allclose(found[k].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_features_are_standardised_and_the_standard_is_saved() -> None:
    controller, other = Controller(3, BOX, 0), Controller(3, BOX, 0)
    seen = torch.tensor([[1.0, 5.0, 7.0], [3.0, 5.0, 9.0]])
    weights, features = torch.randn(1, controller.weights), torch.randn(1, 2, 3)
    plain = controller(weights, (features - torch.tensor([2.0, 5.0, 8.0])) / torch.tensor([2**0.5, 1e-3, 2**0.5]))
    controller.standardize(seen, [4, 2])
    torch.testing.assert_close(controller(weights, features), plain)
    other.load_state_dict(controller.state_dict())
    assert torch.equal(other(weights, features), controller(weights, features)) and other.stamp == [4, 2]


def test_actions_of_the_model_and_of_the_environment_agree() -> None:
    raw = np.array([[0.0, 2.0, 1.0], [0.0, -1.0, -3.0]], np.float32)
    assert Controller(4, DISCRETE, 0).act_vector(torch.from_numpy(raw)).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert Steer(DISCRETE, Level(0.0)).draw(told(actor=raw), None).tolist() == [1, 0]
    steer, raw = Steer(BOX, Level(0.0)), np.array([[0.0, 9.0]], np.float32)
    stored = steer.stored(steer.draw(told(actor=raw), None))
    np.testing.assert_allclose(stored, Controller(4, BOX, 0).act_vector(torch.from_numpy(raw)).numpy())
    np.testing.assert_allclose(steer.for_environment(stored), [[1.0, 1.0]], atol=1e-6)


def test_exploring_adds_noise_or_random_actions() -> None:
    rng, raw = np.random.default_rng(0), np.tile(np.array([[5.0, 0.0, 0.0]], np.float32), (4_000, 1))
    for level, share in ((0.0, 1.0), (0.3, 0.8), (1.0, 1 / 3)):
        drawn = Steer(DISCRETE, Level(level)).explore(told(actor=raw), rng)
        assert (drawn == 0).mean() == pytest.approx(share, abs=0.03)
    drawn = Steer(BOX, Level(0.2)).explore(told(actor=raw[:, 1:]), rng)
    assert drawn.std() == pytest.approx(0.2, rel=0.05) and np.abs(drawn).max() <= 1


def test_a_random_walk_begins_where_it_was() -> None:
    walk, rng = RandomWalk(BOX, 0.1), np.random.default_rng(0)
    last = np.tile(np.array([[0.5, -1.0]], np.float32), (4_000, 1))
    drawn = walk.draw(told(last=last), rng)
    assert drawn[:, 0].mean() == pytest.approx(0.5, abs=0.01) and drawn[:, 0].std() == pytest.approx(0.1, rel=0.05)
    assert drawn[:, 1].min() == -1.0 and drawn.shape == (4_000, 2)
