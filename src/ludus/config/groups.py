"""Where configs come from: environment files with their variants, and the files of config groups.

`configs/environments/<Env>.yaml` holds what all variants share, at the top level and under `_base`, and the variants.
Other keys with a leading underscore are templates. A variant inherits by YAML's `<<: *anchor` or by `extends:`.

Every other folder of `configs/` is a config group and each file in it an option of that group; each `Env:variant` is an
option of the group `experiment`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ludus.config.aliases import ALIASES, canonical
from ludus.config.merge import Draft, Layer, layers_of
from ludus.config.read import FileMapping, place, plain, read_file
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError
from ludus.text import did_you_mean, near

SUFFIXES = (".yaml", ".yml", ".json")
EXPERIMENT = "experiment"
ROOT = "config"
"""The file that comes before every experiment, if there is one."""
FACTS = "spec"
"""Key of an environment file with facts about the environment; of these only `action.valid` is a setting."""


class Target(NamedTuple):
    """An `Env:variant` that can be trained."""

    spec: str
    description: str


class EnvironmentFile:
    """One environment file, read and taken apart."""

    def __init__(self, path: Path, dirs: Sequence[Path]) -> None:
        self.path, self.dirs, self.name = path, dirs, near(path)
        self.block = read_file(path)
        self.base = self.block.only(lambda key: key in ExperimentConfig.model_fields or canonical((key,))[0] != (key,))
        others = [key for key in self.block if key not in self.base and key != FACTS]
        self.parts = {key: self._part(key, self.block[key]) for key in others}

    @property
    def variants(self) -> list[str]:
        """Names that can be trained, in the order of the file."""
        return [key for key in self.parts if not key.startswith("_")]

    def layers(self, variant: str) -> list[Layer]:
        """The layers of a variant; the first one holds defaults that follow from the file's name and facts."""
        stem, facts = self.path.stem, self.block.get(FACTS)
        first: dict[str, dict[str, object]] = {"environment": {"id": stem}, "experiment": {"name": stem}}
        action = facts.get("action") if isinstance(facts, Mapping) else None
        if isinstance(action, Mapping) and "valid" in action:
            first["environment"]["valid_actions"] = action["valid"]
        return [*layers_of(first, self.name), *self.own_layers(variant)]

    def own_layers(self, variant: str, trail: tuple[str, ...] = ()) -> list[Layer]:
        """The layers written in the file; `trail` are the variants that extend this one."""
        if variant not in self.variants:
            where, problem = trail[-1] if trail else self.name, f"{self.path.stem} has no variant '{variant}'"
            raise ConfigError(where, problem, did_you_mean(variant, self.variants))
        shared = self.parts.get("_base", FileMapping())
        return [*layers_of(self.base, self.name), *layers_of(shared, self.name), *self._chain(variant, trail)]

    def _chain(self, name: str, trail: tuple[str, ...]) -> list[Layer]:
        me, block = f"{self.path.stem}:{name}", self.parts[name]
        where = place(block, "extends", self.name)
        if me in trail:
            raise ConfigError(where, f"variants extend each other: {' -> '.join([*trail, me])}", "break the circle")
        layers = []
        for parent in _parents(block, where):
            if ":" in parent:
                path, variant = find_variant(parent, self.dirs)
                layers += EnvironmentFile(path, self.dirs).own_layers(str(variant), (*trail, me))
            elif parent not in self.parts:
                raise ConfigError(where, f"extends '{parent}', which is not here", did_you_mean(parent, self.parts))
            elif parent != "_base":
                layers += self._chain(parent, (*trail, me))
        return [*layers, *layers_of(block.only(lambda key: key != "extends"), self.name)]

    def _part(self, key: str, value: object) -> FileMapping:
        where, sections = place(self.block, key, self.name), list(ExperimentConfig.model_fields)
        if value is None:
            return FileMapping()
        if not isinstance(value, FileMapping):
            raise ConfigError(where, f"{key}: unknown key", did_you_mean(key, [*sections, *ALIASES]))
        close = difflib.get_close_matches(key, sections, n=1, cutoff=0.85)
        if close or difflib.get_close_matches(key, [FACTS], n=1, cutoff=0.75):
            remedy = did_you_mean(key, [*sections, FACTS])
            raise ConfigError(where, f"{key}: neither a section nor a likely variant", remedy)
        return value


def environment_files(dirs: Sequence[Path]) -> dict[str, Path]:
    """Every environment file by stem; an earlier directory hides a later one."""
    paths = [path for root in reversed(dirs) for path in sorted((root / "environments").glob("*"), reverse=True)]
    return {path.stem: path for path in paths if path.suffix in SUFFIXES}


