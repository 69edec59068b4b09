"""Config groups: which file `group/name` means; every `Env:variant` is an option of the group `experiment`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus.config.files import read, shown
from ludus.config.layers import Layer, layers_of
from ludus.config.variants import SUFFIXES, EnvironmentFile, environment_files, find_variant, parents
from ludus.errors import ConfigError

EXPERIMENT = "experiment"


@dataclass(frozen=True)
class Option:
    """One choice of a group: a file, or a variant of an environment file."""

    path: Path
    variant: str | None = None

    def layers(self, package: str, dirs: Sequence[Path]) -> list[Layer]:
        """The option's layers under a package."""
        if self.variant is not None:
            return EnvironmentFile(self.path, dirs).layers(self.variant)
        return document_layers(self.path, dirs, tuple(filter(None, package.split("."))))


def document_layers(path: Path, dirs: Sequence[Path], at: tuple[str, ...] = ()) -> list[Layer]:
    """The layers of a whole config: what it extends, then itself."""
    block, name = read(path), shown(path)
    layers: list[Layer] = []
    for parent in parents(block, name):
        if ":" not in parent:
            raise ConfigError(name, f"extends: '{parent}' is no Env:variant", "write extends: CartPole-v1:ppo")
        file, variant = find_variant(parent, dirs)
        layers += file.layers(variant)
    return [*layers, *layers_of(block.only(lambda key: key not in ("extends", "defaults")), name, at)]


def find_option(config: str, dirs: Sequence[Path]) -> Option | None:
    """The file behind `group/name`; a group's directory may be named in the plural."""
    parts = config.split("/")
    if ".." in parts or "" in parts:
        return None
    for root in dirs:
        for folder in folders(root, parts[:-1]):
            for suffix in SUFFIXES:
                if (folder / f"{parts[-1]}{suffix}").is_file():
                    return Option(folder / f"{parts[-1]}{suffix}")
    if ":" in parts[-1]:
        stem, _, variant = "-".join(parts[1:] if parts[0] == EXPERIMENT else parts).rpartition(":")
        path = environment_files(dirs).get(stem)
        if path is not None and variant in EnvironmentFile(path, dirs).variants:
            return Option(path, variant)
    return None


def is_group(name: str, dirs: Sequence[Path]) -> bool:
    """Whether some directory holds options of this group; every variant is an experiment."""
    return name == EXPERIMENT or any(folders(root, name.split("/")) for root in dirs)


def folders(root: Path, group: Sequence[str]) -> list[Path]:
    """The directories of a group below a root; the name may be in the plural, but `environments` holds variants."""
    if not group or ".." in group:
        return [] if group else [root]
    names = [group[0]] if group[0] == "environment" else [group[0], f"{group[0]}s"]
    return [folder for name in names if (folder := root.joinpath(name, *group[1:])).is_dir()]
