"""`ActResult.info` speaks one vocabulary: the same names, shapes and meanings for every algorithm."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.registry import ALGORITHMS
from ludus.session.player import build_player
from ludus.types import Spaces
from support import config

PICTURE = gym.spaces.Box(0, 255, (1, 12, 12), np.uint8)
OBSERVATION, STATES = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(6)
DISCRETE, BOX = gym.spaces.Discrete(3), gym.spaces.Box(-2, 3, (2,), np.float32)
MULTI, BINARY = gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(3)
POLICY = {"log_prob", "probabilities"}
GAUSSIAN = {"log_prob", "mean", "std"}
CASES: dict[str, tuple[gym.Space, set[str]]] = {
    "random": (DISCRETE, POLICY),
    "random box": (BOX, GAUSSIAN),
    "random multi": (MULTI, POLICY),
    "random binary": (BINARY, POLICY),
    "q_learning": (DISCRETE, POLICY | {"value", "q"}),
    "reinforce": (DISCRETE, POLICY),
    "reinforce box": (BOX, GAUSSIAN),
    "a2c": (DISCRETE, POLICY | {"value"}),
    "ppo": (DISCRETE, POLICY | {"value"}),
    "ppo box": (BOX, GAUSSIAN | {"value"}),
    "ppo multi": (MULTI, POLICY | {"value"}),
    "ppo binary": (BINARY, POLICY | {"value"}),
    "ppo_replay": (DISCRETE, POLICY | {"value"}),
    "dqn": (DISCRETE, POLICY | {"value", "q"}),
    "dqn atoms": (DISCRETE, POLICY | {"value", "q"}),
    "sac": (BOX, GAUSSIAN | {"value"}),
    "sac discrete": (DISCRETE, POLICY | {"value", "q"}),
    "td3": (BOX, {"value", "mean", "std"}),
    "dreamer": (DISCRETE, POLICY | {"value"}),
    "dreamer box": (BOX, GAUSSIAN | {"value"}),
    "planet": (BOX, {"value", "mean", "std"}),
    "tdmpc": (BOX, {"value", "mean", "std"}),
    "world_models": (BOX, set()),
    "behaviour_cloning": (DISCRETE, POLICY),
    "behaviour_cloning box": (BOX, GAUSSIAN),
    "iql": (BOX, GAUSSIAN | {"value"}),
    "iql discrete": (DISCRETE, POLICY | {"value"}),
    "diffusion_policy": (BOX, set()),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {"epsilon": 0.3},
    "dqn atoms": {"epsilon": 0.3, "atoms": 5, "dueling": True, "noisy": True},
    "q_learning": {"epsilon": 0.3},
    "td3": {"exploration_noise": 0.2},
    "diffusion_policy": {"denoiser": {"widths": (8,)}, "sampling_steps": 2},
    "dreamer": {"size": "tiny"},
    "dreamer box": {"size": "tiny", "actor": {"distribution": "tanh_normal"}},
    "planet": {"size": "tiny", "candidates": 2, "elites": 1, "rounds": 1, "horizon": 1, "exploration": 0.2},
    "tdmpc": {"size": "tiny", "candidates": 4, "policy_candidates": 1, "elites": 2, "rounds": 1, "horizon": 1},
}
B = 4_000


def acted(case: str, *, deterministic: bool, memory: str = "none", batch: int = 5) -> tuple[Any, Any, Any]:
    """(algorithm, what it does, its facts) of a policy far from uniform, for `batch` equal observations."""
    name = case.split()[0]
    observation = {"q_learning": STATES, "world_models": PICTURE}.get(name, OBSERVATION)
    parts = {} if name == "q_learning" else {"network": {"memory": memory}}
    cfg = config({"name": name, **SETTINGS.get(case, {})}, **parts)
    algorithm = build_player(cfg, Spaces(observation, CASES[case][0]), None).algorithm
    rng = np.random.default_rng(3)
    if hasattr(algorithm, "learner"):
        with torch.no_grad():
            for parameter in algorithm.learner.model.parameters():
                parameter.add_(0.1 * torch.from_numpy(rng.standard_normal(parameter.shape, np.float32)))
    if name == "q_learning":
        algorithm.table.q_SA += rng.standard_normal(algorithm.table.q_SA.shape)
    obs = np.full(batch, 2) if name == "q_learning" else np.tile(rng.random((1, 4), np.float32), (batch, 1))
    if name == "world_models":
        obs = rng.integers(255, size=(batch, 1, 12, 12), dtype=np.uint8)
    result = algorithm.act(obs, algorithm.initial_state(batch), np.ones(batch, bool), deterministic=deterministic)
    return algorithm, result.action, result.info


def test_every_algorithm_is_listed() -> None:
    assert {case.split()[0] for case in CASES} == set(ALGORITHMS.names())


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_names_and_shapes(case: str, deterministic: bool, memory: str) -> None:
    space, names = CASES[case]
    _, action, info = acted(case, deterministic=deterministic, memory=memory)
    assert set(info) == names
    shapes = {"value": (5,), "log_prob": (5,), "q": (5, 3), "probabilities": (5, 5 if space is MULTI else 3)}
    for name, fact in info.items():
        assert isinstance(fact, np.ndarray) and np.isfinite(fact).all(), name
        assert fact.shape == shapes.get(name, action.shape), name


@pytest.mark.parametrize("case", [case for case, (space, _) in CASES.items() if space is DISCRETE])
def test_probabilities_are_those_of_the_actions(case: str) -> None:
    _, action, info = acted(case, deterministic=False, batch=B)
    probabilities = info["probabilities"]
    np.testing.assert_allclose(probabilities.sum(-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(info["log_prob"], np.log(probabilities[np.arange(B), action]), atol=1e-5)
    if case != "dqn atoms":  # one draw of noise for all rows
        assert np.bincount(action, minlength=3) / B == pytest.approx(probabilities.mean(0).tolist(), abs=0.03)


@pytest.mark.parametrize("case", ["ppo box", "reinforce box", "sac", "td3"])
def test_mean_and_std_are_those_of_the_actions(case: str) -> None:
    """Of SAC before squashing, of TD3 in the unit box; quantiles take no notice of clipped tails."""
    _, action, info = acted(case, deterministic=False, batch=B)
    drawn = (action - 0.5) / 2.5 if case in ("sac", "td3") else action
    if case == "sac":
        drawn = np.arctanh(np.clip(drawn, -1 + 1e-6, 1 - 1e-6))
    low, middle, high = np.quantile(drawn, [0.1587, 0.5, 0.8413], axis=0)
    mean, std = info["mean"][0], info["std"][0]
    np.testing.assert_allclose(middle, mean, atol=0.1)
    inside = (np.abs(mean) + std < (1 if case == "td3" else 2)) | (case == "sac")
    assert inside.any()
    np.testing.assert_allclose(((high - low) / 2)[inside], std[inside], rtol=0.1)


def test_uniform_actions_say_so() -> None:
    _, action, info = acted("random box", deterministic=False, batch=B)
    np.testing.assert_allclose(action.mean(0), info["mean"][0], atol=0.1)
    np.testing.assert_allclose(action.std(0), info["std"][0], rtol=0.05)
    np.testing.assert_allclose(info["log_prob"], -np.log(25.0), atol=1e-6)


def test_densities() -> None:
    """Of the greedy action: the Gaussian's, and for SAC less what tanh squeezes together."""
    for case in ("ppo box", "sac"):
        _, action, info = acted(case, deterministic=True)
        gaussian = torch.distributions.Normal(torch.from_numpy(info["mean"]), torch.from_numpy(info["std"]))
        expected = gaussian.log_prob(torch.from_numpy(info["mean"])).sum(-1).numpy()
        if case == "sac":
            expected = expected - np.log(1 - np.tanh(info["mean"]) ** 2).sum(-1)
        np.testing.assert_allclose(info["log_prob"], expected, atol=1e-4)


