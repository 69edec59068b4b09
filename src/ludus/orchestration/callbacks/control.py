"""Live control: `control.json` in the run folder changes settings, asks for a checkpoint or stops the run.

It is read at the end of an epoch whenever it has changed: `{"set": {"lr": 1e-4}, "checkpoint": true, "stop": true}`.
config.yaml stays what the run was started with; what was set is part of the checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ludus import files
from ludus.config.model import Model
from ludus.errors import ConfigError
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.callbacks.plateau import plain

if TYPE_CHECKING:
    from ludus.run import Run

NAME = "control.json"
LIMIT = 64 * 1024
SHOWN = 200
"""Characters of a complaint: part of it may be text from the file."""


class ControlCommand(Model):
    """What the file may say."""

    set: dict[str, Any] = {}
    """Fields of the algorithm and their new values, from the next epoch on."""
    checkpoint: bool = False
    """Save at the end of this epoch."""
    stop: bool = False
    """Save and end the run after this epoch, to be resumed later."""


class Control(Callback):
    """Obeys `control.json`; `checkpoint` is called to ask for a checkpoint at the end of this epoch."""

    def __init__(self, folder: Path, checkpoint: Callable[[], None]) -> None:
        self.path, self._checkpoint = folder / NAME, checkpoint
        self._seen: list[int] | None = None

    def on_epoch_end(self, run: Run) -> None:
        """Obey the file if it has changed."""
        try:
            found = self.path.lstat()
        except OSError:
            return
        mark = [found.st_mtime_ns, found.st_size, found.st_ino]
        if mark == self._seen:
            return
        self._seen = mark
        try:
            self._obey(run, read_command(self.path))
        except ConfigError as error:
            run.say(f"⚠ {error.line()[:SHOWN]}; training goes on unchanged")

    def _obey(self, run: Run, command: ControlCommand) -> None:
        if command.set:
            before = {field: getattr(run.settings, field, None) for field in command.set}
            run.change_settings(command.set)
            for field, old in before.items():
                run.say(f"{NAME}: {field} {plain(old)} -> {plain(getattr(run.settings, field))}")
        if command.checkpoint:
            run.say(f"{NAME}: a checkpoint is taken")
            self._checkpoint()
        if command.stop:
            run.say(f"{NAME}: the run is stopped")
            run.interrupt(f"{NAME}: stopped and saved, go on with ludus resume")

    def state_dict(self) -> dict[str, Any]:
        """Which version of the file was obeyed, so that a resumed run does not obey it again."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._seen = state["seen"]


def read_command(path: Path) -> ControlCommand:
    """The content, checked; anything else is one line."""
    try:
        return ControlCommand.model_validate(json.loads(files.read(path, LIMIT, follow=False)))
    except OSError as error:
        raise ConfigError(NAME, files.reason(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(NAME, f"{where}: {first['msg']}", "it may hold set, checkpoint and stop") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(NAME, f"not JSON: {str(error)[:100]}") from None
