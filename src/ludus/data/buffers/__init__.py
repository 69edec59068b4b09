"""The buffers of a run by name: made from the config and saved together, each in its own folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config.model import Choice, Registered
from ludus.data.buffers.sampling import Buffer
from ludus.data.buffers.store import BufferConfig
from ludus.errors import ConfigError
from ludus.registry import BUFFERS


class Buffers(dict[str, Buffer]):
    """Buffers by name; a checkpoint holds a small state of them, their steps lie in files beside it."""

    source: Path | None = None
    """Folder with the files of the next state to load."""
    _tag: str = ""
    _keep: tuple[str, ...] = ()

    def attach(self, folder: Path) -> None:
        """Set the folder for the files, before the first step and before a state is loaded."""
        self.source = folder
        for name, buffer in self.items():
            buffer.attach(folder / name)

    def at_checkpoint(self, tag: str, keep: tuple[str, ...]) -> None:
        """Prepare the state of checkpoint `tag`; the checkpoints in `keep` must stay readable."""
        self._tag, self._keep = tag, keep

    def state_dict(self) -> dict[str, Any]:
        """Write new steps to the files; the state refers to them."""
        return {name: buffer.save(self._tag, self._keep) for name, buffer in self.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where the state was taken."""
        for name, buffer in self.items():
            if name in state:
                buffer.load(state[name], self.source / name if self.source else None)

    def start_over(self) -> None:
        """Forget every step."""
        for buffer in self.values():
            buffer.start_over()


def make_buffers(
    wanted: Mapping[str, Choice], defaults: Mapping[str, Mapping[str, Any]], *, ranks: int = 1, **details: Any
) -> dict[str, Buffer]:
    """The buffers of the config, and the algorithm's defaults for the others; `stream` gives each its generator.

    One of several `ranks` holds its share of the steps of each.
    """
    parse, stream = Registered(BUFFERS, default="uniform").parse, details.pop("stream")
    chosen = {**wanted, **{name: parse(dict(cfg)) for name, cfg in defaults.items() if name not in wanted}}
    buffers = {
        name: BUFFERS[choice.name](_share(choice, ranks), name=name, rng=stream(f"buffer {name}"), **details)
        for name, choice in chosen.items()
    }
    for buffer in buffers.values():
        if buffer.cfg.size != "auto" and buffer.size > buffer.cfg.size:
            problem = f"{buffer.cfg.size:,} steps are too few for {buffer.num_envs:,} environments"
            raise ConfigError(f"buffers.{buffer.name}.size", problem, f"use at least {buffer.size:,}")
    return buffers


def _share(choice: Choice, ranks: int) -> BufferConfig:
    """The settings of one rank's part of a buffer; stored steps of another run are there for each rank."""
    cfg: BufferConfig = choice.config
    if ranks == 1 or cfg.size == "auto" or not BUFFERS[choice.name].own:
        return cfg
    return cfg.model_copy(update={"size": cfg.size // ranks})
