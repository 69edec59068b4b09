"""Observations that are trees: a picture and a vector go through environments, buffers, networks and checkpoints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.archive import checkpoint
from ludus.config.schema import Environment, Network
from ludus.data.rollout import minibatches
from ludus.envs.make import make_vector
from ludus.errors import ConfigError
from ludus.learning import package
from ludus.networks.encoders import build_encoder
from ludus.networks.encoders._tree import TreeEncoder
from ludus.play import episodes, policy_of
from ludus.types import tree_index, tree_leaves, tree_map
from support import build, close, config, moment, run

ENCODERS = {"camera": {"type": "small", "features": 32}, "touch": {"type": "mlp", "hidden_dims": [32]}}
NETWORK = {"encoder": ENCODERS, "actor": {"hidden_dims": [32]}, "critic": {"hidden_dims": [32]}}
REPLAY = {"batch_size": 64, "lr": 3e-3, "gamma": 0.9, "learning_starts": 256, "update_ratio": 0.25}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("LookAndFeel-v0", {"rollout_steps": 32, "epochs": 8, "batch_size": 0.25, "lr": 3e-3, "gamma": 0.9}),
    "dqn": ("LookAndFeel-v0", REPLAY),
    "sac": ("LookAndFeel/Continuous-v0", REPLAY),
}
SEQUENCES = {"batch_size": 4, "learning_starts": 64, "sequence_length": 4, "burn_in": 2, "update_ratio": 0.1}
EVERY = {
    "ppo": {"rollout_steps": 16, "batch_size": 0.5},
    "a2c": {"rollout_steps": 16},
    "reinforce": {"rollout_steps": 16},
    "ppo_replay": {"rollout_steps": 16, "batch_size": 0.5},
    "dqn": SEQUENCES,
    "sac": SEQUENCES,
    "td3": SEQUENCES,
}


def small(name: str, memory: str = "none", steps: int = 128, length: int = 5, **sections: Any):
    """A run of a few updates in episodes of several questions."""
    env = "LookAndFeel/Continuous-v0" if name == "td3" else "LookAndFeel-v0"
    training = {"total_timesteps": steps, **sections.pop("training", {})}
    environment = {"num_envs": 4, "kwargs": {"length": length}, **sections.pop("environment", {})}
    network = {**NETWORK, "memory": {"type": memory, **({"hidden_dim": 16} if memory == "gru" else {})}}
    network["encoder"] = {"camera": {"type": "small", "features": 8}, "touch": {"hidden_dims": [8]}}
    return config(
        {"name": name, **EVERY[name]}, env=env, network=network, training=training, environment=environment, **sections
    )


def accuracy(algorithm: Any, env_id: str, masked: str | None = None, questions: int = 400) -> float:
    """Share of right answers; `masked` replaces a part of every observation by zeros."""
    act = policy_of(algorithm, None, deterministic=True)

    def blind(obs: Any, state: Any, first: Any) -> Any:
        return act({key: np.zeros_like(part) if key == masked else part for key, part in obs.items()}, state, first)

    env = make_vector(Environment(id=env_id, num_envs=20))
    with env:
        ends = [end for step in episodes(blind, env, list(range(20)), questions) for end in step.ended]
    return float(np.mean([end.total for end in ends]))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_policy_learns_from_both_parts(name: str) -> None:
    """The answer is the picture XOR the vector: with one part hidden no policy is better than a coin."""
    env, algorithm = LEARNERS[name]
    training = {"total_timesteps": 2_048 if name == "ppo" else 1_024}
    cfg = config({"name": name, **algorithm}, env, network=NETWORK, environment={"num_envs": 16}, training=training)
    learned = run(cfg).algorithm
    assert accuracy(learned, env) > 0.9
    for part in ("camera", "touch"):
        assert 0.35 < accuracy(learned, env, part) < 0.65, part


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("name", EVERY)
def test_every_algorithm_updates(name: str, memory: str) -> None:
    one = run(small(name, memory))
    assert one.progress.updates > 0
    assert torch.isfinite(one.algorithm.learner.theta).all()


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_the_ratio_is_one_on_the_first_minibatch(memory: str) -> None:
    cfg = small("ppo", memory)
    one, now = build(cfg), moment(cfg.algorithm.config)
    ppo = one.algorithm
    for _ in range(3):
        ppo.collect(now)
    columns, state = ppo.experience
    assert set(columns["obs"]) == {"camera", "touch"} and columns["obs"]["camera"].dtype == torch.uint8
    seen = 0
    for batch in minibatches(columns, state, 2, ppo.rng, sequences=ppo.policy.recurrent):
        params, value, _ = ppo.policy(batch["obs"], batch["state"], batch["first"])
        ratio = (ppo.policy.distribution.log_prob(params, batch["action"]) - batch["log_prob"]).exp()
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-5, rtol=0)
        torch.testing.assert_close(value, batch["value"], atol=1e-5, rtol=1e-5)
        seen += ratio.numel()
    assert seen == 16 * 4
    close(one)


def test_one_pass_over_a_sequence_equals_single_steps() -> None:
    cfg = small("ppo", "gru")
    one, now = build(cfg), moment(cfg.algorithm.config)
    policy = one.algorithm.policy
    one.algorithm.collect(now)
    (obs, first), state = (
        (one.algorithm.experience.columns[name] for name in ("obs", "first")),
        policy.trunk.initial_state(4),
    )
    assert first[1:].any()
    with torch.no_grad():
        whole, _, last = policy(obs, state, first)
        rows = []
        for t in range(len(first)):
            params, _, state = policy(*tree_index((obs,), slice(t, t + 1)), state, first[t : t + 1])
            rows.append(params)
    torch.testing.assert_close(torch.cat(rows), whole, atol=1e-5, rtol=1e-5)
    for a, b in zip(tree_leaves(state), tree_leaves(last), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    close(one)


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_the_compiled_update_equals_the_eager_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced, without the compiler: the graph itself is the machine code."""

    def obtain(function: Any, example: Any, *_: Any) -> Any:
        graph = package.trace(function, example)
        return lambda: lambda arguments: list(graph(*arguments))

    eager = run(small(name))
    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package, "obtain", obtain)
    traced = run(small(name, runtime={"compile": "always"}))
    updates = traced.algorithm.learner.compiled.known.values()
    assert any(update.code is not None for update in updates)
    torch.testing.assert_close(traced.algorithm.learner.theta, eager.algorithm.learner.theta, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "memory", "sections"),
    [
        ("ppo", "gru", {"environment": {"normalize_obs": "rolling"}}),
        ("ppo", "none", {"environment": {"vectorization": "async", "workers": 2}}),
        ("dqn", "none", {"runtime": {"overlap": True}}),
        ("dqn", "gru", {"buffers": {"replay": {"type": "prioritized", "size": 400}}}),
        ("sac", "none", {"buffers": {"replay": {"type": "uniform", "size": 400, "storage": "disk"}}}),
    ],
)
def test_a_checkpoint_goes_on_to_the_bit(name: str, memory: str, sections: dict[str, Any], tmp_path: Any) -> None:
    """2N steps == N steps, a checkpoint on disk, N steps more; episodes are open at the cut."""
    whole, half, rest = (build(small(name, memory, **sections), will_checkpoint=True) for _ in range(3))
    for i, each in enumerate((whole, half, rest)):
        each.buffers.attach(tmp_path / ("half" if i else "whole"))
    for _ in range(2):
        trained(whole)
    trained(half)
    rest.load_state_dict(checkpoint.load(checkpoint.save(tmp_path, half.state_dict(), name="step=1")))
    trained(rest)
    assert torch.equal(whole.algorithm.learner.theta, rest.algorithm.learner.theta)
    for a, b in zip(*(tree_leaves(each.algorithm.collector.newest_obs) for each in (whole, rest)), strict=True):
        np.testing.assert_array_equal(a, b)
    for each in (whole, half, rest):
        close(each)


