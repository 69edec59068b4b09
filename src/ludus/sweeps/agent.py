"""A run that W&B's agent starts: a file of the agent says which values it gets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.config.aliases import canonical
from ludus.config.read import plain, read_file
from ludus.errors import ConfigError
from ludus.session.signals import EARLY
from ludus.sweeps.space import as_override

SWEEP = "WANDB_SWEEP_ID"
FILE = "WANDB_SWEEP_PARAM_PATH"
SPECS = ("spec", "config_id")
"""Parameters that name what is trained."""
_SCHEDULE = {"start", "end", "from", "to", "schedule"}
"""Keys of a schedule, which is one value and not a section of settings."""
LOG = "logging.wandb.enabled"


def started() -> bool:
    """Whether an agent of W&B started this process."""
    return bool(os.environ.get(SWEEP))


def values(*, required: bool = False) -> dict[str, Any]:
    """Setting -> value, as the agent's file has it; empty without an agent, which may be `required`."""
    if not started():
        if required:
            raise ConfigError("--wandb-sweep", f"no agent of W&B started this: {SWEEP} is not set", "use wandb agent")
        return {}
    return {path: leaf for key, value in written().items() for path, leaf in _flat(key, value).items()}


def without_repeats(words: Sequence[str]) -> list[str]:
    """A command line without the values that an agent repeats there: nested ones are Python's text of a dict."""
    repeated = tuple(f"--{key}=" for key in written()) if started() else ()
    return [word for word in words if not repeated or not word.startswith(repeated)]


def written() -> dict[str, Any]:
    """What the agent's file says, nested as it is."""
    name = os.environ.get(FILE)
    if not name:
        raise ConfigError(SWEEP, f"{FILE} names no file of values", "start it with wandb agent")
    if not Path(name).is_file():
        raise ConfigError(FILE, f"there is no file {name[:120]}", "start it with wandb agent")
    found = {str(key): plain(item) for key, item in read_file(Path(name)).items() if key != "wandb_version"}
    return {
        key: item["value"] if isinstance(item, Mapping) and "value" in item else item for key, item in found.items()
    }


def merged(spec: str | None, overrides: Sequence[str], given: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    """The spec and overrides with the agent's values, which replace those of the command line; W&B gets the metrics."""
    if not started():
        return spec, list(overrides)
    named = [str(given[key]) for key in SPECS if key in given]
    settings = {key: value for key, value in given.items() if key not in SPECS}
    taken = {_path(key) for key in settings}
    kept = [word for word in overrides if _path(word.partition("=")[0]) not in taken]
    logged = [] if _path(LOG) in {*taken, *(_path(word.partition("=")[0]) for word in kept)} else [f"{LOG}=true"]
    return (named[0] if named else spec), [*kept, *logged, *(as_override(*pair) for pair in settings.items())]


def exit_code(code: int) -> int:
    """An agent takes every code but 0 for a failure, and gives up after a few: a stop it asked for is none."""
    return 0 if started() and code == EARLY else code


def _path(key: str) -> tuple[str, ...]:
    return canonical(tuple(key.lstrip("+~").split(".")))[0]


def _flat(key: str, value: Any) -> dict[str, Any]:
    """The settings of nested parameters by dotted path."""
    if not isinstance(value, Mapping) or not value or set(value) <= _SCHEDULE:
        return {key: value}
    return {path: leaf for name, item in value.items() for path, leaf in _flat(f"{key}.{name}", item).items()}
