"""Steps that another run has saved, and this run's own after them; the other run's files stay as they are."""

from __future__ import annotations

from typing import Any

from ludus.data.buffers.sampling import Buffer
from ludus.data.buffers.saving import INDEX
from ludus.data.buffers.segments import SegmentFile, columns_of
from ludus.data.buffers.store import BufferConfig
from ludus.data.buffers.stored import StoredConfig, find_folder, read_index, stored_spaces
from ludus.errors import ConfigError
from ludus.registry import BUFFERS
from ludus.types import Spaces, State


class AppendConfig(StoredConfig, BufferConfig):
    """A store that begins with the steps of another run; `size` and `frames` have to be those of the other one."""


@BUFFERS.register("append")
class AppendBuffer(Buffer):
    """Copies the steps of another run when it is first used, and draws uniformly from them and from new ones."""

    Config = AppendConfig

    def __init__(self, cfg: AppendConfig, *arguments: Any, **details: Any) -> None:
        super().__init__(cfg, *arguments, **details)
        self.source, self._begun = cfg, False

    @staticmethod
    def spaces_of(cfg: AppendConfig, where: str) -> Spaces:
        """The spaces of the other run's steps; no environment is made."""
        return stored_spaces(cfg, where)

    @property
    def storage(self) -> SegmentFile:
        """The steps; those of the other run are read when they are first needed, and never by a resumed run."""
        if self._storage is None and not self._begun:
            self._begun = True
            self._begin()
        return super().storage

    def _begin(self) -> None:
        where = f"buffers.{self.name}"
        folder = find_folder(self.source, f"{where}.path")
        index = read_index(folder / INDEX)
        self._check(where, index)
        self._read(index, folder)

    def _check(self, where: str, index: State) -> None:
        """Refuse steps that cannot stand beside those of this run."""
        contents, frames = index["contents"], int(index["frames"])
        if int(index["num_envs"]) != self.num_envs:
            problem = f"holds steps of {index['num_envs']} environments, this run has {self.num_envs}"
            raise ConfigError(f"{where}.path", problem, f"use environment.num_envs={index['num_envs']}")
        if frames != self.observations.frames:
            problem = f"the steps there have frames: {frames}"
            raise ConfigError(f"{where}.frames", problem, f"use {frames}")
        if columns_of(contents) != self.columns:
            problem = "the steps there have other columns than this run's"
            raise ConfigError(f"{where}.path", problem, "use the same environment and algorithm")
        rows = int(contents["rows"]) - self._lead
        if rows != self.rows:
            problem = f"the buffer there holds {rows * self.num_envs:,} steps, this one {self.size:,}"
            raise ConfigError(f"{where}.size", problem, f"use {rows * self.num_envs}")

    def __len__(self) -> int:
        return super().__len__() if self.storage else 0  # they are read first

    @property
    def added(self) -> int:
        """Steps that were ever added, by both runs."""
        return super().added if self.storage else 0

    def start_over(self) -> None:
        """Forget every step, those of the other run too."""
        self._begun = True
        super().start_over()
