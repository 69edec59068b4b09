"""Presets: the config of an `Env:algorithm` that no environment file has.

The rule: of these files in `configs/presets` each that exists is laid over the one before,

    <kind>.yaml, <algorithm>.yaml, <algorithm>-<kind>.yaml

where the kind of a task is `atari` (an `image`), `mujoco`, `dmc` (both `continuous`), `minigrid` or `minatar` (both
`discrete`) by its id, otherwise `image`, `continuous` or `discrete` by its spaces; the wider kind comes first. Every
other preset is one file, as in `ALE/Seaquest-v5:cleanrl-atari`. No preset has a reward threshold.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from ludus.config.aliases import canonical
from ludus.config.groups import EnvironmentFile, environment_path, find_option, find_variant, options
from ludus.config.merge import Draft, Layer, layers_of
from ludus.config.schema import Environment
from ludus.errors import ConfigError
from ludus.registry import ALGORITHMS
from ludus.text import did_you_mean, safe_name

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

GROUP = "preset"
WIDER = {
    "atari": "image", "mujoco": "continuous", "dmc": "continuous", "minigrid": "discrete", "minatar": "discrete"
}  # fmt: skip
KINDS = {*WIDER, *WIDER.values()}


class Preset(NamedTuple):
    """What a spec means that is no variant of an environment file."""

    names: tuple[str, ...]
    layers: list[Layer]


def find(spec: str, changes: Sequence[Override], dirs: Sequence[Path]) -> Preset | None:
    """The presets of an `Env:algorithm` or `Env:preset`; None for a variant of an environment file."""
    env_id, _, name = spec.rpartition(":")
    path = environment_path(env_id, dirs)
    file = EnvironmentFile(path, dirs) if path else None
    if file and name in file.variants:
        return None
    alone = name in options(GROUP, dirs) and _is_whole(name)
    if file and not (alone or name in ALGORITHMS):
        return None
    if not (alone or name in ALGORITHMS):
        remedy = did_you_mean(name, [*ALGORITHMS.names(), *_alone(dirs)])
        raise ConfigError(spec, f"'{name}' is neither an algorithm nor a preset", remedy)
    look: Any = importlib.import_module("ludus.envs.kind")  # by its name, like registered parts: it is above this layer
    newer = look.current(env_id)
    if file is None and newer != env_id:
        found = find(f"{newer}:{name}", changes, dirs)
        return found or Preset((), find_variant(f"{newer}:{name}", dirs).layers(dirs))
    base = file.shared_layers() if file else _first(env_id, spec)
    names = [name] if alone else _fitting(name, look.kind(_environment(base, changes)), dirs)
    own = {} if alone else {"algorithm": {"name": name}}
    return Preset(
        tuple(names), [*base, *layers_of(own, spec), *(layer for one in names for layer in _layers(one, dirs))]
    )


def _first(env_id: str, spec: str) -> list[Layer]:
    return layers_of({"environment": {"id": env_id}, "experiment": {"name": safe_name(env_id)}}, spec)


def _fitting(algorithm: str, kind: str, dirs: Sequence[Path]) -> list[str]:
    kinds = [WIDER[kind], kind] if kind in WIDER else [kind]
    names = [*kinds, algorithm, *(f"{algorithm}-{one}" for one in kinds)]
    return [name for name in names if find_option(f"{GROUP}/{name}", dirs)]


def _alone(dirs: Sequence[Path]) -> list[str]:
    """The presets that are a whole config."""
    return [name for name in options(GROUP, dirs) if _is_whole(name)]


def _is_whole(name: str) -> bool:
    """Whether a preset is a whole config: it is neither a kind of environment nor begins with an algorithm."""
    return name not in KINDS and name.partition("-")[0] not in ALGORITHMS


def _layers(name: str, dirs: Sequence[Path]) -> list[Layer]:
    option = find_option(f"{GROUP}/{name}", dirs)
    assert option is not None
    return option.layers(dirs)


def _environment(base: list[Layer], changes: Sequence[Override]) -> Environment:
    """The environment to look at, before any preset: with the constructor arguments and wrappers of the overrides."""
    draft = Draft(base)
    draft.change([one for one in changes if not one.is_delete() and _path(one)[0] == "environment"])
    given = {key: value for key, value in draft.data["environment"].items() if key in ("id", "kwargs", "wrappers")}
    try:
        return Environment.model_validate(given)
    except ValidationError:  # the complete config is refused for it, with its place
        return Environment(id=str(given["id"]))


def _path(override: Override) -> tuple[str, ...]:
    return canonical(tuple(override.key_or_group.split(".")))[0]