def trained(one: Any) -> None:
    """A few rounds of collecting and learning."""
    now = moment(one.config.algorithm.config, env_steps=100)
    for _ in range(20 if "replay" in one.buffers else 2):
        one.algorithm.collect(now)
        one.algorithm.update_controller(now)


def test_pixels_stay_bytes_and_vectors_are_normalised() -> None:
    one = build(small("ppo", environment={"normalize_obs": "rolling"}))
    collector, behaviour = one.algorithm.collector, one.algorithm.behaviour
    for _ in range(2):
        rollout = collector.collect(behaviour, 64)
    assert rollout.obs["camera"].dtype == np.uint8 and rollout.obs["camera"].max() > 200
    np.testing.assert_array_equal(rollout.obs["camera"], rollout.raw_obs["camera"])
    assert abs(rollout.obs["touch"].mean()) < 0.5 and 0.7 < rollout.obs["touch"].std() < 1.5
    assert rollout.raw_obs["touch"].std() < 0.9
    close(one)


SPACE = gym.spaces.Dict(
    {
        "camera": gym.spaces.Box(0, 255, (3, 40, 40), np.uint8),
        "arm": gym.spaces.Dict(
            {"tip": gym.spaces.Box(0, 255, (1, 8, 8), np.uint8), "speed": gym.spaces.Box(-1, 1, (2,), np.float32)}
        ),
        "mode": gym.spaces.Discrete(3),
        "force": gym.spaces.Box(-1, 1, (4,), np.float32),
    }
)  # fmt: skip


