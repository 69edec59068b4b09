"""From a spec and overrides to a validated experiment: read -> merge -> validate.

Reading order: load -> _layers -> parse -> dump, config_hash.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.config import groups, presets, read
from ludus.config.aliases import ALIASES
from ludus.config.departures import follow, leave_out_buffer, leave_out_networks
from ludus.config.groups import EXPERIMENT, ROOT, EnvironmentFile, Option, Target, find_option, find_variant
from ludus.config.merge import Draft, Layer, layers_of
from ludus.config.schema import ExperimentConfig
from ludus.config.validate import validate
from ludus.errors import ConfigError
from ludus.secrets import masked
from ludus.text import safe_name

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_FILE = re.compile(r"(.+\.(?:ya?ml|json))(?::([^/:]+))?", re.DOTALL)
_EXPERIMENT = f"+{EXPERIMENT}="
_PLURAL = re.compile(r"^(\+{0,2})(algorithm|network|preset)s=")
"""`+algorithms=fast`: a config group by the name of its folder."""
_WITH_EQUALS = re.compile(r"(\+{0,2}[\w.]+)=([\w./@+-]+=[\w./@=+-]*)")
"""`training.resume_path=runs/x/checkpoints/step=512`: Hydra's grammar wants quotes around such a value."""


@dataclass(frozen=True)
class Resolved:
    """A validated experiment and how it came about."""

    config: ExperimentConfig
    spec: str
    overrides: tuple[str, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)
    """Dotted path -> `file:line` or override, for every value that is not a default."""
    preset: str = ""
    """The presets it is made of, if the environment has no file with that variant."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the overrides changed the variant."""

    @property
    def title(self) -> str:
        """What the user asked for, and the presets it became."""
        return " ".join([self.spec, *self.overrides, *([f"(preset {self.preset})"] if self.preset else [])])

    @property
    def run_name(self) -> str:
        """The experiment's name, or the environment and variant if it only repeats the environment."""
        name, environment, spec = self.config.experiment.name, self.config.environment.id, self.spec
        if name is not None and name != safe_name(environment):
            return name
        if spec.startswith(_EXPERIMENT):
            return safe_name(spec.removeprefix(_EXPERIMENT))
        variant = spec.rpartition(":")[2] if ":" in spec else self.config.algorithm.name
        return safe_name(f"{environment}-{variant}" if environment else spec)

    @property
    def remarks(self) -> list[str]:
        """The preset and the notes, line by line."""
        preset = f"{self.config.environment.id} has no config file for this: preset {self.preset} (configs/presets)"
        return [*([preset] if self.preset else []), *self.notes]

    @property
    def data(self) -> dict[str, Any]:
        """The resolved config as plain data."""
        return dump(self.config)


def load(spec: str, overrides: Sequence[str] = (), *, config_dirs: Sequence[Path] | None = None) -> Resolved:
    """Compose `Env:variant`, `+experiment=name` or a .yaml/.json path (`path.yaml:variant`) with overrides."""
    dirs = search_path() if config_dirs is None else [Path(root).absolute() for root in config_dirs]
    changes = read_overrides(overrides)
    choices = [change for change in changes if _is_choice(change, dirs)]
    values = [one for one in changes if one not in choices]
    preset = presets.find(spec, values, dirs) if _is_target(spec) else None
    layers = [*preset.layers, *_chosen(choices, dirs, spec)] if preset else _layers(spec, choices, dirs)
    draft = Draft(layers)
    draft.change(values)
    before = Draft(layers)
    notes = [
        *follow(draft, before, spec),
        *leave_out_buffer(draft, layers),
        *leave_out_networks(draft, before, [masked(one.input_line or "") for one in values]),
    ]
    origin = {".".join(path): where for path, where in draft.origins.items()}
    names = " + ".join(preset.names) if preset else ""
    return Resolved(validate(draft.resolve(), spec), spec, tuple(overrides), origin, names, tuple(notes))


def load_config(env_id: str, variant_id: str, *overrides: str) -> ExperimentConfig:
    """The config of one variant; both names are required."""
    return load(f"{env_id}:{variant_id}", overrides).config


def parse(data: Mapping[str, Any], source: str) -> ExperimentConfig:
    """Validate plain data such as a saved config; aliases are understood, errors name `source`."""
    return validate(Draft(layers_of(data, source)).resolve(), source)


def dump(config: ExperimentConfig) -> dict[str, Any]:
    """Plain data that `parse` turns into an equal config."""
    return config.model_dump(mode="json")


def to_yaml(config: ExperimentConfig) -> str:
    """`dump` as YAML."""
    return read.to_yaml(dump(config))


def config_hash(config: ExperimentConfig) -> str:
    """A hash of sixteen hex digits that depends only on the resolved values."""
    return read.digest(dump(config))


def search_path() -> list[Path]:
    """`./configs`, then the package's own configs: an earlier directory takes precedence."""
    return [root for root in (Path.cwd() / "configs", Path(__file__).parent.parent / "configs") if root.is_dir()]


