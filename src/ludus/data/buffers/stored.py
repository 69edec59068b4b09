"""Steps that another run has saved, for offline learning; nothing is added to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from pydantic import Field, field_validator

from ludus import files
from ludus.config.model import Model
from ludus.data.buffers.sampling import Buffer
from ludus.data.buffers.saving import INDEX, UNREADABLE, read_space, unreadable
from ludus.data.buffers.segments import SegmentFile, columns_of
from ludus.data.buffers.store import BufferConfig
from ludus.data.rollout import Rollout
from ludus.errors import ConfigError, DataError
from ludus.registry import BUFFERS
from ludus.types import Array, Spaces, State

LARGEST_INDEX, LARGEST_NUMBER = 1 << 28, 1 << 40


class StoredConfig(Model):
    """The saved buffer of another run."""

    path: str = Field(min_length=1)
    """Folder of the run (`runs/<id>`), or of the buffer itself."""
    buffer: str = "replay"
    """Name of the buffer in that run."""

    @field_validator("path")
    @classmethod
    def without_link(cls, value: str) -> str:
        """A link such as `runs/@last` is replaced by the run it points to: the next run would move it."""
        path = Path(value)
        return str(path.parent / path.readlink()) if path.is_symlink() else value


@BUFFERS.register("stored")
class OfflineBuffer(Buffer):
    """Reads all steps once, checks their sha256, and draws uniformly."""

    Config = StoredConfig  # type: ignore[assignment]
    own = False

    def __init__(self, cfg: StoredConfig, spaces: Spaces, num_envs: int, *, name: str, **details: Any) -> None:
        self.where, self.folder = f"buffers.{name}.path", find_folder(cfg, f"buffers.{name}.path")
        index = read_index(self.folder / INDEX)
        rows = int(index["contents"]["rows"]) - int(index["frames"]) + 1
        plain = BufferConfig(size=max(1, rows * index["num_envs"]), frames=index["frames"])
        super().__init__(plain, spaces, int(index["num_envs"]), name=name, **details)
        self._saved, self._index = columns_of(index["contents"]), index
        for column, wanted in self.columns.items():
            if self._saved.get(column) != wanted:
                problem = f"{column} there is {self._saved.get(column)}, this run has {wanted}"
                raise ConfigError(self.where, problem, "use steps of an environment with the same spaces")

    @staticmethod
    def spaces_of(cfg: StoredConfig, where: str) -> Spaces:
        """The spaces of its steps; no environment is made."""
        return stored_spaces(cfg, where)

    @property
    def storage(self) -> SegmentFile:
        """The steps, read when they are first needed."""
        if self._storage is None:
            missing = [name for name in self.columns if name not in self._saved]
            if missing:
                raise ConfigError(self.where, f"{missing[0]} was not stored there", "use steps of the same algorithm")
            self._check_actions()
            self.columns = self._saved
            self._read(self._index, self.folder)
        assert self._storage is not None
        return self._storage

    def _check_actions(self) -> None:
        """Refuse actions of another scale: they would be read as others than were taken."""
        known, box = self._index["scaled_actions"], isinstance(self.spaces.action, gym.spaces.Box)
        if box and known not in (None, self.scaled_actions):
            ranges = ("in the bounds of the environment", "scaled to -1 to 1")
            problem = f"actions there are {ranges[known]}, this algorithm learns from actions {ranges[not known]}"
            raise ConfigError(self.where, problem, "use steps that such an algorithm stored")

    def __len__(self) -> int:
        return super().__len__() if self.storage else 0  # they are read first

    @property
    def added(self) -> int:
        """All stored steps."""
        return len(self)

    def add(self, rollout: Rollout, **columns: Array) -> None:
        raise ConfigError(f"buffers.{self.name}", "holds the steps of another run and takes no others",
                          "collect into another buffer: training.phases[].buffer")  # fmt: skip

    def attach(self, folder: Path) -> None:
        """Does nothing: the files stay in the folder of the other run."""

    def save(self, tag: str, keep: tuple[str, ...]) -> State:
        """Which steps they are; the steps themselves are not saved again."""
        return {"segments": self._index["contents"]["segments"], "rng": dict(self.rng.bit_generator.state)}

    def load(self, state: State, source: Path | None) -> None:
        if state["segments"] != self._index["contents"]["segments"]:
            raise DataError(str(self.folder), "holds other steps than when this run was saved", "restore them")
        self.rng.bit_generator.state = state["rng"]


def stored_spaces(cfg: StoredConfig, where: str) -> Spaces:
    """The spaces of the stored steps, read from their index; no environment is made."""
    path = find_folder(cfg, where) / INDEX
    index = read_index(path)
    if index["observation"] is None:
        raise ConfigError(where, f"{path} does not say which spaces its steps have", "collect them again")
    try:
        return Spaces(read_space(index["observation"]), read_space(index["action"]))
    except (*UNREADABLE, AssertionError) as error:  # gymnasium asserts
        raise DataError(str(path), f"its spaces cannot be read: {error}", "name another buffer") from None


def find_folder(cfg: StoredConfig, where: str) -> Path:
    """The folder of a saved buffer."""
    path = Path(cfg.path)
    places = [path, path / "buffers" / cfg.buffer]
    found = next((place for place in places if (place / INDEX).is_file()), None)
    if found is None:
        problem = f"no buffer '{cfg.buffer}' is saved in {path}"
        raise ConfigError(where, problem, "name a run of an off-policy algorithm")
    return found


def read_index(path: Path) -> State:
    """What lies beside the steps of a saved buffer and describes them."""
    try:
        index = json.loads(files.read(path, LARGEST_INDEX))
        if index["format"] != "ludus-buffer" or index["version"] != 2:
            raise ValueError(f"version {index['version']} of {index['format']}")
        for name, (_, kind) in index["contents"]["columns"].items():
            if np.dtype(kind).kind not in "biuf":  # bytes of a file that are read as objects are addresses
                raise ValueError(f"column {name} holds no numbers but {kind}")
            if "/" in name:  # its file would lie elsewhere
                raise ValueError(f"column {name} names no file beside it")
        contents = index["contents"]
        for name, number in (*((key, index[key]) for key in ("num_envs", "frames")), ("rows", contents["rows"])):
            if type(number) is not int or not 0 < number < LARGEST_NUMBER:
                raise ValueError(f"{name} is {str(number)[:40]}")
        for row in (contents["end"], index["next"]["age"], index["next"]["steps"]):
            if len(row) != index["num_envs"] or any(type(n) is not int or not 0 <= n < LARGEST_NUMBER for n in row):
                raise ValueError(f"expected numbers of {index['num_envs']} environments, found {str(row)[:40]}")
        columns_of(contents)
        spaces = {key: index.get(key) for key in ("observation", "action", "scaled_actions")}
        return {key: index[key] for key in ("num_envs", "frames", "contents", "next", "padding")} | spaces
    except (OSError, *UNREADABLE) as error:
        raise unreadable(path, error) from None
