"""Other names that people know settings by, as one plain table: canonical path -> its aliases.

An alias without a dot also works inside the section it leads to (`algorithm.policy_lr`). No config model may have a
field with the name of an alias in that section; a test checks it. A number of the algorithm also takes the flat keys of
a schedule: `policy_lr_schedule: linear`, `policy_lr_schedule_end_value: 0`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Path = tuple[str, ...]
Meaning = Callable[[object], object]

BARE: dict[str, str] = {
    "experiment": "seed device tags description",
    "environment": "num_envs vectorization valid_actions grayscale_obs resize_obs frame_stack max_episode_steps "
    "normalize_obs normalize_reward reward_threshold",
    "algorithm": "rollout_steps batch_size lr gamma gae_lambda entropy_coef value_coef max_grad_norm target_kl "
    "optimizer",
    "training": "total_timesteps phases",
}
"""Section -> fields that may be written at the top level under their own name."""

NAMES: dict[str, str] = {
    "experiment.device": "accelerator",
    "experiment.name": "project_id exp_name",
    "environment.id": "env_id gym_id environment.name environment.env",
    "environment.num_envs": "n_envs",
    "environment.kwargs": "env_kwargs",
    "environment.kwargs.obs_type": "obs_type",
    "environment.wrappers": "env_wrappers environment.wrapper",
    "environment.vectorization": "vectorization_mode subproc",
    "environment.valid_actions": "spec.action_space.valid",
    "environment.frame_stack": "n_stack",
    "algorithm.name": "algo_id algo",
    "algorithm.rollout_steps": "n_steps num_steps",
    "algorithm.epochs": "n_epochs num_epochs update_epochs",
    "algorithm.lr": "policy_lr learning_rate",
    "algorithm.memory_lr": "mamba_lr",
    "algorithm.gae_lambda": "lambda_return",
    "algorithm.clip": "clip_range clip_coef clip_ratio clip_epsilon",
    "algorithm.clip_value": "clip_range_vf",
    "algorithm.entropy_coef": "ent_coef",
    "algorithm.value_coef": "vf_coef",
    "algorithm.normalize_advantage": "norm_adv normalize_advantages",
    "algorithm.returns": "returns_type",
    "algorithm.targets": "policy_targets",
    "algorithm.optimizer.weight_decay": "weight_decay",
    "network.encoder": "policy_kwargs",
    "network.encoder.type": "policy",
    "network.encoder.hidden_dims": "hidden_dims",
    "network.encoder.activation": "activation",
    "network.memory.type": "core rnn_type",
    "network.memory.hidden_dim": "rnn_hidden_dim",
    "network.memory.num_layers": "trxl_num_layers",
    "network.memory.num_heads": "trxl_num_heads",
    "network.memory.positions": "trxl_positional_encoding",
    "network.memory.state_dim": "d_state",
    "network.memory.conv_width": "d_conv",
    "buffers.replay": "buffer",
    "training.total_timesteps": "max_timesteps max_env_steps n_timesteps",
    "training.evaluation.episodes": "eval_episodes num_eval_episodes",
    "training.evaluation.every_epochs": "eval_freq_epochs",
    "training.evaluation.every_steps": "eval_frequency eval_freq",
    "training.evaluation.warmup_epochs": "eval_warmup_epochs",
    "training.evaluation.deterministic": "eval_deterministic",
    "training.stop.train_reward": "early_stop_on_train_threshold",
    "training.stop.eval_reward": "early_stop_on_eval_threshold",
    "logging.console": "logging.terminal",
    "logging.wandb.enabled": "track enable_wandb",
    "logging.wandb.project": "wandb_project_name",
    "logging.wandb.entity": "wandb_entity",
}
ALIASES = {name: f"{section}.{name}" for section, names in BARE.items() for name in names.split()}
"""Alias -> canonical path."""
ALIASES |= {alias: path for path, names in NAMES.items() for alias in names.split()}
_SPELLINGS = {f"{path.partition('.')[0]}.{alias}": alias for alias, path in ALIASES.items() if "." not in alias}
"""Every way to write an alias, also inside its section -> the alias."""
_SPELLINGS |= {alias: alias for alias in ALIASES}


def _threshold(value: object) -> object:
    return ("threshold" if value else None) if isinstance(value, bool) else value


VALUES: dict[str, Meaning] = {
    "subproc": lambda value: {True: "async", False: "sync"}[value] if isinstance(value, bool) else value,
    "accelerator": lambda value: "cuda" if value == "gpu" else value,
    "early_stop_on_train_threshold": _threshold,
    "early_stop_on_eval_threshold": _threshold,
    "environment.wrapper": lambda value: value if isinstance(value, list) else [value],
    "normalize_advantages": lambda value: {"batch": True, "off": False}.get(str(value), value),
    "trxl_positional_encoding": lambda value: "none" if value == "" else value,
}
"""Aliases whose values mean something else: how to translate them."""

_FLAT = re.compile(r"(\w+?)_schedule(|_start_value|_end_value|_start|_end)")
_PARTS = {"": "schedule", "_start_value": "start", "_end_value": "end", "_start": "from", "_end": "to"}


def canonical(path: Path) -> tuple[Path, Meaning | None]:
    """The canonical form of a path as a user writes it, and how to translate its value."""
    for length in range(len(path), 0, -1):
        alias = _SPELLINGS.get(".".join(path[:length]))
        new = (*ALIASES[alias].split("."), *path[length:]) if alias else path
        if new != path:
            final, meaning = canonical(new)
            return final, VALUES.get(str(alias), meaning)
    flat = _FLAT.fullmatch(path[-1])
    number = canonical((*path[:-1], flat[1]))[0] if flat else ()
    if flat and len(number) == 2 and number[0] == "algorithm":
        return (*number, _PARTS[flat[2]]), None
    return path, None


def spellings(path: Path) -> list[str]:
    """Every alias that may be a key of the mapping at `path`."""
    section = f"{path[0]}." if path else ""
    flat = [alias for alias, target in ALIASES.items() if "." not in alias and target.startswith(section)]
    inner = [alias.removeprefix(section) for alias in ALIASES if section and alias.startswith(section)]
    return [*flat, *inner] if len(path) <= 1 else []
