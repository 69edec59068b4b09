"""Samples of a buffer in the one form off-policy actor-critics take: [T, B], single transitions or sequences."""

from __future__ import annotations

from typing import Any

import torch

from ludus.data.buffer import Buffer, tensors
from ludus.errors import ConfigError
from ludus.types import Array, Tree


def prepare(buffer: Buffer, learning_starts: int, memory: Tree) -> None:
    """Have a buffer keep the memory of recurrent policies; refuse one that can never hold enough to begin with."""
    if buffer.own and learning_starts > buffer.size:
        problem = f"{learning_starts} steps never fit into a buffer of {buffer.size}"
        raise ConfigError("algorithm.learning_starts", problem, f"raise buffers.{buffer.name}.size")
    if memory is not None:
        buffer.keep_state(memory)


def draw(
    buffer: Buffer, size: int, *, n_step: int, gamma: float, length: int, burn_in: int, device: torch.device
) -> tuple[dict[str, Any], Array] | None:
    """A batch and what to tell the buffer its priorities by; sequences if they have a length, none while too few are.

    `error` has room for how wrong each step was: the update fills it.
    """
    if not length:
        sample = tensors(buffer.sample(size, n_step=n_step, gamma=gamma), device)
        names = ("obs", "action", "reward", "discount", "next_obs", "weight", "first")
        batch = {name: sample[name] for name in names}
    elif buffer.can_sample_sequences(1, burn_in + length, state=True):
        sample = tensors(buffer.sample_sequences(size, burn_in + length, state=True), device)
        batch = sequences(sample, burn_in, gamma)
    else:
        return None
    return {**batch, "error": torch.zeros_like(batch["reward"])}, sample["index"].cpu().numpy()


def sequences(sample: dict[str, Any], burn_in: int, gamma: float) -> dict[str, Any]:
    """Observations and `first` keep `burn_in` rows before and one row after the T steps that count.

    Slots without a step weigh nothing.
    """
    counted = {name: sample[name][burn_in:] for name in ("action", "reward", "terminated", "mask")}
    weight = counted["mask"].float() * sample["weight"]
    return {
        "obs": sample["obs"],
        "first": sample["first"],
        "state": sample["state"],
        "action": counted["action"],
        "reward": counted["reward"],
        "discount": gamma * (~counted["terminated"]).float(),
        "weight": weight * (weight.numel() / counted["mask"].sum().clamp(min=1)),
    }


def priorities(batch: dict[str, Any]) -> Array:
    """How wrong each sample was; of a sequence, mostly its worst step (R2D2, Kapturowski et al. 2019)."""
    error = batch["error"].cpu().numpy()
    return error[0] if len(error) == 1 else 0.9 * error.max(0) + 0.1 * error.mean(0)