def read_overrides(texts: Sequence[str]) -> list[Override]:
    """Overrides in Hydra's grammar: `a.b=c` sets, `+a.b=c` adds, `++a.b=c` does either, `~a.b` removes."""
    if not texts:
        return []
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, overrides = OverridesParser.create(), []
    for text in texts:
        if "=" not in text and not text.startswith("~"):
            raise ConfigError(text, "not an override", "write key=value")
        text = _PLURAL.sub(r"\1\2=", text)
        plain = _WITH_EQUALS.fullmatch(text)
        try:
            override = parser.parse_override(f"{plain[1]}='{plain[2]}'" if plain else text)
        except RecursionError:
            raise ConfigError(masked(text)[:60], "nested too deeply", "write it into a file") from None
        except HydraException as error:
            problem = f"not an override: {str(error).splitlines()[0]}"
            raise ConfigError(masked(text), problem, "write key=value; quote values with special characters") from None
        if override.is_sweep_override():
            remedy = "write ludus sweep, or [a,b] for a list and quotes around a string that has commas"
            raise ConfigError(masked(text), f"{override.key_or_group}: several values for one run", remedy)
        if re.match(r"hydra\b", override.key_or_group):
            raise ConfigError(text, "Hydra's own settings are not used", "see ludus train --help")
        overrides.append(override)
    return overrides


def environment_file(spec: str) -> EnvironmentFile | None:
    """The environment file of an `Env:variant` or `path.yaml:variant`; None for other specs."""
    option = _find(spec, search_path())
    return EnvironmentFile(option.path, search_path()) if option and option.variant else None


def find_targets(search: str | None = None, *, config_dirs: Sequence[Path] | None = None) -> list[Target]:
    """Every `Env:variant` whose name or description contains `search`, else those with a similar name."""
    targets = groups.list_targets(search_path() if config_dirs is None else config_dirs)
    if not search:
        return targets
    wanted = search.lower().replace("/", "-")
    found = [target for target in targets if wanted in f"{target.spec} {target.description}".lower()]
    names = {target.spec.lower().partition(":")[0] for target in targets}
    near = difflib.get_close_matches(wanted.partition(":")[0], names, n=3)
    return found or [target for target in targets if target.spec.lower().partition(":")[0] in near]


def find_experiments() -> list[str]:
    """`+experiment=name` of every experiment file."""
    return [_EXPERIMENT + name for name in groups.options(EXPERIMENT, search_path())]


def _is_target(spec: str) -> bool:
    """Whether a spec has the form `Env:name`."""
    return ":" in spec and not spec.startswith(_EXPERIMENT) and _FILE.fullmatch(spec) is None


def _chosen(choices: list[Override], dirs: list[Path], spec: str) -> list[Layer]:
    """The layers of config groups alone."""
    if not choices:
        return []
    from ludus.config.defaults import expand

    return expand(ROOT, choices, dirs, " ".join([spec, *(str(choice.input_line) for choice in choices)]))


def located(word: str) -> Path | None:
    """The .yaml or .json file that a word names, if it is there; `configs/...` may be one that is shipped."""
    match = _FILE.fullmatch(word)
    path = None if match is None or match[2] else _located(match[1], search_path())
    return path if path is not None and path.is_file() else None


def _located(file: str, dirs: list[Path]) -> Path:
    """The place of a config file; `configs/...` may be one that is shipped."""
    path = Path(file)
    inside = path.parts[1:] if path.parts[:1] == ("configs",) and not path.exists() else ()
    shipped = [place for root in dirs if inside and (place := root.joinpath(*inside)).is_file()]
    return shipped[0] if shipped else path.absolute()


def _layers(spec: str, choices: list[Override], dirs: list[Path]) -> list[Layer]:
    """The layers of a spec and of the config groups chosen with it."""
    option = _find(spec, dirs)
    name = option.name if option else spec[1:].replace("=", "/", 1)
    if option and (root := option.path.parents[name.count("/")]) not in dirs:
        dirs = [root, *dirs]
    below_root = spec.startswith(_EXPERIMENT) and find_option(ROOT, dirs) is not None
    if option and not choices and not below_root and not option.defaults():
        return option.layers(dirs)
    from ludus.config.defaults import expand

    group, _, experiment = name.rpartition("/")
    chosen = read_overrides([f"+{group}={experiment}"]) if group else []
    where = " ".join([spec, *(str(choice.input_line) for choice in choices)])
    return expand(ROOT if group else name, [*chosen, *choices], dirs, where)


def _find(spec: str, dirs: list[Path]) -> Option | None:
    """The file, and the variant in it, that a spec names; None if there is no such experiment."""
    if spec.startswith(_EXPERIMENT):
        return find_option(spec[1:].replace("=", "/", 1), dirs)
    match = _FILE.fullmatch(spec)
    if match is None and ":" in spec:
        return find_variant(spec, dirs)
    if match is None:
        near = [target.spec for target in find_targets(spec, config_dirs=dirs)]
        remedy = f"pick one of: {', '.join(near[:12])}" if near else "see ludus train --list-envs"
        raise ConfigError(spec, "names no variant (Env:variant), experiment or file", remedy)
    option = Option(_located(match[1], dirs), match[2])
    keys = read.read_file(option.path).keys()
    whole = "_base" not in keys and bool(keys & {"algorithm", "algo_id", "algo", "extends", "defaults"})
    variants = EnvironmentFile(option.path, dirs).variants if option.variant is None and not whole else []
    if variants:
        raise ConfigError(spec, f"holds variants: {', '.join(variants)}", f"name one: {spec}:{variants[0]}")
    return option


def _is_choice(override: Override, dirs: list[Path]) -> bool:
    """Whether an override picks an option of a config group rather than setting a value."""
    key, bare = override.key_or_group, override.value_type is None
    value = None if bare else override.value()
    if "." in key or not (isinstance(value, str) or bare) or not groups.is_group(key, dirs):
        return False
    is_field = key in ExperimentConfig.model_fields or key in ALIASES
    return key == EXPERIMENT or find_option(f"{key}/{value}", dirs) is not None or not is_field