def encoded(settings: Any) -> TreeEncoder:
    encoder = build_encoder(Network.model_validate({"encoder": settings}).encoder, SPACE)
    assert isinstance(encoder, TreeEncoder)
    obs = tree_map(lambda leaf: torch.as_tensor(np.asarray(leaf))[None, None], SPACE.sample())
    assert encoder(obs).shape == (1, 1, encoder.out_dim)
    assert torch.equal(encoder(encoder.arrange(obs)), encoder(obs))
    return encoder


def test_encoders_by_shape_and_by_name() -> None:
    kinds = {name: type(part).__name__ for name, part in encoded("auto").parts.items()}
    assert kinds == {"arm_tip": "Small", "camera": "Nature"}
    assert encoded("auto").out_dim == 128 + 512 + (2 + 4 + 3) and encoded("auto").bare
    one = encoded({"hidden_dims": [16], "camera": {"type": "impala", "channels": [4]}})
    assert {name: type(part).__name__ for name, part in one.parts.items()} == {"arm_tip": "Small", "camera": "Impala"}
    assert one.joint is not None and one.joint.out_dim == 16 and not one.bare
    nested = encoded({"arm": {"tip": {"type": "small", "features": 8}}, "force": {"hidden_dims": [5]}})
    assert nested.parts["arm"].parts["tip"].out_dim == 8 and nested.parts["force"].out_dim == 5
    assert nested.out_dim == (8 + 2) + 512 + 5 + 3


def test_settings_of_parts_survive_a_saved_config() -> None:
    cfg = small("ppo")
    again = type(cfg).model_validate(cfg.model_dump(mode="json"))
    assert again.network == cfg.network and again.network.encoder.parts["touch"].config.hidden_dims == (8,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"camra": {"type": "nature"}},
            r"network\.encoder\.camra: observations have no such part; did you mean 'camera'",
        ),
        ({"arm": {"tipp": {}}}, r"network\.encoder\.arm\.tipp: .* did you mean 'tip'"),
        ({"force": {"type": "nature"}}, r"network\.encoder\.force\.type: 'nature' needs uint8 images"),
        ({"arm": {"tip": {"type": "nature"}}}, r"'nature' needs images of at least 36x36 pixels"),
    ],
)
def test_wrong_settings_of_parts_are_named(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        encoded(settings)
    assert re.search(message, caught.value.line()), caught.value.line()


def test_everything_holds_without_asserts() -> None:
    """`python -O` strips asserts: none may be needed for a Dict run."""
    code = "import sys; sys.path[:0] = sys.argv[1:]; import test_dict_observations as t; t.run(t.small('dqn'))"
    paths = [str(Path(__file__).parents[i]) for i in (0, 1)]
    done = subprocess.run([sys.executable, "-O", "-c", code, *paths], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
