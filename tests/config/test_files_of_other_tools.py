"""Files of other tools load as they are written (E38-E45, F35, J03, X04, X34)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.config.aliases import ABSENT
from ludus.config.compose import load, parse
from ludus.envs.make import make_env
from ludus.errors import ConfigError

MODULAR = """\
experiment: {name: "ppo_cartpole", seed: 42, device: "auto"}
algorithm: {name: "ppo", lr: 3e-4, gamma: 0.99, gae_lambda: 0.95, clip_ratio: 0.2, value_coef: 0.5, entropy_coef: 0.01}
environment: {name: "CartPole-v1", wrapper: "gym", normalize_obs: true, normalize_reward: false}
network:
  actor: {type: "mlp", hidden_dims: [64, 64], activation: "tanh"}
  critic: {type: "mlp", hidden_dims: [64, 64], activation: "tanh"}
buffer: {type: "trajectory", size: 2048}
training: {total_timesteps: 100000, eval_frequency: 10000, checkpoint_frequency: 50000, num_eval_episodes: 10}
logging: {terminal: true, tensorboard: true, wandb: {enabled: false, project: "rl", tags: ["ppo", "cartpole"]}}
"""
PHASES = """\
extends: CartPole-v1:dqn
training:
  phases:
    - {name: warm_up, type: online, duration_steps: 256, workflow_hooks: [collect]}
    - {name: pretrain, type: offline, duration_updates: 10, workflow_hooks: [update_controller]}
    - {name: joint, type: online, workflow_hooks: [collect, update_controller], buffer: replay}
"""
BASE = {"env_id": "CartPole-v1", "algo_id": "ppo", "learning_rate": 1e-3}


def test_a_modular_experiment(tmp_path: Path):
    path = tmp_path / "configs" / "experiments" / "ppo_cartpole.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(MODULAR)
    resolved = load(str(path))
    assert resolved.config.environment.wrappers == () and resolved.config.buffers == {}
    assert resolved.config.training.checkpoints.every_steps == 50_000
    assert resolved.notes == ("buffer: left out, ppo learns from its rollouts",)
    path.write_text(MODULAR.replace('"ppo"', '"dqn"', 1).replace("gae_lambda: 0.95, clip_ratio: 0.2, ", "").replace(
        "value_coef: 0.5, entropy_coef: 0.01", "double: true"))  # fmt: skip
    assert load(str(path)).config.buffers["replay"].config.size == 2048


def test_phases_with_workflow_hooks(tmp_path: Path):
    path = tmp_path / "three.yaml"
    path.write_text(PHASES)
    phases = load(str(path)).config.training.phases or ()
    assert [phase.hook_names for phase in phases] == [
        ["collect"],
        ["update_controller"],
        ["collect", "update_controller"],
    ]


def test_the_pixel_wrapper_of_gym():
    pytest.importorskip("pygame")
    data = {**BASE, "env_wrappers": [{"id": "PixelObservationWrapper", "pixels_only": True}]}
    env = make_env(parse(data, "test").environment)
    assert env.observation_space.shape == (3, 400, 600)
    env.close()


def test_the_quickstart_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    config, variant = load("configs/quickstart/ppo_cartpole.yaml").config, load("CartPole-v1:ppo").config
    assert config.algorithm == variant.algorithm and config.training == variant.training


@pytest.mark.parametrize(
    ("written", "path", "meant"),
    [
        ({"mamba_version": "v1"}, "network.memory.name", "mamba"),
        ({"mamba_version": "v2", "hidden_dim": 450, "expand": 1}, "network.memory.config.hidden_dim", 450),
        ({"core": "trxl", "trxl_dim": 512, "trxl_num_heads": 8}, "network.memory.config.hidden_dim", 512),
        ({"core": "trxl", "trxl_memory_length": 32}, "network.memory.config.memory_length", 32),
        ({"trxl_gating": True}, "network.memory.name", "gtrxl"),
        ({"trxl_gating": False}, "network.memory.name", "none"),
        ({"final_lr": 1e-4}, "algorithm.config.lr.end", 1e-4),
        ({"anneal_lr": True}, "algorithm.config.lr.end", 0.0),
        ({"anneal_lr": False}, "algorithm.config.lr.end", 1e-3),
        ({"init_ent_coef": 0.1, "final_ent_coef": 0.01}, "algorithm.config.entropy_coef.end", 0.01),
        ({"num_minibatches": 4}, "algorithm.config.batch_size", 0.25),
        ({"clip_vloss": True, "clip_coef": 0.1}, "algorithm.config.clip_value.start", 0.1),
        ({"clip_vloss": False}, "algorithm.config.clip_value", None),
        ({"gae": True}, "algorithm.config.gae_lambda.start", 0.95),
        ({"gae": False}, "algorithm.config.gae_lambda.start", 1.0),
        ({"masked_indices": "1,3"}, "environment.wrappers.0.arguments", {"indices": [1, 3]}),
        ({"masked_indices": ""}, "environment.wrappers", ()),
        ({"obs_stack": 4}, "environment.frame_stack", 4),
        ({"frame_skip": [2, 5]}, "environment.frame_skip", (2, 5)),
        ({"cuda": True}, "experiment.device", "auto"),
        ({"cuda": False}, "experiment.device", "cpu"),
        ({"capture_video": True}, "training.evaluation.video.every_evaluations", 1),
        ({"save_interval": 100}, "training.checkpoints.every_updates", 100),
        ({"save_model": False}, "training.checkpoints.at_evaluation", "never"),
        ({"save_model": True}, "training.checkpoints.at_evaluation", "best"),
        ({"algo_id": "ppo_replay", "replay_ratio": 4, "replay_is_clip": 5}, "algorithm.config.replay_ratio", 4),
        ({"algo_id": "ppo_replay", "replay_buffer_size": 9_000}, "buffers.replay.config.size", 9_000),
    ],
)
def test_names_of_benchmark_scripts(written, path, meant):
    found = parse({**BASE, **written}, "test")
    for part in path.split("."):
        found = found[int(part)] if part.isdigit() else found[part] if isinstance(found, dict) else getattr(found, part)
    assert found == meant


@pytest.mark.parametrize("name", ABSENT)
def test_names_without_a_counterpart_say_why(name):
    with pytest.raises(ConfigError, match="unknown key; leave it out"):
        parse({**BASE, name: 1}, "test")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"environment": {"lr": 1}}, "did you mean 'algorithm.lr'?"),
        ({"training": {"gamma": 0.9}}, "did you mean 'algorithm.gamma'?"),
        ({"hidden_dim": 64}, "choose a memory core too: core=lstm"),
        ({"env_wrappers": [{"id": "PixelObservationWrapper", "pixels_only": False}]}, "pixels_only"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_where_it_belongs(written, words):
    with pytest.raises(ConfigError) as caught:
        make_env(parse({**BASE, **written}, "test").environment)
    assert words in caught.value.line()
