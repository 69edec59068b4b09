"""Data sets in Minari's format on disk, read without Minari: nothing in their files is run, imported or followed.

A data set is a folder with `data/metadata.json` and `data/main_data.hdf5`, which has a group for every episode. What is
wrong with one is a DataError that names the file and the episode.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium as gym
import numpy as np

from ludus import files
from ludus.data.datasets.statistics import Episode
from ludus.errors import ConfigError, DataError, MissingExtra
from ludus.spaces import action_conversion, observation_conversion
from ludus.types import Array, Spaces, Tree

if TYPE_CHECKING:
    import h5py

METADATA, CONTENT = "metadata.json", "main_data.hdf5"
LARGEST_METADATA = 1 << 26
ID = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")
"""Ids of data sets: `namespace/name-v0`."""
MOST_NUMBERS = 1 << 24
"""Of one observation or action: an image of 2,000 x 2,000 has fewer."""
BROKEN = "restore it, or record it again"
T = TypeVar("T")


class MinariData:
    """An open data set: its spaces as policies see them, and its episodes one by one."""

    def __init__(self, path: str, where: str) -> None:
        self.where, self.folder = where, find_folder(path, where)
        self.file = self.folder / CONTENT
        self.metadata = read_metadata(self.folder / METADATA)
        try:
            self.observation, self.action = (
                read_space(self.metadata[f"{name}_space"]) for name in ("observation", "action")
            )
            self.count, self.id = int(self.metadata["total_episodes"]), str(self.metadata["dataset_id"])
        except (
            LookupError,
            ValueError,
            TypeError,
            OverflowError,
            AssertionError,
            RecursionError,
        ) as error:
            raise self._bad_metadata(f"cannot be understood: {type(error).__name__} {error}") from None
        self._check_metadata()
        try:
            self._observe = observation_conversion(self.observation, str(self.folder))
            taken = action_conversion(self.action, str(self.folder)).space
        except ConfigError as error:
            raise ConfigError(where, error.problem, "name a data set of other spaces") from None
        self.spaces = Spaces(self._observe.space, taken)

    def _bad_metadata(self, problem: str) -> DataError:
        return DataError(str(self.folder / METADATA), problem, BROKEN)

    def _check_metadata(self) -> None:
        if not ID.fullmatch(self.id):
            raise self._bad_metadata(f"dataset_id {self.id[:80]!r} is not of the form 'namespace/name-v0'")
        if (kind := self.metadata.get("data_format")) != "hdf5":
            problem = f"its data_format is {kind!r}, and only hdf5 can be read"
            raise DataError(str(self.folder / METADATA), problem, "write it with data_format='hdf5'")
        if self.count < 1:
            raise self._bad_metadata("it has no episodes")

    @cached_property
    def sha256(self) -> str:
        """One sum over both files: it changes whenever something in the data set does."""
        try:
            sums = [files.sha256(self.folder / name) for name in (METADATA, CONTENT)]
        except OSError as error:
            raise DataError(str(error.filename), files.reason(error), BROKEN) from None
        return hashlib.sha256("".join(sums).encode()).hexdigest()

    def episodes(self, count: int | None = None) -> Iterator[Episode]:
        """The first `count` episodes, or all; one at a time is in memory."""
        with self._opened() as file:
            for i in range(self.count if count is None else count):
                yield self._guarded(i, partial(self._episode, file, i))

    def _opened(self) -> h5py.File:
        try:
            import h5py
        except ImportError:
            raise MissingExtra(f"data set {self.folder}", "offline") from None
        try:
            files.open_regular(self.file).close()  # not a pipe, which would never end
            return h5py.File(self.file, "r")
        except OSError as error:
            raise DataError(str(self.file), f"cannot be read: {_first_line(error)}", BROKEN) from None

    def _guarded(self, i: int, read: Callable[[], T]) -> T:
        """Whatever is wrong with an episode, on one line that names it."""
        try:
            return read()
        except MemoryError:  # rows that were never written take no room in a file
            raise DataError(str(self.file), f"episode {i}: is larger than memory", BROKEN) from None
        except (
            OSError,
            LookupError,
            ValueError,
            TypeError,
            OverflowError,
            RuntimeError,
        ) as error:
            raise DataError(str(self.file), f"episode {i}: {_first_line(error)}", BROKEN) from None

    def _episode(self, file: h5py.File, i: int) -> Episode:
        group = _inside(file, f"episode_{i}", "group")
        steps = (_inside(group, "rewards").shape or (0,))[0]
        if not steps:
            raise ValueError("has no steps")
        reward = _numbers(_inside(group, "rewards"), (steps,), np.dtype(np.float32), "rewards")
        flags = ("terminations", "truncations")
        terminated, truncated = (_numbers(_inside(group, name), (steps,), np.dtype(bool), name) for name in flags)
        if (terminated | truncated)[:-1].any():
            raise ValueError("ends before its last step")
        seen = _read(group, "observations", self.observation, steps + 1, "observations")
        taken = _read(group, "actions", self.action, steps, "actions")
        seed = None if (given := group.attrs.get("seed")) is None else int(given)
        return Episode(self._observe(seen), self._as_policy(taken), reward, bool(terminated[-1]), seed)

    def _as_policy(self, taken: Array) -> Array:
        """Actions counted from 0 and one-dimensional, as policies choose them."""
        if isinstance(self.action, gym.spaces.Box):
            return taken.reshape(len(taken), *(self.spaces.action.shape or ())).astype(np.float32, copy=False)
        return np.asarray(observation_conversion(self.action, "")(taken))


def find_folder(path: str, where: str) -> Path:
    """The folder with the two files of a data set."""
    if not path:
        raise ConfigError(where, "names no data set", f"write {where}=DIR, or record one: ludus record RUN --out DIR")
    given = Path(path).expanduser()
    found = next((place for place in (given / "data", given) if (place / METADATA).is_file()), None)
    if found is None:
        raise ConfigError(where, f"there is no data set in {given}", "name a folder with data/metadata.json")
    return found


def read_metadata(path: Path) -> dict[str, Any]:
    """The JSON beside the episodes."""
    try:
        found = json.loads(files.read(path, LARGEST_METADATA))
    except OSError as error:
        raise DataError(str(path), files.reason(error), BROKEN) from None
    except (ValueError, RecursionError) as error:
        raise DataError(str(path), f"is no JSON: {error}", BROKEN) from None
    if not isinstance(found, dict):
        raise DataError(str(path), "is no mapping", BROKEN)
    return found


# ---- spaces as Minari writes them ------------------------------------------------------------------------------------


def read_space(text: str | Mapping[str, Any]) -> gym.Space:
    """A space from Minari's JSON; ValueError, KeyError, TypeError or OverflowError for anything else."""
    data = json.loads(text) if isinstance(text, str) else text
    found = _space(data)
    if math.prod(found.shape or ()) > MOST_NUMBERS:
        raise ValueError(f"a space of {math.prod(found.shape or ()):,} numbers")
    return found


