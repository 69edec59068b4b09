"""The alias table is sound, and every name people know leads to the same config (requirements E17-E46, Z6)."""

from __future__ import annotations

import pytest

from ludus.config.aliases import ALIASES, canonical
from ludus.config.compose import config_hash, parse
from ludus.config.schema import ExperimentConfig
from ludus.config.validate import Many, fields, node_of, section
from ludus.errors import ConfigError
from ludus.registry import ALGORITHMS, BUFFERS, ENCODERS, MEMORY, Registry

CANONICAL = {
    "experiment": {"name": "mine", "description": "d", "seed": 7, "device": "cpu", "tags": ["a"]},
    "environment": {
        "id": "CartPole-v1",
        "num_envs": 4,
        "vectorization": "async",
        "kwargs": {"sutton_barto_reward": True},
        "normalize_obs": "rolling",
        "normalize_reward": True,
        "reward_threshold": 475,
        "max_episode_steps": 200,
    },
    "algorithm": {
        "name": "ppo",
        "rollout_steps": 64,
        "epochs": 3,
        "batch_size": 0.5,
        "lr": 1e-3,
        "memory_lr": 1e-4,
        "gamma": 0.9,
        "gae_lambda": 0.8,
        "clip": 0.1,
        "clip_value": 0.3,
        "entropy_coef": 0.02,
        "value_coef": 0.7,
        "max_grad_norm": 1.0,
        "target_kl": 0.03,
        "normalize_advantage": False,
        "optimizer": {"type": "adamw", "weight_decay": 0.1},
    },
    "network": {"encoder": {"type": "mlp", "hidden_dims": [32], "activation": "relu"}, "memory": {"type": "gru"}},
    "training": {
        "total_timesteps": 5_000,
        "evaluation": {"episodes": 3, "every_epochs": 2, "warmup_epochs": 5, "deterministic": False},
        "stop": {"eval_reward": "threshold"},
    },
    "logging": {"wandb": {"enabled": True, "project": "p", "entity": "e"}},
}
SOLVER = {  # a flat config-first file
    "project_id": "mine",
    "description": "d",
    "seed": 7,
    "accelerator": "cpu",
    "tags": ["a"],
    "env_id": "CartPole-v1",
    "n_envs": 4,
    "subproc": True,
    "env_kwargs": {"sutton_barto_reward": True},
    "normalize_obs": True,
    "normalize_reward": True,
    "reward_threshold": 475,
    "max_episode_steps": 200,
    "algo_id": "ppo",
    "n_steps": 64,
    "n_epochs": 3,
    "batch_size": 0.5,
    "policy_lr": 1e-3,
    "mamba_lr": 1e-4,
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "clip_range": 0.1,
    "clip_range_vf": 0.3,
    "ent_coef": 0.02,
    "vf_coef": 0.7,
    "max_grad_norm": 1.0,
    "target_kl": 0.03,
    "normalize_advantages": False,
    "optimizer": "adamw",
    "weight_decay": 0.1,
    "policy": "mlp",
    "policy_kwargs": {"hidden_dims": [32], "activation": "relu"},
    "core": "gru",
    "max_timesteps": 5e3,
    "eval_episodes": 3,
    "eval_freq_epochs": 2,
    "eval_warmup_epochs": 5,
    "eval_deterministic": False,
    "early_stop_on_eval_threshold": True,
    "enable_wandb": True,
    "wandb_project_name": "p",
    "wandb_entity": "e",
}
SECTIONED = {  # a modular repo's file, with its own names inside the sections
    **CANONICAL,
    "environment": {
        "name": "CartPole-v1",
        "n_envs": 4,
        "vectorization_mode": "async",
        **{k: v for k, v in CANONICAL["environment"].items() if k not in ("id", "num_envs", "vectorization")},
    },
    "algorithm": {
        "algo_id": "ppo",
        "num_steps": 64,
        "update_epochs": 3,
        "batch_size": 0.5,
        "learning_rate": 1e-3,
        "mamba_lr": 1e-4,
        "gamma": 0.9,
        "lambda_return": 0.8,
        "clip_ratio": 0.1,
        "clip_range_vf": 0.3,
        "ent_coef": 0.02,
        "vf_coef": 0.7,
        "max_grad_norm": 1.0,
        "target_kl": 0.03,
        "norm_adv": False,
        "optimizer": {"type": "adamw", "weight_decay": 0.1},
    },
    "training": {
        "max_env_steps": 5_000,
        "num_eval_episodes": 3,
        "evaluation": {"every_epochs": 2, "warmup_epochs": 5, "deterministic": False},
        "stop": {"eval_reward": "threshold"},
    },
}


@pytest.mark.parametrize("data", [SOLVER, SECTIONED], ids=["flat", "sectioned"])
def test_every_spelling_gives_one_hash(data):
    assert config_hash(parse(data, "test")) == config_hash(parse(CANONICAL, "test"))