@pytest.mark.parametrize("case", ["dqn", "q_learning"])
def test_the_value_of_values_is_the_best_one_and_greedy_actions_take_it(case: str) -> None:
    _, action, info = acted(case, deterministic=True)
    np.testing.assert_array_equal(info["value"], info["q"].max(-1))
    np.testing.assert_array_equal(action, info["q"].argmax(-1))


def test_values_are_those_of_the_critics() -> None:
    first = torch.ones(1, 5, dtype=torch.bool)
    with torch.no_grad():
        for case in ("ppo", "sac", "td3", "sac discrete"):
            algorithm, action, info = acted(case, deterministic=True)
            nets = algorithm.learner.model
            rng = np.random.default_rng(3)
            for parameter in nets.parameters():  # the generator stands where `acted` drew the observation
                rng.standard_normal(parameter.shape, np.float32)
            obs = torch.from_numpy(np.tile(rng.random((1, 4), np.float32), (1, 5, 1)))
            if case == "ppo":
                expected = nets["policy"](obs, (), first)[1][0]
            elif case == "sac discrete":
                q = nets["critic"](obs)[:, 0].amin(0)
                np.testing.assert_allclose(info["q"], q.numpy(), atol=1e-5)
                expected = (q * torch.from_numpy(info["probabilities"])).sum(-1)
            else:
                unit = torch.from_numpy((action - 0.5) / 2.5)[None]
                expected = nets["critic"](obs, unit)[:, 0, :, 0].amin(0)
            np.testing.assert_allclose(info["value"], expected.numpy(), atol=1e-4)
