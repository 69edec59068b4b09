"""From a spec and overrides to a validated experiment.

Reading order: load -> _layers -> parse -> dump, config_hash.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ludus.config import files
from ludus.config.aliases import ALIASES
from ludus.config.errors import config_error
from ludus.config.interpolation import resolve
from ludus.config.layers import Layer, layers_of, merge
from ludus.config.options import document_layers, find_option, folders, is_group
from ludus.config.overrides import Change, apply, read_overrides
from ludus.config.schema import ExperimentConfig
from ludus.config.variants import SUFFIXES, EnvironmentFile, Target, find_variant, list_targets
from ludus.errors import ConfigError

_FILE = re.compile(r"(.+\.(?:ya?ml|json))(?::([^/:]+))?", re.DOTALL)
_EXPERIMENT = "+experiment="


@dataclass(frozen=True)
class Resolved:
    """A validated experiment and how it came about."""

    config: ExperimentConfig
    spec: str
    overrides: tuple[str, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)
    """Dotted path -> `file:line` or override, for every value that is not a default."""

    @property
    def data(self) -> dict[str, Any]:
        """The resolved config as plain data."""
        return dump(self.config)


def load(spec: str, overrides: Sequence[str] = (), *, config_dirs: Sequence[Path] | None = None) -> Resolved:
    """Compose `Env:variant`, `+experiment=name` or a .yaml/.json path (`path.yaml:variant`) with overrides."""
    dirs = search_path() if config_dirs is None else [Path(root).absolute() for root in config_dirs]
    layers, changes = _layers(spec, read_overrides(overrides), dirs)
    layer = resolve(apply(reduce(merge, layers, Layer()), changes))
    origin = {".".join(path): where for path, where in layer.origins.items()}
    return Resolved(_validate(layer, spec), spec, tuple(overrides), origin)


def load_config(env_id: str, variant_id: str, *overrides: str) -> ExperimentConfig:
    """The config of one variant; both names are needed, there is no fallback."""
    return load(f"{env_id}:{variant_id}", overrides).config


def parse(data: Mapping[str, Any], source: str) -> ExperimentConfig:
    """Validate plain data (a saved config, say); aliases are understood, errors name `source`."""
    return _validate(resolve(reduce(merge, layers_of(data, source), Layer())), source)


def dump(config: ExperimentConfig) -> dict[str, Any]:
    """Plain data that `parse` turns into an equal config."""
    return config.model_dump(mode="json")


def to_yaml(config: ExperimentConfig) -> str:
    """`dump` as YAML."""
    return files.to_yaml(dump(config))


def config_hash(config: ExperimentConfig) -> str:
    """Sixteen hex digits that depend on nothing but the resolved values."""
    return files.digest(dump(config))


def search_path() -> list[Path]:
    """`./configs` over the package's own."""
    return [root for root in (Path.cwd() / "configs", Path(__file__).parent.parent / "configs") if root.is_dir()]


def environment_file(spec: str) -> EnvironmentFile | None:
    """The environment file an `Env:variant` or `path.yaml:variant` is in; none for other specs."""
    match, dirs = _FILE.fullmatch(spec), search_path()
    if match is not None:
        return EnvironmentFile(Path(match[1]).absolute(), dirs) if match[2] is not None else None
    return None if spec.startswith(_EXPERIMENT) else find_variant(spec, dirs)[0]


def find_targets(search: str | None = None, *, config_dirs: Sequence[Path] | None = None) -> list[Target]:
    """Every `Env:variant` whose name or description holds `search`, else those whose name is near it."""
    targets = list_targets(search_path() if config_dirs is None else config_dirs)
    if not search:
        return targets
    wanted = search.lower().replace("/", "-")
    found = [target for target in targets if wanted in f"{target.spec} {target.description}".lower()]
    names = {target.spec.lower().partition(":")[0] for target in targets}
    near = difflib.get_close_matches(wanted.partition(":")[0], names, n=3)
    return found or [target for target in targets if target.spec.lower().partition(":")[0] in near]


def find_experiments(*, config_dirs: Sequence[Path] | None = None) -> list[str]:
    """`+experiment=name` of every experiment file."""
    roots = search_path() if config_dirs is None else config_dirs
    found = [folder.glob("*") for root in roots for folder in folders(root, ["experiment"])]
    names = {path.stem for paths in found for path in paths if path.suffix in SUFFIXES}
    return [_EXPERIMENT + name for name in sorted(names)]


def _validate(layer: Layer, source: str) -> ExperimentConfig:
    try:
        return ExperimentConfig.model_validate(layer.data)
    except ValidationError as error:
        raise config_error(error, layer, source) from None


def _layers(spec: str, changes: list[Change], dirs: list[Path]) -> tuple[list[Layer], list[Change]]:
    """The layers a spec names, and the changes that are not choices of config groups."""
    grouped = [change for change in changes if _is_choice(change, dirs)]
    values = [change for change in changes if change not in grouped]
    match = _FILE.fullmatch(spec)
    if match is not None:
        path = Path(match[1]).absolute()
        if match[2] is not None:
            return EnvironmentFile(path, dirs).layers(match[2]), values
        return _file_layers(path, grouped, dirs, spec), values
    if spec.startswith(_EXPERIMENT):
        return _composed(None, [spec, *(change.text for change in grouped)], dirs, spec), values
    file, variant = _find(spec, dirs)
    if grouped:
        return _composed(None, [_EXPERIMENT + spec, *(change.text for change in grouped)], dirs, spec), values
    return file.layers(variant), values


def _find(spec: str, dirs: list[Path]) -> tuple[EnvironmentFile, str]:
    if ":" in spec:
        return find_variant(spec, dirs)
    near = [target.spec for target in find_targets(spec, config_dirs=dirs)]
    remedy = f"pick one of: {', '.join(near[:12])}" if near else "see ludus train --list-envs"
    raise ConfigError(spec, "names no variant (Env:variant), experiment or file", remedy)


def _file_layers(path: Path, grouped: list[Change], dirs: list[Path], spec: str) -> list[Layer]:
    block = files.read(path)
    if "defaults" in block or grouped:
        chosen = [change.text for change in grouped]
        if path.parent.name in ("experiments", "experiment"):
            return _composed(None, [_EXPERIMENT + path.stem, *chosen], [path.parent.parent, *dirs], spec)
        return _composed(path.stem, chosen, [path.parent, *dirs], spec)
    if "_base" in block or not (block.keys() & {"algorithm", "algo_id", "algo", "extends"}):
        variants = EnvironmentFile(path, dirs).variants
        if variants:
            raise ConfigError(spec, f"holds variants: {', '.join(variants)}", f"name one: {spec}:{variants[0]}")
    return document_layers(path, dirs)


def _composed(primary: str | None, choices: list[str], dirs: list[Path], spec: str) -> list[Layer]:
    from ludus.config.groups import compose

    if primary is None and find_option("config", dirs) is not None:
        primary = "config"
    others = [choice for choice in choices if not choice.startswith(_EXPERIMENT)]
    return compose(primary, choices, dirs, " ".join([spec, *others]))


def _is_choice(change: Change, dirs: list[Path]) -> bool:
    """Whether an override picks a config group's option rather than setting a value."""
    if "." in change.key or not (isinstance(change.value, str) or change.bare) or not is_group(change.key, dirs):
        return False
    is_field = change.key in ExperimentConfig.model_fields or change.key in ALIASES
    named = change.key == "experiment" or find_option(f"{change.key}/{change.value}", dirs) is not None
    return named or not is_field