def test_the_rest_of_the_names():
    more = {
        "gym_id": "CartPole-v1",
        "algo": "reinforce",
        "returns_type": "mc:episode",
        "policy_targets": "advantages",
        "total_timesteps": 10,
        "training": {"eval_frequency": 500},
        "logging": {"terminal": False, "wandb": True},
        "environment": {"wrapper": {"id": "mask_observation", "indices": [1]}},
        "subproc": False,
        "network": {"actor": {"type": "mlp", "hidden_dims": [8], "activation": "relu"}},
    }
    config = parse(more, "test")
    assert config.algorithm.config.returns == "mc:episode" and config.algorithm.config.targets == "advantages"
    assert config.training.evaluation.every_steps == 500 and config.environment.vectorization == "sync"
    assert not config.logging.console and config.logging.wandb.enabled
    assert config.network.actor.hidden_dims == (8,) and config.environment.wrappers[0].arguments == {"indices": [1]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"policy_lr": 1e-3}, {"learning_rate": 2e-3}),
        ({"policy_lr": 1e-3}, {"algorithm": {"lr": 2e-3}}),
        ({"algorithm": {"clip": 0.1}}, {"clip_range": {"start": 0.1, "end": 0.0}}),
        ({"n_envs": 4}, {"num_envs": 8}),
        ({"max_timesteps": 10}, {"training": {"total_timesteps": 20}}),
        ({"core": "gru"}, {"network": {"memory": "none"}}),
        ({"optimizer": "sgd"}, {"algorithm": {"optimizer": {"type": "adam"}}}),
    ],
)
def test_names_that_disagree_are_an_error_naming_both(one, other):
    data = {"env_id": "CartPole-v1", "algorithm": {"name": "ppo"}}
    merged = {**data, **one, **other}
    merged["algorithm"] = {**data["algorithm"], **one.get("algorithm", {}), **other.get("algorithm", {})}
    with pytest.raises(ConfigError, match="both set") as caught:
        parse(merged, "here.yaml")
    for given in (one, other):
        assert f"'{next(iter(given))}" in caught.value.problem
    assert caught.value.where == "here.yaml"


def test_names_that_agree_are_fine():
    data = {"env_id": "CartPole-v1", "algo_id": "ppo", "policy_lr": 1e-3, "learning_rate": 1e-3}
    assert parse({**data, "algorithm": {"lr": 1e-3}}, "test").algorithm.config.lr.start == 1e-3


def paths(registry: Registry, prefix: str) -> set[str]:
    return {f"{prefix}.{field}" for name in registry.names() for field in fields(registry[name].Config)}


def test_names_of_single_file_memory_scripts():
    flags = {"rnn_type": "gtrxl", "trxl_num_layers": 2, "trxl_num_heads": 2, "rnn_hidden_dim": 32}
    for written, meant in (("", "none"), ("absolute", "absolute"), ("learned", "learned")):
        data = {"env_id": "CartPole-v1", "algo_id": "ppo", **flags, "trxl_positional_encoding": written}
        memory = parse(data, "test").network.memory.config
        assert (memory.num_layers, memory.num_heads, memory.hidden_dim, memory.positions) == (2, 2, 32, meant)
    data = {"env_id": "CartPole-v1", "algo_id": "ppo", "core": "mamba", "d_state": 8, "d_conv": 3, "mamba_lr": 1e-4}
    config = parse(data, "test")
    assert (config.network.memory.config.state_dim, config.network.memory.config.conv_width) == (8, 3)
    assert config.algorithm.config.memory_lr.start == 1e-4


def test_every_alias_leads_somewhere():
    known = paths(ALGORITHMS, "algorithm") | paths(ENCODERS, "network.encoder") | paths(MEMORY, "network.memory")
    known |= paths(BUFFERS, "buffers.replay")
    for alias, target in ALIASES.items():
        path = tuple(target.split("."))
        parent = section(path[:-1])
        if isinstance(parent, type):
            found = path[-1] in fields(parent)
        elif isinstance(parent, Many):
            found = parent.keyed
        else:
            free = path[:2] == ("environment", "kwargs")  # an environment's own arguments
            found = (
                free or path[-1] in ("name", "type") or ".".join(path[:2] if path[0] == "algorithm" else path) in known
            )
        assert found, f"{alias} -> {target}"
        assert canonical(tuple(target.split(".")))[0] == path, f"{target} is itself an alias"


def test_no_field_has_the_name_of_an_alias():
    def visit(model, path):
        for name, info in fields(model).items():
            here = (*path, name)
            assert canonical(here)[0] == here, f"{'.'.join(here)} can never be set: it is an alias"
            inner = node_of(info.annotation, info.metadata)
            if isinstance(inner, type):
                visit(inner, here)

    visit(ExperimentConfig, ())
    for registry, path in (
        (ALGORITHMS, ("algorithm",)),
        (ENCODERS, ("network", "encoder")),
        (MEMORY, ("network", "memory")),
    ):
        for name in registry.names():
            visit(registry[name].Config, path)