def _space(data: Mapping[str, Any]) -> gym.Space:
    match data["type"]:
        case "Box":
            dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
            if dtype.kind not in "biuf":
                raise ValueError(f"a Box of {dtype}")
            low, high = (np.array(data[name], dtype).reshape(shape) for name in ("low", "high"))
            return gym.spaces.Box(low, high, shape, dtype.type)
        case "Discrete":
            return gym.spaces.Discrete(int(data["n"]), start=int(data["start"]))
        case "MultiDiscrete":
            start = data.get("start", np.zeros_like(data["nvec"]))
            return gym.spaces.MultiDiscrete(data["nvec"], dtype=np.dtype(data["dtype"]).type, start=start)
        case "MultiBinary":
            return gym.spaces.MultiBinary(data["n"])
        case "Dict":
            return gym.spaces.Dict({str(key): read_space(part) for key, part in data["subspaces"].items()})
        case "Tuple":
            return gym.spaces.Tuple([read_space(part) for part in data["subspaces"]])
    raise ValueError(f"a space of type {data['type']!r}")


# ---- HDF5 ------------------------------------------------------------------------------------------------------------


def _inside(group: h5py.Group, name: str, kind: str = "dataset") -> Any:
    """A member of a group that lies in the same file: links to other files or to elsewhere are refused."""
    import h5py

    link = group.get(name, getlink=True)
    if link is None:
        raise KeyError(f"{name} is missing")
    if not isinstance(link, h5py.HardLink):
        raise ValueError(f"{name} is a link")
    found = group[name]
    if not isinstance(found, h5py.Group if kind == "group" else h5py.Dataset):
        raise ValueError(f"{name} is no {kind}")
    if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        raise ValueError(f"{name} lies in another file")
    return found


