"""Other names people know things by, as one plain table: alias -> canonical path.

An alias of the form `policy_lr` also works inside the section it leads to (`algorithm.policy_lr`). No config model may
have a field of an alias's name in that section; a test sees to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Path = tuple[str, ...]

ALIASES: dict[str, str] = {
    # experiment
    "seed": "experiment.seed",
    "device": "experiment.device",
    "accelerator": "experiment.device",
    "tags": "experiment.tags",
    "description": "experiment.description",
    "project_id": "experiment.name",
    "exp_name": "experiment.name",
    # environment
    "env_id": "environment.id",
    "gym_id": "environment.id",
    "environment.name": "environment.id",
    "environment.env": "environment.id",
    "num_envs": "environment.num_envs",
    "n_envs": "environment.num_envs",
    "env_kwargs": "environment.kwargs",
    "obs_type": "environment.kwargs.obs_type",
    "env_wrappers": "environment.wrappers",
    "environment.wrapper": "environment.wrappers",
    "vectorization": "environment.vectorization",
    "vectorization_mode": "environment.vectorization",
    "subproc": "environment.vectorization",
    "valid_actions": "environment.valid_actions",
    "spec.action_space.valid": "environment.valid_actions",
    "grayscale_obs": "environment.grayscale_obs",
    "resize_obs": "environment.resize_obs",
    "frame_stack": "environment.frame_stack",
    "n_stack": "environment.frame_stack",
    "max_episode_steps": "environment.max_episode_steps",
    "normalize_obs": "environment.normalize_obs",
    "normalize_reward": "environment.normalize_reward",
    "reward_threshold": "environment.reward_threshold",
    # algorithm
    "algo_id": "algorithm.name",
    "algo": "algorithm.name",
    "n_steps": "algorithm.rollout_steps",
    "num_steps": "algorithm.rollout_steps",
    "rollout_steps": "algorithm.rollout_steps",
    "n_epochs": "algorithm.epochs",
    "num_epochs": "algorithm.epochs",
    "update_epochs": "algorithm.epochs",
    "batch_size": "algorithm.batch_size",
    "lr": "algorithm.lr",
    "policy_lr": "algorithm.lr",
    "learning_rate": "algorithm.lr",
    "mamba_lr": "algorithm.memory_lr",
    "gamma": "algorithm.gamma",
    "gae_lambda": "algorithm.gae_lambda",
    "lambda_return": "algorithm.gae_lambda",
    "clip_range": "algorithm.clip",
    "clip_coef": "algorithm.clip",
    "clip_ratio": "algorithm.clip",
    "clip_epsilon": "algorithm.clip",
    "clip_range_vf": "algorithm.clip_value",
    "ent_coef": "algorithm.entropy_coef",
    "entropy_coef": "algorithm.entropy_coef",
    "vf_coef": "algorithm.value_coef",
    "value_coef": "algorithm.value_coef",
    "max_grad_norm": "algorithm.max_grad_norm",
    "target_kl": "algorithm.target_kl",
    "norm_adv": "algorithm.normalize_advantage",
    "normalize_advantages": "algorithm.normalize_advantage",
    "returns_type": "algorithm.returns",
    "policy_targets": "algorithm.targets",
    "optimizer": "algorithm.optimizer",
    "weight_decay": "algorithm.optimizer.weight_decay",
    # network
    "policy": "network.encoder.type",
    "policy_kwargs": "network.encoder",
    "hidden_dims": "network.encoder.hidden_dims",
    "activation": "network.encoder.activation",
    "core": "network.memory.type",
    "rnn_type": "network.memory.type",
    "rnn_hidden_dim": "network.memory.hidden_dim",
    "trxl_num_layers": "network.memory.num_layers",
    "trxl_num_heads": "network.memory.num_heads",
    "trxl_positional_encoding": "network.memory.positions",
    "d_state": "network.memory.state_dim",
    "d_conv": "network.memory.conv_width",
    # buffers
    "buffer": "buffers.replay",
    # training
    "total_timesteps": "training.total_timesteps",
    "max_timesteps": "training.total_timesteps",
    "max_env_steps": "training.total_timesteps",
    "n_timesteps": "training.total_timesteps",
    "phases": "training.phases",
    "eval_episodes": "training.evaluation.episodes",
    "num_eval_episodes": "training.evaluation.episodes",
    "eval_freq_epochs": "training.evaluation.every_epochs",
    "eval_frequency": "training.evaluation.every_steps",
    "eval_freq": "training.evaluation.every_steps",
    "eval_warmup_epochs": "training.evaluation.warmup_epochs",
    "eval_deterministic": "training.evaluation.deterministic",
    "early_stop_on_train_threshold": "training.stop.train_reward",
    "early_stop_on_eval_threshold": "training.stop.eval_reward",
    # logging
    "logging.terminal": "logging.console",
    "track": "logging.wandb.enabled",
    "enable_wandb": "logging.wandb.enabled",
    "wandb_project_name": "logging.wandb.project",
    "wandb_entity": "logging.wandb.entity",
}


def _threshold(value: Any) -> Any:
    return ("threshold" if value else None) if isinstance(value, bool) else value


def _per_batch(value: Any) -> Any:
    return {"batch": True, "off": False}.get(value, value) if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


VALUES: dict[str, Callable[[Any], Any]] = {
    "subproc": lambda value: {True: "async", False: "sync"}[value] if isinstance(value, bool) else value,
    "accelerator": lambda value: "cuda" if value == "gpu" else value,
    "early_stop_on_train_threshold": _threshold,
    "early_stop_on_eval_threshold": _threshold,
    "environment.wrapper": _listed,
    "normalize_advantages": _per_batch,
    "trxl_positional_encoding": lambda value: "none" if value == "" else value,
}
"""What the value means under aliases that do not mean it literally."""

SHORT: dict[Path, str] = {("algorithm", "optimizer"): "type"}
"""Where a bare string stands for the mapping's `type`, besides registered choices."""

