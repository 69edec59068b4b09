"""Exported policies act as the policy does, in other runtimes and for any number of environments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import ludus
from ludus import exported
from ludus.acting.actor import Outputs
from ludus.acting.behaviour import SampleClipped
from ludus.acting.exploration import AddNoise, Level, SampleSquashed
from ludus.acting.uniform import uniform
from ludus.data.normalizer import ObservationNormalizer
from ludus.errors import ConfigError, DataError
from ludus.exported import export_policy, greedy_action, scaled
from ludus.math.distributions import distribution_for

SMALL = {"environment.num_envs": 2, "runtime.compile": "never"}
PPO = {"training.total_timesteps": 64, "algorithm.rollout_steps": 16, "algorithm.batch_size": 0.5, **SMALL}
REPLAY = {"training.total_timesteps": 100, "algorithm.learning_starts": 64, "buffers.replay.size": 500, **SMALL}
CASES: dict[str, dict[str, Any]] = {
    "CartPole-v1:ppo": PPO,
    "Pendulum-v1:ppo": {**PPO, "environment.normalize_obs": "rolling"},
    "Pendulum-v1:sac": REPLAY,
    "CartPole-v1:rainbow": REPLAY,
    "LookAndFeel-v0:ppo": PPO,
    "CartPole-v1:ppo_gru_masked": PPO,
    "CartPole-v1:ppo_gtrxl_masked": PPO,
    "CartPole-v1:ppo_mamba_masked": PPO,
    "CartPole-v1:ppo_mamba2_masked": PPO,
}


@pytest.mark.parametrize("spec", CASES)
def test_both_formats_act_like_the_policy(spec: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    run = ludus.train(spec, CASES[spec], quiet=True, runs_dir=tmp_path)
    policy = run.policy(deterministic=True)
    script = export_policy(policy, "torchscript", tmp_path / "policy.pt")
    session = onnxruntime.InferenceSession(str(export_policy(policy, "onnx", tmp_path / "policy.onnx")))
    facts = json.loads((tmp_path / "policy.onnx.json").read_text())
    assert [given.name for given in session.get_inputs()] == facts["inputs"]
    module, env = torch.jit.load(str(script)), ludus.make_env(run)
    memory = {
        name: np.zeros((1, *about["shape"]), about["dtype"].removeprefix("torch."))
        for name, about in facts["memory"].items()
    }
    obs, first = env.reset(seed=3)[0], True
    for _ in range(12):
        wanted, fed = policy(obs), inputs(policy, obs, first, memory)
        action, *after = session.run(None, fed)
        other = module(*map(torch.from_numpy, fed.values()))
        np.testing.assert_allclose(np.asarray(action)[0], wanted, atol=1e-4)
        np.testing.assert_allclose(other[0].numpy()[0], wanted, atol=1e-4)
        memory = dict(zip(memory, after, strict=True))
        obs, _, terminated, truncated, _ = env.step(wanted)
        first = terminated or truncated
        if first:
            policy.reset()
            obs = env.reset()[0]


def inputs(policy: ludus.Policy, obs: Any, first: bool, memory: dict[str, Any]) -> dict[str, Any]:
    """What an exported policy is fed: its carried wrappers are applied outside."""
    from ludus.envs.deployment import Pipeline

    seen = Pipeline(policy.config.environment, policy._cut).observe(obs, None)
    parts = {"obs": seen} if not isinstance(seen, dict) else {key: seen[key] for key in sorted(seen)}
    fed = {name: np.asarray(value)[None] for name, value in parts.items()}
    return {**fed, **({"first": np.array([first])} if memory else {}), **memory}


BOX = gym.spaces.Box(np.float32([-1, 0]), np.float32([1, 3]))
STRATEGIES = {
    "clipped": SampleClipped(distribution_for(BOX), BOX),
    "discrete": SampleClipped(distribution_for(gym.spaces.Discrete(3)), gym.spaces.Discrete(3)),
    "several": SampleClipped(distribution_for(gym.spaces.MultiDiscrete([2, 4])), gym.spaces.MultiDiscrete([2, 4])),
    "binary": SampleClipped(distribution_for(gym.spaces.MultiBinary(3)), gym.spaces.MultiBinary(3)),
    "squashed": SampleSquashed(distribution_for(BOX, squash=True), BOX),
    "with noise": AddNoise(BOX, Level(0.1)),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_greedy_actions_are_those_of_the_strategy(name: str) -> None:
    """Also where means leave the bounds, which no policy of a short training does."""
    strategy = STRATEGIES[name]
    size = 2 if name == "with noise" else strategy.distribution.param_dim
    params = (3 * np.random.default_rng(1).normal(size=(64, size))).astype(np.float32)
    outputs = Outputs(64, ("actor",), known={"actor": params})
    expected = strategy.for_environment(strategy.stored(strategy.draw(outputs, None)))
    np.testing.assert_allclose(greedy_action(strategy)(torch.from_numpy(params)).numpy(), expected, atol=1e-6)


NARROW = {  # the sum of middle and half is rounded beyond the bounds, or float32 has no such number inside them
    "single": gym.spaces.Box(np.float32([-0.65, 0.08]), np.float32([0.46, 0.73])),
    "double": gym.spaces.Box(np.array([-0.1, -0.3]), np.array([0.1, 0.7]), dtype=np.float64),
}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize(
    "strategy",
    [
        lambda space: SampleClipped(distribution_for(space), space),
        lambda space: SampleSquashed(distribution_for(space, squash=True), space),
        lambda space: AddNoise(space, Level(0.1)),
    ],
    ids=["clipped", "squashed", "with noise"],
)
def test_no_action_leaves_the_bounds_by_rounding(name: str, strategy: Callable[[gym.Space], Any]) -> None:
    space, acts = NARROW[name], strategy(NARROW[name])
    params = np.float32([[90, 90, 0, 0], [-90, -90, 0, 0], [0.5, -0.5, 0, 0]])
    params = params[:, :2] if isinstance(acts, AddNoise) else params[:, : acts.distribution.param_dim]
    drawn = acts.draw(Outputs(3, ("actor",), known={"actor": params}), None)
    actions = acts.for_environment(acts.stored(drawn))
    assert all(map(space.contains, actions))
    np.testing.assert_allclose(actions[:2], [space.high, space.low], atol=1e-6)
    exported_actions = greedy_action(acts)(torch.from_numpy(params)).numpy()
    assert all(map(space.contains, exported_actions))
    np.testing.assert_allclose(exported_actions, actions, atol=1e-6)


@pytest.mark.parametrize("name", NARROW)
def test_no_random_action_leaves_the_bounds_by_rounding(name: str) -> None:
    class Highest:
        def uniform(self, low: Any, high: Any, size: Any) -> Any:
            return np.broadcast_to(np.nextafter(high, low, dtype=np.float64), size)

    assert all(map(NARROW[name].contains, uniform(NARROW[name], 2, Highest())))  # type: ignore[arg-type]


def test_normalised_observations_are_cut_alike() -> None:
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    normalizer = ObservationNormalizer("rolling", space)
    normalizer.update(np.random.default_rng(1).normal(5, 0.1, (50, 2)).astype(np.float32))
    obs = np.float32([[5, 5.05], [-90, 90]])
    found = scaled(*map(torch.from_numpy, (obs, normalizer.parts.shift, normalizer.parts.scale)))
    np.testing.assert_allclose(found.numpy(), normalizer.apply(obs), rtol=1e-5)


def test_a_file_that_acts_otherwise_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ludus.train("CartPole-v1:ppo", PPO, quiet=True, runs_dir=tmp_path)
    monkeypatch.setattr(exported, "_load_torchscript", lambda _: lambda inputs: [7 + torch.zeros(len(inputs[0]))])
    with pytest.raises(DataError, match="acts otherwise"):
        export_policy(run.policy(), "torchscript", tmp_path / "policy.pt")
    assert not (tmp_path / "policy.pt").exists()


def test_its_file_tells_what_the_program_around_it_has_to_do(tmp_path: Path) -> None:
    """Choice 0 of this network is action 2 of the environment, and it sees two frames."""
    changes = {"environment.valid_actions": [2, 0], "environment.frame_stack": 2}
    run = ludus.train("MountainCar-v0:ppo", {**PPO, **changes}, quiet=True, runs_dir=tmp_path)
    export_policy(run.policy(), "torchscript", tmp_path / "policy.pt")
    facts = json.loads((tmp_path / "policy.pt.json").read_text())
    assert facts["wrappers"] == [
        {"setting": "environment.valid_actions", "mapping": [2, 0]},
        {"setting": "environment.frame_stack", "frames": 2},
    ]
    assert (facts["action"]["n"], facts["environment"]["action"]["n"]) == (2, 3)
    assert (facts["observation"]["shape"], facts["environment"]["observation"]["shape"]) == ([4], [2])


def test_a_table_has_no_network(tmp_path: Path) -> None:
    run = ludus.train("FrozenLake-v1:q_learning", {"training.total_timesteps": 512}, quiet=True, runs_dir=tmp_path)
    with pytest.raises(ConfigError, match="policies of q_learning cannot be exported"):
        export_policy(run.policy(), "torchscript", tmp_path / "policy.pt")
