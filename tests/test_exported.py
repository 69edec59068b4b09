"""Exported policies act as the policy does, in other runtimes and for any number of environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus import exported
from ludus.errors import ConfigError, DataError
from ludus.exported import export_policy

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


def test_a_file_that_acts_otherwise_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ludus.train("CartPole-v1:ppo", PPO, quiet=True, runs_dir=tmp_path)
    monkeypatch.setattr(exported, "_load_torchscript", lambda _: lambda inputs: [7 + torch.zeros(len(inputs[0]))])
    with pytest.raises(DataError, match="acts otherwise"):
        export_policy(run.policy(), "torchscript", tmp_path / "policy.pt")
    assert not (tmp_path / "policy.pt").exists()


def test_a_table_has_no_network(tmp_path: Path) -> None:
    run = ludus.train("FrozenLake-v1:q_learning", {"training.total_timesteps": 512}, quiet=True, runs_dir=tmp_path)
    with pytest.raises(ConfigError, match="no network"):
        export_policy(run.policy(), "torchscript", tmp_path / "policy.pt")
