"""How a buffer is saved: its steps in files of their own, which only grow, and a small state in the checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ludus import files
from ludus.data.buffers.segments import SegmentFile, columns_of
from ludus.data.buffers.spaces import describe_space
from ludus.data.buffers.store import StepStore
from ludus.errors import DataError, ResourceError
from ludus.types import State, tree_leaves, tree_map

INDEX = "index.json"


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
        return {
            "contents": contents,
            "next": {
                "obs": tree_map(np.copy, self._next_obs),
                "age": self._next_age.copy(),
                "step": self._expected,
                "steps": self._steps.copy(),
            },
            "padding": list(self.observations.padding),
            "rng": dict(self.rng.bit_generator.state),
        }

    def _write_index(self, contents: State) -> None:
        """Write a file beside the steps with which they can be read without the checkpoint."""
        assert self._folder is not None
        obs = [leaf.tobytes().hex() for leaf in tree_leaves(self._next_obs)]
        after = {"obs": obs, "age": self._next_age.tolist(), "steps": self._steps.tolist()}
        index = {"format": "ludus-buffer", "version": 2, "num_envs": self.num_envs, "frames": self.observations.frames}
        index |= {"contents": contents, "next": after, "padding": self.observations.padding}
        index |= {"observation": describe_space(self.spaces.observation), "action": describe_space(self.spaces.action)}
        try:
            files.write_json(self._folder / INDEX, index)
        except OSError as error:
            where = str(self._folder / INDEX)
            raise ResourceError(where, f"cannot be written: {error.strerror}", "free space") from None

    def load(self, state: State, source: Path | None) -> None:
        """Go on exactly where the state was taken; `source` is the folder with the steps it refers to."""
        contents = state["contents"]
        self._check_fits(contents)
        self._storage = SegmentFile(self.columns, self.num_envs, int(contents["rows"]), self.cfg.storage)
        self._storage.folder = self._folder
        if self.cfg.storage == "ram" or source != self._folder:
            self._storage.allocate()
        if "data" in contents:
            self._storage.end = np.array(contents["end"])
            for name, column in contents["data"].items():
                self._storage.data[name][...] = column
        else:
            assert source is not None
            self._storage.load(contents, source)
        after = state["next"]
        tree_map(np.copyto, self._next_obs, after["obs"])
        self._next_age, self._steps = np.array(after["age"]), np.array(after["steps"])
        self._expected = int(after["step"])
        self.observations.padding = state["padding"]
        self.rng.bit_generator.state = state["rng"]
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
