"""Environment files: `configs/environments/<Env>.yaml` holds what all variants share, and the variants.

Shared are the fields at the top level and under `_base`; other keys with a leading underscore are templates. A variant
inherits further by YAML's `<<: *anchor` or by `extends: <variant or template or Env:variant>`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus.config.aliases import ALIASES, canonical, flat_schedule
from ludus.config.files import Block, read, shown
from ludus.config.layers import Layer, layers_of, merge
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError
from ludus.text import did_you_mean

SUFFIXES = (".yaml", ".yml", ".json")
FACTS = "spec"
"""Key of an environment file with facts about the environment; of these only `action.valid` is a setting."""


@dataclass(frozen=True)
class Target:
    """Something that can be trained."""

    spec: str
    description: str
    path: Path


class EnvironmentFile:
    """One environment file, read and taken apart."""

    def __init__(self, path: Path, dirs: Sequence[Path]) -> None:
        self.path, self.dirs, self.name = path, dirs, shown(path)
        self.block = read(path)
        self.base = self.block.only(self._is_field)
        self.parts: dict[str, Block] = {}
        for key, value in self.block.items():
            if key not in self.base and key != FACTS:
                self.parts[key] = self._part(key, value)

    @property
    def variants(self) -> list[str]:
        """Names that can be trained, in the order of the file."""
        return [key for key in self.parts if not key.startswith("_")]

    def layers(self, variant: str) -> list[Layer]:
        """The layers of a variant; the file's name and facts are the last resort."""
        stem = self.path.stem
        ids: dict[str, dict[str, object]] = {"environment": {"id": stem}, "experiment": {"name": stem}}
        facts = self.block.get(FACTS)
        action = facts.get("action") if isinstance(facts, Mapping) else None
        if isinstance(action, Mapping) and "valid" in action:
            ids["environment"]["valid_actions"] = action["valid"]
        return [*layers_of(ids, self.name), *self.own_layers(variant, ())]

    def own_layers(self, variant: str, trail: tuple[str, ...]) -> list[Layer]:
        """What the file itself says about a variant; `trail` is who extends whom so far."""
        if variant not in self.variants:
            problem = f"{self.path.stem} has no variant '{variant}'"
            raise ConfigError(trail[-1] if trail else self.name, problem, did_you_mean(variant, self.variants))
        shared = [*layers_of(self.base, self.name), *layers_of(self.parts.get("_base", Block()), self.name)]
        return [*shared, *self._chain(variant, trail)]

    def description(self, variant: str) -> str:
        """The variant's one-line description."""
        layer = Layer()
        for item in self.layers(variant):
            layer = merge(layer, item)
        return str(layer.data["experiment"].get("description", ""))

    def _chain(self, name: str, trail: tuple[str, ...]) -> list[Layer]:
        me = f"{self.path.stem}:{name}"
        block = self.parts[name]
        where = f"{self.name}:{block.lines['extends']}" if "extends" in block.lines else self.name
        if me in trail:
            raise ConfigError(where, f"variants extend each other: {' -> '.join([*trail, me])}", "break the circle")
        layers = []
        for parent in parents(block, where):
            if ":" in parent:
                file, variant = find_variant(parent, self.dirs)
                layers += file.own_layers(variant, (*trail, me))
            elif parent not in self.parts:
                raise ConfigError(where, f"extends '{parent}', which is not here", did_you_mean(parent, self.parts))
            elif parent != "_base":
                layers += self._chain(parent, (*trail, me))
        return [*layers, *layers_of(block.only(lambda key: key != "extends"), self.name)]

    @staticmethod
    def _is_field(key: str) -> bool:
        known = key in ExperimentConfig.model_fields or canonical((key,))[0] != (key,)
        return known or flat_schedule((key,)) is not None

    def _part(self, key: str, value: object) -> Block:
        line = self.block.lines.get(key)
        where = f"{self.name}:{line}" if line else self.name
        sections = list(ExperimentConfig.model_fields)
        if value is None:
            return Block()
        if not isinstance(value, Block):
            raise ConfigError(where, f"{key}: unknown key", did_you_mean(key, [*sections, *ALIASES]))
        near = difflib.get_close_matches(key, sections, n=1, cutoff=0.85)
        if near or difflib.get_close_matches(key, [FACTS], n=1, cutoff=0.75):
            raise ConfigError(
                where, f"{key}: neither a section nor a likely variant", did_you_mean(key, [*sections, FACTS])
            )
        return value


def parents(block: Mapping[str, object], where: str) -> list[str]:
    """What `extends` names."""
    names = block.get("extends", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(where, "extends: must be a name or a list of names", "write extends: ppo")
    return names


def environment_files(dirs: Sequence[Path]) -> dict[str, Path]:
    """Every environment file by stem; an earlier directory hides a later one."""
    found: dict[str, Path] = {}
    for root in dirs:
        for path in sorted((root / "environments").glob("*")):
            if path.suffix in SUFFIXES:
                found.setdefault(path.stem, path)
    return found


def find_variant(spec: str, dirs: Sequence[Path]) -> tuple[EnvironmentFile, str]:
    """File and variant an `Env:variant` names; `/` and `_` of the id may be `-`, its version may be left out."""
    env_id, _, variant = spec.rpartition(":")
    files = environment_files(dirs)
    stem = _stem(env_id.replace("/", "-"), files)
    if stem not in files:
        near = did_you_mean(stem, files)
        remedy = near if "did you mean" in near else "`ludus train --list-envs` shows those that have one"
        raise ConfigError(spec, f"no config for environment '{env_id}'", remedy)
    file = EnvironmentFile(files[stem], dirs)
    if variant not in file.variants:
        raise ConfigError(spec, f"{stem} has no variant '{variant}'", did_you_mean(variant, file.variants))
    return file, variant


def _stem(wanted: str, files: Mapping[str, Path]) -> str:
    """The only file that is meant, or what was wanted."""
    forms = {stem: stem.replace("_", "-") for stem in files}
    plain = wanted.replace("_", "-")
    near = [stem for stem, form in forms.items() if plain in (form, re.sub(r"-v\d+$", "", form))]
    return wanted if wanted in files or len(near) != 1 else near[0]


def list_targets(dirs: Sequence[Path]) -> list[Target]:
    """Every variant of every environment file."""
    targets = []
    for stem, path in sorted(environment_files(dirs).items()):
        file = EnvironmentFile(path, dirs)
        targets += [Target(f"{stem}:{name}", file.description(name), path) for name in file.variants]
    return targets
