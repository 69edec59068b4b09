"""How a buffer is saved: its steps in files of their own, which only grow, and a small state in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ludus import files
from ludus.data.buffers.frames import Padding
from ludus.data.buffers.segments import SegmentFile, columns_of
from ludus.data.buffers.store import StepStore
from ludus.errors import DataError, ResourceError
from ludus.types import Array, State, tree_leaves, tree_map

INDEX = "index.json"
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, StopIteration, RecursionError)
"""Errors that an index raises which does not hold what is written into it here."""


class SavedSteps(StepStore):
    """A store of steps with `save` and `load`."""

    def attach(self, folder: Path) -> None:
        """Save the steps there, or keep them there if they are on disk; before the first step."""
        self._folder = folder
        if self._storage is not None:
            self._storage.folder = folder

    def save(self, tag: str, keep: tuple[str, ...]) -> State:
        """State for the checkpoint `tag`; new steps go to the buffer's own files."""
        if self._folder is None:
            contents = {"data": self.storage.data, "end": self.storage.end, "rows": self.storage.rows}
        else:
            contents = self.storage.save(tag, keep)
            self._write_index(contents)
        after = {"obs": tree_map(np.copy, self._next_obs), "age": self._next_age.copy()}
        after |= {"step": self._expected, "steps": self._steps.copy()}
        padding, rng = list(self.observations.padding), dict(self.rng.bit_generator.state)
        return {"contents": contents, "next": after, "padding": padding, "rng": rng}

    def _write_index(self, contents: State) -> None:
        """Write a file beside the steps with which they can be read without the checkpoint."""
        assert self._folder is not None
        obs = [leaf.tobytes().hex() for leaf in tree_leaves(self._next_obs)]
        after = {"obs": obs, "age": self._next_age.tolist(), "steps": self._steps.tolist()}
        index = {"format": "ludus-buffer", "version": 2, "num_envs": self.num_envs, "frames": self.observations.frames}
        index |= {"contents": contents, "next": after, "padding": self.observations.padding}
        index |= {"observation": describe_space(self.spaces.observation), "action": describe_space(self.spaces.action)}
        index |= {"scaled_actions": self.scaled_actions}
        path = self._folder / INDEX
        try:
            files.write_json(path, index)
        except OSError as error:
            raise ResourceError(str(path), f"cannot be written: {error.strerror}", "free space") from None

    def _read(self, index: State, source: Path) -> None:
        """Take over the steps in a folder by the index beside them."""
        try:
            texts = iter(index["next"]["obs"])
            obs = tree_map(
                lambda leaf: np.frombuffer(bytes.fromhex(next(texts)), leaf.dtype).reshape(leaf.shape), self._next_obs
            )
            self._restore(index["contents"], {**index["next"], "obs": obs}, index["padding"], source)
        except UNREADABLE as error:
            self._storage = None
            raise unreadable(source / INDEX, error) from None

    def load(self, state: State, source: Path | None) -> None:
        """Go on exactly where the state was taken; `source` is the folder with the steps it refers to."""
        self._check_fits(state["contents"])
        self._restore(state["contents"], state["next"], state["padding"], source)
        self._expected = int(state["next"]["step"])
        self.rng.bit_generator.state = state["rng"]

    def _restore(self, contents: State, after: State, padding: list[Padding | None], source: Path | None) -> None:
        rows, mapped = int(contents["rows"]), self.cfg.storage == "disk"
        self._storage = SegmentFile(self.columns, self.num_envs, rows, mapped, self._folder)
        if not mapped or source != self._folder:
            self._storage.allocate()
        if "data" in contents:
            self._storage.end = np.array(contents["end"])
            for name, column in contents["data"].items():
                self._storage.data[name][...] = column
        else:
            assert source is not None
            self._storage.load(contents, source)
        tree_map(np.copyto, self._next_obs, after["obs"])
        self._next_age, self._steps = np.array(after["age"]), np.array(after["steps"])
        self.observations.padding = padding
        self._show_next()

    def _check_fits(self, contents: State) -> None:
        if "columns" in contents and columns_of(contents) != self.columns:
            problem = "the saved steps have other columns than this config asks for"
            raise DataError(f"buffers.{self.name}", problem, "restore config.yaml")
        wanted = self.rows + self._lead
        if self.cfg.size != "auto" and int(contents["rows"]) != wanted:
            problem = f"{contents['rows']} steps per environment were saved, the config asks for {wanted}"
            raise DataError(f"buffers.{self.name}.size", problem, "restore config.yaml")

    def start_over(self) -> None:
        """Forget every step."""
        self._storage, self._expected = None, -1
        self._next_age, self._steps = np.zeros((2, self.num_envs), np.int64)


def unreadable(path: Path, error: Exception) -> DataError:
    """The refusal of an index."""
    return DataError(str(path), f"cannot be read: {' '.join(str(error).split())[:200]}", "name another buffer")


# ---- spaces as plain data, beside the steps: learning from them needs no environment ---------------------------------

_PLAIN: dict[str, tuple[type[gym.Space], tuple[str, ...]]] = {
    "discrete": (gym.spaces.Discrete, ("n", "start")),
    "multi_discrete": (gym.spaces.MultiDiscrete, ("nvec", "start")),
    "multi_binary": (gym.spaces.MultiBinary, ("n",)),
}
"""Spaces that a few numbers describe: the arguments of their constructors."""


def describe_space(space: gym.Space) -> dict[str, Any]:
    """A space as JSON data."""
    for kind, (cls, names) in _PLAIN.items():
        if isinstance(space, cls):
            return {"type": kind, **{name: np.array(getattr(space, name)).tolist() for name in names}}
    if isinstance(space, gym.spaces.Box):
        bounds = {"low": _bounds(space.low), "high": _bounds(space.high)}
        return {"type": "box", "shape": list(space.shape), "dtype": space.dtype.name, **bounds}
    if isinstance(space, gym.spaces.Dict):
        return {"type": "dict", "parts": {key: describe_space(part) for key, part in space.spaces.items()}}
    if isinstance(space, gym.spaces.Tuple):
        return {"type": "tuple", "parts": [describe_space(part) for part in space.spaces]}
    raise TypeError(f"steps in a space such as {space} are never stored")


def read_space(data: Mapping[str, Any]) -> gym.Space:
    """The inverse of `describe_space`; ValueError, KeyError or TypeError for anything else."""
    kind = data["type"]
    if kind in _PLAIN:
        cls, names = _PLAIN[kind]
        return cls(**{name: data[name] for name in names})
    if kind == "box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        low, high = (_array(data[end], shape, dtype) for end in ("low", "high"))
        return gym.spaces.Box(low, high, shape, dtype.type)
    if kind == "dict":
        return gym.spaces.Dict({key: read_space(part) for key, part in data["parts"].items()})
    if kind == "tuple":
        return gym.spaces.Tuple([read_space(part) for part in data["parts"]])
    raise ValueError(f"unknown space '{kind}'")


def _bounds(values: Array) -> Any:
    """One number where all are equal; as text, because JSON has no infinity and a float32 has to come back exactly."""
    texts = [repr(value) for value in values.reshape(-1).tolist()]
    return texts[0] if len(set(texts)) == 1 else texts


def _array(texts: str | list[str], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    number = float if np.issubdtype(dtype, np.floating) else int
    if isinstance(texts, str):
        return np.full(shape, number(texts), dtype)
    return np.array([number(text) for text in texts], dtype).reshape(shape)
