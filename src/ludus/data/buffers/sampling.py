"""How every buffer draws stored steps: as transitions with n-step returns, or as sequences.

Reading order: sample -> sample_sequences. Shapes: N samples, L length of sequences. If observations and rewards are
normalised, the statistics at the time of the draw are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ludus.data.buffers.saving import SavedSteps
from ludus.data.buffers.store import FINAL, REAL, STATE, TERMINATED
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.errors import ConfigError
from ludus.registry import BUFFERS
from ludus.types import Array, Tree, tree_fill, tree_index, tree_leaves, tree_map, zeros

if TYPE_CHECKING:
    import torch

Sample = dict[str, Tree]
"""Arrays that the next sample of the same shape overwrites."""
ROUNDS = 64
"""Rounds of rejection sampling before all slots that fit are listed instead."""


@BUFFERS.register("uniform")
class Buffer(SavedSteps):
    """Keeps the newest steps and draws them uniformly."""

    fills_up: ClassVar[bool] = False
    """Whether sequences that end early are filled up with rows that never were."""

    origin: str = ""
    """What its steps are and where they come from, if not from this run."""

    @property
    def has_priorities(self) -> bool:
        """Whether `update_priorities` does something: computing errors for it takes time."""
        return type(self).update_priorities is not Buffer.update_priorities

    @property
    def held_out(self) -> Buffer | None:
        """Steps that are only validated on; only data sets keep some apart."""
        return None

    def __init__(
        self,
        *arguments: Any,
        normalizer: ObservationNormalizer | None = None,
        reward_normalizer: RewardNormalizer | None = None,
        **details: Any,
    ) -> None:
        super().__init__(*arguments, **details)
        self.normalizer, self.reward_normalizer = normalizer, reward_normalizer
        self._outputs: dict[Any, tuple[Sample, Sample]] = {}
        self.wrapped: dict[int, torch.Tensor] = {}
        """Tensors over the arrays that every sample fills, by the identity of the array."""

    # ---- sample ------------------------------------------------------------------------------------------------------

    def sample(self, batch: int, *, n_step: int = 1, gamma: float = 0.99) -> Sample:
        """[1, N] steps with their n-step returns; a target is `reward + discount * value(next_obs)`."""
        b, a, weight = self._draw(batch, 1, REAL)
        (out, row), data = self._output(batch), self.storage.data
        slots = self.storage.slots(b, a + np.arange(n_step + 1)[:, None])
        here = slots[0]
        taken, row["reward"][:], terminated = self._returns(slots, n_step, gamma)
        row["terminated"][:], row["weight"][:] = terminated, weight
        np.multiply(~terminated, gamma**taken, out=row["discount"], casting="same_kind")
        out["index"][:] = self.storage.numbers(b, a) if self.storage.mapped else here
        ages = data["age"].take(here, mode="clip")
        np.equal(ages, 0, out=row["first"])
        for name in ("action", *self.extras):
            data[name].take(here, 0, row[name], "clip")
        following = slots[1] if n_step == 1 else slots[taken, np.arange(batch)]
        self.observations.read(self.storage, b, a, ages, row["obs"], here)
        self.observations.read(self.storage, b, a, ages, row["next_obs"], following, ahead=taken)
        return self._normalized(out, "obs", "next_obs")

    def _returns(self, slots: Array, n_step: int, gamma: float) -> tuple[Any, Array, Array]:
        """(steps summed, at most `n_step`; their discounted rewards; whether the last one terminated the episode)."""
        rewards = self._rewards(self.storage.data["reward"].take(slots[:-1], mode="clip"))
        flags = self.storage.data["flags"].take(slots[:-1], mode="clip")
        taken: Any = 1
        alive, reward, ended = flags[0], rewards[0], flags[0]
        for k in range(1, n_step):  # stops before a slot without a step
            alive = alive & flags[k] & REAL
            reward = reward + alive * rewards[k] * np.float32(gamma**k)
            ended = ended | (flags[k] * alive)
            taken = np.add(taken, alive, dtype=np.int64)
        return taken, reward, (ended & TERMINATED) > 0

    def _draw(self, count: int, length: int, wanted: int) -> tuple[Array, Array, Any]:
        """Slots with the flags `wanted` and at least `length` slots after them, and their weights."""
        oldest = self._oldest
        width = np.maximum(self.storage.end - oldest - length + 1, 0)
        bounds = width.cumsum()
        if not bounds[-1]:
            raise self._too_early(length)
        found: list[tuple[Array, Array]] = []
        missing = count
        for _ in range(ROUNDS):
            b, a = self._draw_slots(missing + missing // 8 + 8, oldest, bounds, width)  # some will be rejected
            fits = self._has(b, a, wanted).nonzero()[0][:missing]
            found.append((b[fits], a[fits]))
            missing -= len(fits)
            if not missing:
                b, a = found[0] if len(found) == 1 else (np.concatenate(part) for part in zip(*found, strict=True))
                return b, a, 1.0
        b, a = self._candidates(length, wanted)
        chosen = self.rng.integers(len(b), size=count)
        return b[chosen], a[chosen], 1.0

    def _draw_slots(self, count: int, oldest: Array, bounds: Array, width: Array) -> tuple[Array, Array]:
        position = (self.rng.random(count) * bounds[-1]).astype(np.int64)
        if self.num_envs == 1:
            return np.zeros(count, np.int64), oldest[0] + position
        b = np.searchsorted(bounds, position, "right")
        return b, oldest[b] + position - (bounds - width)[b]

    def _candidates(self, length: int, wanted: int) -> tuple[Array, Array]:
        """All slots that fit, when too few do for rejection sampling."""
        b, a = self._between(self._oldest, self.storage.end - length + 1)
        fits = self._has(b, a, wanted)
        if not fits.any():
            raise self._too_early(length)
        return b[fits], a[fits]

    def _between(self, first: Array, last: Array) -> tuple[Array, Array]:
        """All slots of each environment from `first` to before `last`."""
        width = np.maximum(last - first, 0)
        b = np.repeat(np.arange(self.num_envs), width)
        return b, np.arange(len(b)) - np.repeat(np.cumsum(width) - width - first, width)

    def _has(self, b: Array, a: Array, wanted: int) -> Array:
        return (self.storage.take("flags", b, a) & wanted) == wanted

    def _too_early(self, length: int) -> ConfigError:
        problem = f"no stretch of {length} steps is stored yet"
        return ConfigError(f"buffers.{self.name}", problem, "collect more steps before learning from it")

    def at(self, position: int, total: int) -> None:
        """Set the buffer's own schedules, if it has any."""

    def update_priorities(self, index: Array, priority: Array) -> None:
        """Does nothing: this buffer has no priorities."""

    # ---- sequences ---------------------------------------------------------------------------------------------------

    def sample_sequences(self, batch: int, length: int, *, state: bool = False) -> Sample:
        """[L, N] steps, one environment each; `mask` is False in slots without a step, `first` True at resets."""
        b, a, weight = self._draw(batch, length, REAL | (STATE if state else 0))
        return self._sequences(b, a, np.arange(length + 1)[:, None] + a, weight, state=state)

    def _sequences(self, b: Array, a: Array, number: Array, weight: Any, *, state: bool) -> Sample:
        assert not state or self._memory is not None, "store_memory was not called"
        shape = number.shape
        out, _ = self._output(len(b), len(number) - 1)
        out["index"][:], out["weight"][:] = self.storage.numbers(b, a), weight
        flags, ages = self.storage.take("flags", b, number), self.storage.take("age", b, number)
        out["mask"][...] = real = (flags[:-1] & REAL) > 0
        out["terminated"][...] = terminated = (flags[:-1] & TERMINATED) > 0
        out["truncated"][...] = real & ~terminated & ((flags[1:] & FINAL) > 0)
        out["first"][...] = ages == 0
        out["reward"][...] = self._rewards(self.storage.take("reward", b, number[:-1]))
        for name in ("action", *self.extras):
            self.storage.take(name, b, number[:-1], out[name])
        wide, number = np.broadcast_to(b, shape).reshape(-1), number.reshape(-1)
        flat = tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), out["obs"])
        self.observations.read(self.storage, wide, number, ages.reshape(-1), flat, self.storage.slots(wide, number))
        if state:
            leaves = [self.storage.take(f"state{i}", b, a) for i in range(len(tree_leaves(self._memory)))]
            out["state"] = tree_fill(self._memory, leaves)
        return self._normalized(out, "obs")

    def stretches(self, length: int) -> tuple[Array, Array]:
        """Slots (b, a) that stretches of `length` steps begin in which cover what is stored; the last ones overlap."""
        first, last = self._oldest, self.storage.end - length
        begins = [np.unique([*range(first[b], last[b] + 1, length), last[b]]) for b in np.flatnonzero(last >= first)]
        b = np.repeat(np.flatnonzero(last >= first), [len(row) for row in begins])
        a = np.concatenate([np.zeros(0, np.int64), *begins])
        a = a + ~self._has(b, a, REAL)  # none begins in a final observation
        fits = (a <= last[b]) & self._has(b, a, REAL)
        return b[fits], a[fits]

    def sequences_from(self, b: Array, a: Array, length: int) -> Sample:
        """[L, N] steps as `sample_sequences` gives them, from given slots on."""
        return self._sequences(b, a, np.arange(length + 1)[:, None] + a, 1.0, state=False)

    def can_sample_sequences(self, batch: int, length: int, *, state: bool = False) -> bool:
        """Whether `batch` slots have `length` slots after them, and a sequence can begin in one of them."""
        if self._storage is None:
            return False
        oldest, done, piece = self._oldest, 0, 256
        width = np.maximum(self.storage.end - oldest - length + 1, 0)
        if width.sum() < batch:
            return False
        while done < width.max():  # from the newest on, in growing pieces
            b = np.flatnonzero(width > done)
            a = np.maximum((oldest + width)[b] - 1 - done - np.arange(piece)[:, None], oldest[b])
            if self._has(b, a, REAL | (STATE if state else 0)).any():
                return True
            done, piece = done + piece, 4 * piece
        return False

    def fits(self, length: int) -> bool:
        """Whether this many slots in a row will ever be stored."""
        return length <= self.rows

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _rewards(self, reward: Array) -> Array:
        return reward if self.reward_normalizer is None else self.reward_normalizer.scaled(reward)

    def _normalized(self, out: Sample, *names: str) -> Sample:
        if self.normalizer is None:
            return dict(out)
        return {**out, **{name: self.normalizer.apply(out[name]) for name in names}}

    def _output(self, batch: int, length: int = 0) -> tuple[Sample, Sample]:
        """(arrays to fill, the first row of each)"""
        import torch

        key = (batch, length)
        if key in self._outputs:
            return self._outputs[key]
        if len(self._outputs) >= 4:  # sizes that keep changing are not worth caching
            self._outputs.clear()
            self.wrapped.clear()
        shape, seen = (length or 1, batch), (length + 1 if length else 1, batch)
        out: Sample = {"obs": zeros(self.spaces.observation, *seen), "index": np.zeros(batch, np.int64)}
        for name in ("reward", "action", *self.extras):
            out[name] = np.zeros((*shape, *self.columns[name].shape), self.columns[name].dtype)
        out |= {"terminated": np.zeros(shape, bool), "first": np.zeros(seen, bool)}
        if length:
            out |= {"mask": np.zeros(shape, bool), "truncated": np.zeros(shape, bool)}
        else:
            out |= {"next_obs": tree_map(np.zeros_like, out["obs"]), "discount": np.zeros(shape, np.float32)}
        out["weight"] = np.ones(batch if length else shape, np.float32)
        self._outputs[key] = out, tree_index({name: tree for name, tree in out.items() if name != "index"}, 0)
        self.wrapped |= {id(leaf): torch.from_numpy(leaf) for leaf in tree_leaves(out)}
        return self._outputs[key]


def tensors(
    sample: Sample, device: torch.device | str = "cpu", wrapped: Mapping[int, torch.Tensor] = MappingProxyType({})
) -> dict[str, Any]:
    """The same as tensors; on the CPU they share memory with the arrays. `wrapped` has those that exist already."""
    import torch

    here = torch.device(device).type == "cpu"  # `to` would return the tensor itself, and takes its time for it

    def tensor(leaf: Any) -> torch.Tensor:
        found = wrapped.get(id(leaf))
        if found is None:
            found = torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
        return found if here else found.to(device)

    return {name: tree_map(tensor, tree) for name, tree in sample.items()}
