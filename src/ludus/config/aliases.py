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
    "environment": "num_envs vectorization valid_actions frame_skip grayscale_obs resize_obs frame_stack "
    "max_episode_steps normalize_obs normalize_reward reward_threshold",
    "algorithm": "rollout_steps batch_size lr gamma gae_lambda entropy_coef value_coef max_grad_norm target_kl "
    "optimizer clip epochs learning_starts train_freq tau replay_ratio replay_is_clip",
    "training": "total_timesteps phases",
}
"""Section -> fields that may be written at the top level under their own name."""

NAMES: dict[str, str] = {
    "experiment.device": "accelerator cuda",
    "experiment.name": "project_id exp_name",
    "environment.id": "env env_id gym_id environment.name environment.env",
    "environment.num_envs": "n_envs",
    "environment.kwargs": "env_kwargs",
    "environment.kwargs.obs_type": "obs_type",
    "environment.wrappers": "env_wrappers environment.wrapper masked_indices",
    "environment.vectorization": "vectorization_mode subproc",
    "environment.valid_actions": "spec.action_space.valid",
    "environment.frame_stack": "n_stack obs_stack",
    "algorithm.name": "algo_id algo",
    "algorithm.batch_size": "num_minibatches",
    "algorithm.rollout_steps": "n_steps num_steps",
    "algorithm.epochs": "n_epochs num_epochs update_epochs",
    "algorithm.lr": "policy_lr learning_rate",
    "algorithm.lr.end": "final_lr anneal_lr",
    "algorithm.memory_lr": "mamba_lr",
    "algorithm.train_freq": "train_frequency",
    "algorithm.gae_lambda": "lambda_return gae",
    "algorithm.clip": "clip_range clip_coef clip_ratio clip_epsilon",
    "algorithm.clip_value": "clip_range_vf clip_vloss",
    "algorithm.entropy_coef": "ent_coef",
    "algorithm.entropy_coef.start": "init_ent_coef",
    "algorithm.entropy_coef.end": "final_ent_coef",
    "algorithm.value_coef": "vf_coef",
    "algorithm.normalize_advantage": "norm_adv normalize_advantages",
    "algorithm.returns": "returns_type",
    "algorithm.targets": "policy_targets",
    "algorithm.optimizer.weight_decay": "weight_decay",
    "network.encoder": "policy_kwargs",
    "network.encoder.type": "policy",
    "network.encoder.hidden_dims": "hidden_dims",
    "network.encoder.activation": "activation",
    "network.memory.type": "core rnn_type mamba_version trxl_gating",
    "network.memory.hidden_dim": "hidden_dim rnn_hidden_dim trxl_dim",
    "network.memory.memory_length": "trxl_memory_length",
    "network.memory.expand": "expand",
    "network.memory.num_layers": "trxl_num_layers",
    "network.memory.num_heads": "trxl_num_heads",
    "network.memory.positions": "trxl_positional_encoding",
    "network.memory.state_dim": "d_state",
    "network.memory.conv_width": "d_conv",
    "buffers.replay": "buffer",
    "buffers.replay.size": "buffer_size replay_buffer_size",
    "training.total_timesteps": "max_timesteps max_env_steps n_timesteps timesteps",
    "training.evaluation.episodes": "eval_episodes num_eval_episodes",
    "training.evaluation.every_epochs": "eval_freq_epochs",
    "training.evaluation.every_steps": "eval_frequency eval_freq",
    "training.evaluation.warmup_epochs": "eval_warmup_epochs",
    "training.evaluation.deterministic": "eval_deterministic",
    "training.evaluation.video.every_evaluations": "capture_video",
    "training.checkpoints.every_steps": "checkpoint_frequency",
    "training.checkpoints.every_updates": "save_interval",
    "training.checkpoints.at_evaluation": "save_model",
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


KEEP = object()
"""The meaning of a value that changes nothing."""


def _wrapper(value: object) -> object:
    return [] if value in ("gym", "gymnasium", None) else value if isinstance(value, list) else [value]


def _masked(value: object) -> object:
    indices = [int(part) for part in value.split(",")] if isinstance(value, str) and value else value
    indices = indices if isinstance(indices, list) else [indices]
    return KEEP if value in ("", None) else [{"id": "mask_observation", "indices": indices}]


SWITCHES: dict[str, tuple[object, object]] = {
    "subproc": ("sync", "async"),
    "cuda": ("cpu", "auto"),
    "anneal_lr": ("${algorithm.lr.start}", 0.0),
    "gae": (1.0, KEEP),
    "clip_vloss": (None, "${algorithm.clip}"),
    "trxl_gating": (KEEP, "gtrxl"),
    "capture_video": (0, 1),
    "save_model": ("never", KEEP),
    "early_stop_on_train_threshold": (None, "threshold"),
    "early_stop_on_eval_threshold": (None, "threshold"),
}
"""Aliases that are true or false where the setting is something else: what false and true mean."""

VALUES: dict[str, Meaning] = {
    "accelerator": lambda value: "cuda" if value == "gpu" else value,
    "environment.wrapper": _wrapper,
    "masked_indices": _masked,
    "mamba_version": lambda value: {"v1": "mamba", "v2": "mamba2"}.get(str(value), value),
    "num_minibatches": lambda value: 1 / value if isinstance(value, int) and value > 0 else value,
    "normalize_advantages": lambda value: {"batch": True, "off": False}.get(str(value), value),
    "trxl_positional_encoding": lambda value: "none" if value == "" else value,
}
"""Other aliases whose values mean something else: how to translate them."""

ABSENT = {
    "torch_deterministic": "leave it out: every run is deterministic",
    "reconstruction_coef": "leave it out: there is no reconstruction loss",
    "dt_init": "leave it out: step sizes of Mamba start as in its paper; network.memory.rate sets the decay",
    "dt_scale": "leave it out: step sizes of Mamba start as in its paper; network.memory.rate sets the decay",
}
"""Names of other tools that mean nothing here, and what to do."""

_FLAT = re.compile(r"(\w+?)_schedule(|_start_value|_end_value|_start|_end|_warmup)")
_PARTS = {"": "schedule", "_start_value": "start", "_end_value": "end", "_start": "from"}
_PARTS |= {"_end": "to", "_warmup": "warmup"}


def canonical(path: Path) -> tuple[Path, Meaning | None]:
    """The canonical form of a path as a user writes it, and how to translate its value."""
    for length in range(len(path), 0, -1):
        alias = _SPELLINGS.get(".".join(path[:length]))
        new = (*ALIASES[alias].split("."), *path[length:]) if alias else path
        if new != path:
            final, meaning = canonical(new)
            return final, _meaning(str(alias)) or meaning
    flat = _FLAT.fullmatch(path[-1])
    number = canonical((*path[:-1], flat[1]))[0] if flat else ()
    if flat and len(number) == 2 and number[0] == "algorithm":
        return (*number, _PARTS[flat[2]]), None
    return path, None


def _meaning(alias: str) -> Meaning | None:
    if alias in SWITCHES:
        return lambda value: SWITCHES[alias][value] if isinstance(value, bool) else value
    return VALUES.get(alias)


def spellings(path: Path) -> list[str]:
    """Every alias that may be a key of the mapping at `path`."""
    section = f"{path[0]}." if path else ""
    flat = [alias for alias, target in ALIASES.items() if "." not in alias and target.startswith(section)]
    inner = [alias.removeprefix(section) for alias in ALIASES if section and alias.startswith(section)]
    return [*flat, *inner] if len(path) <= 1 else []
