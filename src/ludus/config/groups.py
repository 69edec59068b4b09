"""Experiments by Hydra: config groups, defaults lists, packages. Imported only when a spec needs it.

Hydra decides which files make up an experiment and in which order. Our source plugin gives it the files (read strictly,
no env var or file ever interpolated) and offers every `Env:variant` as an option of the group `experiment`; merging is
our own, so that a choice can be switched, aliases work per file and every value keeps its origin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from hydra import initialize
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import OmegaConf

from ludus.config.files import plain, read, shown
from ludus.config.layers import Layer
from ludus.config.options import EXPERIMENT, find_option, folders, is_group
from ludus.config.variants import SUFFIXES, EnvironmentFile, environment_files
from ludus.errors import ConfigError
from ludus.text import did_you_mean


class LudusSource(ConfigSource):
    """Config directories as Hydra sees them."""

    @staticmethod
    def scheme() -> str:
        return "ludus"

    @property
    def dirs(self) -> list[Path]:
        return [Path(self.path)]

    def load_config(self, config_path: str) -> ConfigResult:
        option = find_option(config_path, self.dirs)
        if option is None:
            raise ConfigLoadError(f"no config {config_path}")
        header: dict[str, str | None] = {"package": "_global_"}
        defaults: list[Any] = []
        if option.variant is None:
            defaults = self._defaults(option.path)
            with option.path.open(encoding="utf-8") as file:
                header = self._get_header_dict(file.read(512))
        if header["package"] is None and config_path.startswith(f"{EXPERIMENT}/"):
            header["package"] = "_global_"
        config = OmegaConf.create({"defaults": defaults} if defaults else {})
        return ConfigResult(provider=self.provider, path=self.full_path(), config=config, header=header)

    @staticmethod
    def _defaults(path: Path) -> list[Any]:
        defaults = plain(read(path).get("defaults", []))
        if not isinstance(defaults, list) or re.search(r"\$\{[^}]*:", str(defaults)):
            raise ConfigError(shown(path), "defaults: must be a list without resolvers", "write - group: option")
        return defaults

    def is_group(self, config_path: str) -> bool:
        return is_group(config_path, self.dirs)

    def is_config(self, config_path: str) -> bool:
        return find_option(config_path, self.dirs) is not None

    def available(self) -> bool:
        return Path(self.path).is_dir()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        group = folders(Path(self.path), config_path.split("/") if config_path else [])
        names = {path.stem for folder in group for path in folder.iterdir() if path.suffix in SUFFIXES}
        if config_path == EXPERIMENT:
            for stem, path in environment_files(self.dirs).items():
                names |= {f"{stem}:{variant}" for variant in EnvironmentFile(path, self.dirs).variants}
        return sorted(names) if results_filter != ObjectType.GROUP else []


class LudusSearchPath(SearchPathPlugin):
    """Shows Hydra the config directories of the composition under way."""

    dirs: ClassVar[Sequence[Path]] = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for root in self.dirs:
            search_path.append("ludus", f"ludus://{root}")


def compose(primary: str | None, choices: Sequence[str], dirs: Sequence[Path], where: str) -> list[Layer]:
    """The layers of a primary config and the chosen group options, in Hydra's order."""
    listing = _listing(primary, list(choices), dirs, where)
    layers: list[Layer] = []
    for item in listing.defaults:
        if item.config_path is not None and item.config_path.split("/")[0] != "hydra":
            option = find_option(item.config_path, dirs)
            assert option is not None
            layers += option.layers(item.package or "", dirs)
    return layers


def _listing(primary: str | None, choices: list[str], dirs: Sequence[Path], where: str) -> Any:
    Plugins.instance().register(LudusSource)
    Plugins.instance().register(LudusSearchPath)
    LudusSearchPath.dirs = dirs
    try:
        with initialize(config_path=None, job_name="ludus", version_base="1.3"):
            return GlobalHydra.instance().config_loader().compute_defaults_list(primary, choices, RunMode.RUN)
    except MissingConfigException as error:
        name = str(error.missing_cfg_file)
        raise ConfigError(where, f"no config '{name}'", _options(name, dirs)) from None
    except HydraException as error:
        problem, *rest = [line.strip(" .") for line in str(error).splitlines() if line.strip()]
        raise ConfigError(where, problem, rest[0] if rest else "") from None
    finally:
        LudusSearchPath.dirs = ()


def _options(name: str, dirs: Sequence[Path]) -> str:
    group, _, option = name.rpartition("/")
    found = {item for root in dirs for item in LudusSource("", f"ludus://{root}").list(group, None)}
    return did_you_mean(option, sorted(found))