SCHEDULED: set[Path] = {
    ("algorithm", field)
    for field in ("lr", "memory_lr", "clip", "clip_value", "entropy_coef", "value_coef", "gamma", "gae_lambda")
}
"""Numbers that take flat schedule keys (`policy_lr_schedule: linear`, `policy_lr_schedule_end_value: 0`)."""

_PARTS = {"": "schedule", "_start_value": "start", "_end_value": "end", "_start": "from", "_end": "to"}
_FLAT = re.compile(r"(\w+)_schedule(|_start_value|_end_value|_start|_end)")


def canonical(path: Path) -> tuple[Path, Callable[[Any], Any] | None]:
    """Where a path written by a user leads, and how its value is to be understood."""
    for length in range(len(path), 0, -1):
        alias, target = _entry(path[:length])
        new = (*target, *path[length:])
        if new != path:
            final, meaning = canonical(new)
            return final, VALUES.get(alias, meaning)
    return path, None


def flat_schedule(path: Path) -> tuple[Path, str] | None:
    """The schedule and its part that a flat key such as `clip_range_schedule_end` means."""
    match = _FLAT.fullmatch(path[-1])
    if match is None:
        return None
    base, _ = canonical((*path[:-1], match[1]))
    return (base, _PARTS[match[2]]) if base in SCHEDULED else None


def spellings(path: Path) -> list[str]:
    """Every alias that may be written as a key of the mapping at `path`."""
    section = f"{path[0]}." if path else ""
    flat = [alias for alias, target in ALIASES.items() if "." not in alias and target.startswith(section)]
    inner = [alias.removeprefix(section) for alias in ALIASES if section and alias.startswith(section)]
    return [*flat, *inner] if len(path) <= 1 else []


def _entry(path: Path) -> tuple[str, Path]:
    dotted = ".".join(path)
    if dotted in ALIASES:
        return dotted, tuple(ALIASES[dotted].split("."))
    if len(path) == 2 and ALIASES.get(path[1], "").startswith(f"{path[0]}."):
        return path[1], tuple(ALIASES[path[1]].split("."))
    return dotted, path
