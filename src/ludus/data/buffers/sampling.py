"""What every buffer offers: stored steps drawn as transitions with n-step returns, or as sequences.

Reading order: sample -> sample_sequences. Shapes: N samples, L length of sequences. Observations and rewards are
normalised, if at all, with the statistics of the moment they are drawn at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ludus.data.buffers.store import FINAL, REAL, STATE, TERMINATED, BufferConfig, Steps, leaves_of
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.errors import ConfigError
from ludus.types import Array, Spaces, tree_map

if TYPE_CHECKING:
    import torch

Sample = dict[str, Any]
"""Arrays in memory that the next sample of the same shape overwrites."""
ROUNDS = 64
"""Draws before places are counted instead."""


class Buffer(Steps):
    """Draws the newest steps uniformly."""

    def __init__(
        self,
        cfg: BufferConfig,
        spaces: Spaces,
        num_envs: int,
        *,
        normalizer: ObservationNormalizer | None = None,
        reward_normalizer: RewardNormalizer | None = None,
        **details: Any,
    ) -> None:
        super().__init__(cfg, spaces, num_envs, **details)
        self.normalizer, self.reward_normalizer = normalizer, reward_normalizer
        self._outputs: dict[Any, tuple[Sample, Sample]] = {}

    # ---- sample ------------------------------------------------------------------------------------------------------

    def sample(self, batch: int, *, n_step: int = 1, gamma: float = 0.99) -> Sample:
        """[1, N] steps with their n-step returns; a target is `reward + discount * value(next_obs)`."""
        b, a, weight = self._draw(batch, 1, REAL)
        (out, row), data = self._output(batch), self.arena.data
        slots = self.arena.slots(b, a + np.arange(n_step + 1)[:, None])
        here = slots[0]
        taken, row["reward"][:], terminated = self._returns(slots, n_step, gamma)
        row["terminated"][:], row["weight"][:] = terminated, weight
        np.multiply(~terminated, gamma**taken, out=row["discount"], casting="same_kind")
        out["index"][:] = here if self.arena.storage == "ram" else self.arena.numbers(b, a)
        ages = data["age"].take(here, mode="clip")
        np.equal(ages, 0, out=row["first"])
        for name in ("action", *self.extras):
            data[name].take(here, 0, row[name], "clip")
        if self.frames.count == 1:
            following = slots[1] if n_step == 1 else slots[taken, np.arange(batch)]
            data["obs"].take(here, 0, row["obs"], "clip")
            data["obs"].take(following, 0, row["next_obs"], "clip")
        else:
            self._observations(b, a, ages, row["obs"])
            self._observations(b, a + taken, ages + taken, row["next_obs"])
        return self._normalized(out, "obs", "next_obs")

    def _returns(self, slots: Array, n_step: int, gamma: float) -> tuple[Any, Array, Array]:
        """(steps taken, their discounted rewards, whether the last one ended the episode): at most `n_step` of them."""
        rewards = self._rewards(self.arena.data["reward"].take(slots[:-1], mode="clip"))
        flags = self.arena.data["flags"].take(slots[:-1], mode="clip")
        taken: Any = 1
        alive, reward, ended = flags[0], rewards[0], flags[0]
        for k in range(1, n_step):  # ends before a final slot, or the one to come
            alive = alive & flags[k] & REAL
            reward = reward + alive * rewards[k] * np.float32(gamma**k)
            ended = ended | (flags[k] * alive)
            taken = np.add(taken, alive, dtype=np.int64)
        return taken, reward, (ended & TERMINATED) > 0

    def _draw(self, count: int, length: int, wanted: int) -> tuple[Array, Array, Any]:
        """Slots with the flags `wanted` that have `length` slots and one more from there on, and their weights."""
        oldest = self._oldest
        width = np.maximum(self.arena.end - oldest - length + 1, 0)
        bounds = width.cumsum()
        if not bounds[-1]:
            raise self._too_early(length)
        found: list[tuple[Array, Array]] = []
        missing = count
        for _ in range(ROUNDS):
            b, a = self._draw_slots(missing + missing // 8 + 8, oldest, bounds, width)  # some will not fit
            fits = ((self._take("flags", b, a) & wanted) == wanted).nonzero()[0][:missing]
            found.append((b[fits], a[fits]))
            missing -= len(fits)
            if not missing:
                b, a = found[0] if len(found) == 1 else (np.concatenate(part) for part in zip(*found, strict=True))
                return b, a, 1.0
        b, a = self._choose(count, oldest, width, wanted, length)
        return b, a, 1.0

    def _draw_slots(self, count: int, oldest: Array, bounds: Array, width: Array) -> tuple[Array, Array]:
        position = (self.rng.random(count) * bounds[-1]).astype(np.int64)
        if self.num_envs == 1:
            return np.zeros(count, np.int64), oldest[0] + position
        b = np.searchsorted(bounds, position, "right")
        return b, oldest[b] + position - (bounds - width)[b]

    def _choose(self, count: int, oldest: Array, width: Array, wanted: int, length: int) -> tuple[Array, Array]:
        """So few fit that they are counted."""
        b, a = self._candidates(oldest, width, wanted)
        if not len(b):
            raise self._too_early(length)
        chosen = self.rng.integers(len(b), size=count)
        return b[chosen], a[chosen]

    def _candidates(self, oldest: Array, width: Array, wanted: int) -> tuple[Array, Array]:
        b = np.repeat(np.arange(self.num_envs), width)
        a = np.arange(len(b)) - np.repeat(np.cumsum(width) - width, width) + oldest[b]
        fits = (self._take("flags", b, a) & wanted) == wanted
        return b[fits], a[fits]

    def _any(self, oldest: Array, width: Array, wanted: int) -> bool:
        """Whether one of them has these flags: all are looked at, the newest first, in pieces that grow."""
        done, piece = 0, 256
        while done < width.max():
            b = np.flatnonzero(width > done)
            a = np.maximum((oldest + width)[b] - 1 - done - np.arange(piece)[:, None], oldest[b])
            if ((self._take("flags", b, a) & wanted) == wanted).any():
                return True
            done, piece = done + piece, 4 * piece
        return False

    def _too_early(self, length: int) -> ConfigError:
        problem = f"no stretch of {length} steps is stored yet"
        return ConfigError(f"buffers.{self.name}", problem, "collect more steps before learning from it")

    def at(self, position: int, total: int) -> None:
        """Read the buffer's own schedules, if it has any."""

    def update_priorities(self, index: Array, priority: Array) -> None:
        """Nothing depends on priorities here."""

    # ---- sequences ---------------------------------------------------------------------------------------------------

    def sample_sequences(self, batch: int, length: int, *, state: bool = False) -> Sample:
        """[L, N] steps, one environment each; `mask` leaves out slots without a step, `first` says where to reset."""
        assert not state or self._state_tree is not None, "keep_state was not asked for"
        b, a, weight = self._draw(batch, length, REAL | (STATE if state else 0))
        out, _ = self._output(batch, length)
        out["index"][:], out["weight"][:] = self.arena.numbers(b, a), weight
        return self._sequences(out, b, a, np.arange(length + 1)[:, None] + a, state=state)

    def _sequences(self, out: Sample, b: Array, a: Array, number: Array, *, state: bool) -> Sample:
        shape = number.shape
        flags, ages = self._take("flags", b, number), self._take("age", b, number)
        out["mask"][...] = real = (flags[:-1] & REAL) > 0
        out["terminated"][...] = terminated = (flags[:-1] & TERMINATED) > 0
        out["truncated"][...] = real & ~terminated & ((flags[1:] & FINAL) > 0)
        out["first"][...] = ages == 0
        out["reward"][...] = self._rewards(self._take("reward", b, number[:-1]))
        for name in ("action", *self.extras):
            self._take(name, b, number[:-1], out[name])
        wide = np.broadcast_to(b, shape).reshape(-1)
        flat = out["obs"].reshape(-1, *out["obs"].shape[2:])
        self._observations(wide, number.reshape(-1), ages.reshape(-1), flat)
        if state:
            leaves = iter([self._take(f"state{i}", b, a) for i in range(len(leaves_of(self._state_tree)))])
            out["state"] = tree_map(lambda _: next(leaves), self._state_tree)
        return self._normalized(out, "obs")

    def can_sample_sequences(self, batch: int, length: int, *, state: bool = False) -> bool:
        """Whether `batch` slots have `length` slots from there on, and a sequence can begin in one of them."""
        if self._arena is None:
            return False
        oldest = self._oldest
        width = np.maximum(self.arena.end - oldest - length + 1, 0)
        return bool(width.sum() >= batch and self._any(oldest, width, REAL | (STATE if state else 0)))

    def fits(self, length: int) -> bool:
        """Whether so many slots in a row will ever be stored."""
        return length <= self.rows

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _observations(self, b: Array, a: Array, ages: Array, out: Array) -> None:
        if self.frames.count == 1:
            self._take("obs", b, a, out)
        else:
            self.frames.gather(lambda b, a: self._take("obs", b, a), b, a, ages, out)

    def _rewards(self, reward: Array) -> Array:
        return reward if self.reward_normalizer is None else self.reward_normalizer.scaled(reward)

    def _normalized(self, out: Sample, *names: str) -> Sample:
        if self.normalizer is None:
            return dict(out)
        return {**out, **{name: self.normalizer.apply(out[name]) for name in names}}

    def _output(self, batch: int, length: int = 0) -> tuple[Sample, Sample]:
        """(arrays to fill, the first row of each)"""
        key = (batch, length)
        if key in self._outputs:
            return self._outputs[key]
        if len(self._outputs) >= 4:  # sizes that keep changing are not worth remembering
            self._outputs.clear()
        rows = length or 1
        space = self.spaces.observation
        observations, shape = np.zeros((rows + bool(length), batch, *(space.shape or ())), space.dtype), (rows, batch)
        out: Sample = {"obs": observations, "reward": np.zeros(shape, np.float32), "index": np.zeros(batch, np.int64)}
        for name in ("action", *self.extras):
            out[name] = np.zeros((*shape, *self.columns[name].shape), self.columns[name].dtype)
        out["terminated"] = np.zeros(shape, bool)
        out["first"] = np.zeros(observations.shape[:2], bool)
        if length:
            out |= {
                "mask": np.zeros(shape, bool),
                "truncated": np.zeros(shape, bool),
                "weight": np.ones(batch, np.float32),
            }
        else:
            out |= {"next_obs": np.zeros_like(observations), "discount": np.zeros(shape, np.float32)}
            out["weight"] = np.ones(shape, np.float32)
        self._outputs[key] = out, {name: array[0] for name, array in out.items() if name != "index"}
        return self._outputs[key]


def tensors(sample: Sample, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The same as tensors; on the CPU they share memory with the arrays."""
    import torch

    def tensor(leaf: Any) -> torch.Tensor:
        return (torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf).to(device)

    return {name: tree_map(tensor, tree) for name, tree in sample.items()}