def find_variant(spec: str, dirs: Sequence[Path]) -> Option:
    """The `Env:variant`; `/` and `_` of the id may be `-`, and its version may be left out."""
    env_id, _, variant = spec.rpartition(":")
    found = environment_files(dirs)
    wanted = env_id.replace("/", "-")
    forms = {stem: stem.replace("_", "-") for stem in found}
    similar = [s for s, form in forms.items() if wanted.replace("_", "-") in (form, re.sub(r"-v\d+$", "", form))]
    stem = similar[0] if wanted not in found and len(similar) == 1 else wanted
    if stem not in found:
        close = did_you_mean(stem, found)
        remedy = close if "did you mean" in close else "`ludus train --list-envs` shows those that have one"
        raise ConfigError(spec, f"no config for environment '{env_id}'", remedy)
    return Option(found[stem], variant)


def list_targets(dirs: Sequence[Path]) -> list[Target]:
    """Every variant of every environment file."""
    files = [EnvironmentFile(path, dirs) for _, path in sorted(environment_files(dirs).items())]
    drafts = {f"{file.path.stem}:{name}": Draft(file.layers(name)) for file in files for name in file.variants}
    return [Target(spec, str(draft.data["experiment"].get("description", ""))) for spec, draft in drafts.items()]


# ---- config groups -------------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """One option of a config group: a file, or a variant of an environment file."""

    path: Path
    variant: str | None = None

    @property
    def name(self) -> str:
        """Its name as Hydra knows it: `group/option`."""
        variant = f":{self.variant}" if self.variant else ""
        grouped = variant or self.path.parent.name in (EXPERIMENT, f"{EXPERIMENT}s")
        return (f"{EXPERIMENT}/" if grouped else "") + self.path.stem + variant

    def layers(self, dirs: Sequence[Path], package: str = "") -> list[Layer]:
        """The option's layers, its keys below `package`: first what it extends, then its own."""
        if self.variant is not None:
            return EnvironmentFile(self.path, dirs).layers(self.variant)
        block, name = read_file(self.path), near(self.path)
        layers: list[Layer] = []
        for parent in _parents(block, place(block, "extends", name)):
            if ":" not in parent:
                raise ConfigError(name, f"extends: '{parent}' is no Env:variant", "write extends: CartPole-v1:ppo")
            layers += find_variant(parent, dirs).layers(dirs)
        own = block.only(lambda key: key not in ("extends", "defaults"))
        return [*layers, *layers_of(own, name, tuple(filter(None, package.split("."))))]

    def package(self) -> str | None:
        """What its `# @package` line says; a variant is a whole config."""
        if self.variant is not None:
            return "_global_"
        header = re.match(r"\s*#\s*@package\s+(\S+)", self.path.read_text(encoding="utf-8"))
        return header[1] if header else None

    def defaults(self) -> list[object]:
        """Its defaults list."""
        found = plain(read_file(self.path).get("defaults", [])) if self.variant is None else []
        if not isinstance(found, list) or re.search(r"\$\{[^}]*:", str(found)):
            raise ConfigError(near(self.path), "defaults: must be a list without resolvers", "write - group: option")
        return found


def find_option(config: str, dirs: Sequence[Path]) -> Option | None:
    """The option `group/name`; the group's folder may be named in the plural."""
    *group, name = config.split("/")
    paths = (folder / f"{name}{suffix}" for root in dirs for folder in folders(root, group) for suffix in SUFFIXES)
    path = next(filter(Path.is_file, paths), None)
    if path is None and ":" in name:
        stem, _, variant = "-".join([*group[group[:1] == [EXPERIMENT] :], name]).rpartition(":")
        path = environment_files(dirs).get(stem)
        return Option(path, variant) if path and variant in EnvironmentFile(path, dirs).variants else None
    return Option(path) if path else None


def is_group(name: str, dirs: Sequence[Path]) -> bool:
    """Whether a config directory holds options of this group; every variant is an experiment."""
    return name == EXPERIMENT or any(folders(root, name.split("/")) for root in dirs)


def folders(root: Path, group: Sequence[str]) -> list[Path]:
    """The folders of a group below a root; the name may be in the plural, but `environments` holds variants."""
    if not group:
        return [root]
    names = [group[0]] if group[0] == "environment" else [group[0], f"{group[0]}s"]
    names = [] if ".." in group or "" in group else names
    return [folder for name in names if (folder := root.joinpath(name, *group[1:])).is_dir()]


def options(group: str, dirs: Sequence[Path]) -> list[str]:
    """The names of a group's options, those of variants left out."""
    found = [path for root in dirs for folder in folders(root, group.split("/")) for path in folder.iterdir()]
    return sorted({path.stem for path in found if path.suffix in SUFFIXES})


def _parents(block: Mapping[str, object], where: str) -> list[str]:
    names = block.get("extends", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(where, "extends: must be a name or a list of names", "write extends: ppo")
    return names
