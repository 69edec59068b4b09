"""Samples of a buffer in the form that off-policy algorithms take: [T, B], single transitions or sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ludus.data.buffers.sampling import Buffer, Sample, tensors
from ludus.errors import ConfigError
from ludus.math.values import n_step_rows
from ludus.types import Array, Tree

if TYPE_CHECKING:
    from ludus.algorithms import PhaseContext
    from ludus.algorithms._replay import ReplayConfig


def check_size(buffer: Buffer, cfg: ReplayConfig, *, recurrent: bool, stored: bool = True) -> None:
    """Refuse a buffer that is too small for a batch, or for the steps before the first update."""
    remedy = f"raise buffers.{buffer.name}.size"
    for name in ("learning_starts", "batch_size"):
        if buffer.own and getattr(cfg, name) > buffer.size:
            problem = f"{getattr(cfg, name):,} steps never fit into a buffer of {buffer.size:,}"
            raise ConfigError(f"algorithm.{name}", problem, remedy)
    if recurrent:
        every = cfg.train_freq if stored else 1
        check_length(buffer, cfg.burn_in + cfg.sequence_length, every, "algorithm.sequence_length")


def check_length(buffer: Buffer, length: int, every: int, where: str) -> None:
    """Refuse sequences that can never be drawn, if one may begin at every `every`-th step, where memory is stored."""
    if not buffer.fits(length + every - 1):
        problem = f"sequences of {length:,} steps"
        problem += f", one of which begins every {every:,} steps," if every > 1 else ""
        problem += f" never fit into the {buffer.rows:,} steps that buffer '{buffer.name}' keeps of each environment"
        wanted = f"raise buffers.{buffer.name}.size to {(length + every - 1) * buffer.num_envs:,} or more"
        raise ConfigError(where, problem, wanted if buffer.own else "lower it")  # those of others have their size


def draw(
    buffer: Buffer, now: PhaseContext, *, recurrent: bool, device: torch.device, blank: Tree = None
) -> tuple[dict[str, Tree], Array] | None:
    """A batch to learn from, and the index of its samples for new priorities; None while too few steps are stored.

    Transitions [1, N], or for recurrent networks sequences [T, N] that begin with the stored memory, or a `blank` one.
    """
    cfg, gamma = now.cfg, now.at(now.cfg.gamma)
    wanted = max(cfg.batch_size, 1 if now.type == "offline" else cfg.learning_starts)
    if buffer.added < (wanted if buffer.own else 1):  # those of others will never be more
        return None  # steps ever added: with short episodes fewer of them stay in the buffer later
    buffer.at(now.position, now.total)
    if recurrent:
        length, stored = cfg.burn_in + cfg.sequence_length, blank is None
        if not buffer.can_sample_sequences(1, length, state=stored):
            return None
        sample = buffer.sample_sequences(cfg.batch_size, length, state=stored)
        state = sample["state"] if stored else blank
        batch = {**sequences(sample, cfg.burn_in, n_step=cfg.n_step, gamma=gamma), "state": state}
    else:
        sample = buffer.sample(cfg.batch_size, n_step=cfg.n_step, gamma=gamma)
        names = ("obs", "action", "reward", "discount", "next_obs", "weight", "first")
        batch = {name: sample[name] for name in names}
    return tensors(batch, device, buffer.wrapped), sample["index"]


def sequences(sample: Sample, burn_in: int, *, n_step: int, gamma: float) -> Sample:
    """Observations and `first` keep `burn_in` rows before and one row after the T steps that count.

    `row` is the row after the burn-in that a step bootstraps from. Slots without a step weigh nothing.
    """
    action, reward, terminated, mask = (sample[name][burn_in:] for name in ("action", "reward", "terminated", "mask"))
    reward, discount, row = n_step_rows(reward, terminated, mask, n_step, gamma)
    weight = mask * sample["weight"] * np.float32(mask.size / max(mask.sum(), 1))
    kept = {"obs": sample["obs"], "first": sample["first"], "action": action}
    return {**kept, "reward": reward, "discount": discount, "row": row, "weight": weight.astype(np.float32)}


def priorities(error_TN: Tensor) -> Array:
    """The error of each sample; of a sequence, mostly that of its worst step (R2D2, Kapturowski et al. 2019)."""
    error = error_TN.cpu().numpy()
    return error[0] if len(error) == 1 else 0.9 * error.max(0) + 0.1 * error.mean(0)