def _read(group: h5py.Group, name: str, space: gym.Space, rows: int, label: str) -> Tree:
    """A column or a tree of them: parts of a Dict are groups by name, those of a Tuple `_index_0` and so on."""
    if isinstance(space, gym.spaces.Dict):
        inner = _inside(group, name, "group")
        return {key: _read(inner, key, part, rows, f"{label}.{key}") for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        inner = _inside(group, name, "group")
        return tuple(_read(inner, f"_index_{i}", part, rows, f"{label}.{i}") for i, part in enumerate(space.spaces))
    return _column(_inside(group, name), space, rows, label)


def _column(node: h5py.Dataset, space: gym.Space, rows: int, name: str) -> Array:
    """Rows of one space; pictures that Minari has packed as JPEG are unpacked."""
    shape, dtype = (rows, *(space.shape or ())), np.dtype(space.dtype)
    packed = dtype == np.uint8 and len(shape) in (3, 4) and node.shape[:1] == (rows,) and node.shape != shape
    if packed and len(node.shape) <= 2:
        values = np.stack([_picture(one, shape[1:], name) for one in node[()]])
    else:
        values = _numbers(node, shape, dtype, name)
    if isinstance(space, gym.spaces.Box):
        return values
    start, n = getattr(space, "start", 0), getattr(space, "nvec", None)
    most = n if n is not None else (2 if isinstance(space, gym.spaces.MultiBinary) else space.n)  # type: ignore[attr-defined]
    if ((values < start) | (values >= start + most)).any():
        raise ValueError(f"{name} has a value outside of {space}")
    return values


def _numbers(node: h5py.Dataset, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    if node.shape != shape:
        raise ValueError(f"{name} has shape {node.shape}, not {shape}")
    if node.dtype.kind not in "biuf" or not (dtype.kind == "b" or np.can_cast(node.dtype, dtype, "same_kind")):
        raise ValueError(f"{name} holds {node.dtype}, not {dtype}")
    with np.errstate(over="ignore"):  # what single precision cannot hold is not finite, which is said below
        values = node[()].astype(dtype, copy=False)
    if dtype.kind == "f" and not np.isfinite(values).all():
        step = int(np.argwhere(~np.isfinite(values))[0][0])
        raise ValueError(f"{name} is not finite at step {step}")
    return values


def _picture(packed: Array, shape: tuple[int, ...], name: str) -> Array:
    from PIL import Image

    try:
        found = np.asarray(Image.open(io.BytesIO(np.asarray(packed, np.uint8).tobytes()), formats=["JPEG"]), np.uint8)
    except Image.DecompressionBombError as error:
        raise ValueError(f"{name}: {error}") from None
    if found.shape != shape:
        raise ValueError(f"{name} holds pictures of {found.shape}, not {shape}")
    return found


def _first_line(error: Exception) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return (text.splitlines() or [type(error).__name__])[0][:300]
