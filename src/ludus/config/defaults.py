"""Defaults lists, expanded by Hydra: `- CartPole-v1:ppo`, `- /network: wide`, `- /head@network.actor: large`.

Hydra decides which options make up an experiment, in which order and below which package. Merging is ours, so that a
choice can be switched, aliases work in each file and every value keeps its origin. Importing Hydra takes time:
this module is imported only for experiments and config groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import version
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.config_source import ConfigResult
from omegaconf import OmegaConf

from ludus.config.groups import EXPERIMENT, ROOT, find_option, is_group, list_targets, options
from ludus.config.merge import Layer
from ludus.errors import ConfigError
from ludus.text import did_you_mean


class Repository(ConfigRepository):
    """Our config directories as Hydra sees them: no search path, no plugins, no settings of Hydra's own."""

    def __init__(self, dirs: Sequence[Path]) -> None:
        self.dirs = dirs

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Package and defaults list of an option; its values are read later."""
        option = find_option(config_path, self.dirs)
        if option is None and config_path != ROOT:
            return None
        package = option.package() if option else None
        package = package or ("_global_" if config_path.startswith(f"{EXPERIMENT}/") else None)
        listed = self._create_defaults_list(config_path, OmegaConf.create(option.defaults() if option else []))
        return ConfigResult("ludus", config_path, OmegaConf.create({}), {"package": package}, listed)

    def group_exists(self, config_path: str) -> bool:
        return is_group(config_path, self.dirs)

    def config_exists(self, config_path: str) -> bool:
        return config_path == ROOT or find_option(config_path, self.dirs) is not None

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        variants = [target.spec for target in list_targets(self.dirs)] if group_name == EXPERIMENT else []
        return [*options(group_name, self.dirs), *variants]

    def get_sources(self) -> list:
        """None: error messages name our own directories."""
        return []


def expand(primary: str, choices: Sequence[Override], dirs: Sequence[Path], where: str) -> list[Layer]:
    """The layers of a primary config and of chosen options (`+network=wide`) with all their defaults."""
    version.setbase("1.3")
    repository = Repository(dirs)
    try:
        listing = create_defaults_list(repository, primary, list(choices), prepend_hydra=False, skip_missing=False)
    except MissingConfigException as error:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        remedy = did_you_mean(name, repository.get_group_options(group))
        raise ConfigError(where, f"no config '{error.missing_cfg_file}'", remedy) from None
    except (HydraException, ValueError) as error:
        problem, *rest = [line.strip(" .") for line in str(error).splitlines() if line.strip()]
        raise ConfigError(where, problem, rest[0] if rest else "") from None
    found = [(find_option(item.config_path, dirs), item.package) for item in listing.defaults if item.config_path]
    return [layer for option, package in found if option for layer in option.layers(dirs, package or "")]
