"""Files of older versions, brought up to date by an explicit chain of pure steps, each from one version to the next.

Readers take the current version only. A step gets plain data and returns new plain data; it never reads anything else.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus import files
from ludus.config.read import plain, read_file, to_yaml
from ludus.config.schema import SCHEMA_VERSION
from ludus.errors import ConfigError, DataError
from ludus.runs.checkpoint import MANIFEST, VERSION

Data = dict[str, Any]
Step = Callable[[Data], Data]


def name_the_algorithm(data: Data) -> Data:
    """0 -> 1: the algorithm is chosen by `name`, no longer by `type`, and files say which version they are."""
    algorithm = data.get("algorithm")
    if isinstance(algorithm, dict) and "type" in algorithm:
        data["algorithm"] = {("name" if key == "type" else key): value for key, value in algorithm.items()}
    return {"schema_version": 1, **{key: value for key, value in data.items() if key != "schema_version"}}


CONFIG_STEPS: Mapping[int, Step] = {0: name_the_algorithm}
"""Version -> the step that leads to the next one."""


@dataclass(frozen=True)
class Migration:
    """What would become of one file."""

    path: Path
    version: int
    before: str
    after: str

    @property
    def needed(self) -> bool:
        """Whether the file is of an older version."""
        return self.version != SCHEMA_VERSION

    def diff(self) -> str:
        """What changes, as a unified diff."""
        old, new = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(old, new, f"{self.path} (version {self.version})", str(self.path)))

    def write(self) -> Path:
        """Replace the file in one step; the old one stays beside it, under a name nothing else has."""
        kept = self.path.with_name(self.path.name + ".bak")
        count = 1
        while kept.exists():
            count += 1
            kept = self.path.with_name(f"{self.path.name}.bak{count}")
        files.write_new(kept, self.path.read_bytes())
        files.write_text(self.path, self.after)
        return kept


def plan(path: Path) -> list[Migration]:
    """The files of a path that carry a version: a config file, or those of a run folder; checkpoints are checked."""
    if path.is_dir():
        config = path / "config.yaml"
        if not config.is_file():
            raise ConfigError(str(path), "holds no config.yaml", "name a config file or a run folder")
        for manifest in sorted(path.glob(f"checkpoints/*/{MANIFEST}")):
            check_checkpoint(manifest)
        path = config
    before = plain(read_file(path))
    version = config_version(before, path)
    after = migrate(before, version)
    write = _to_json if path.suffix == ".json" else to_yaml
    return [Migration(path, version, write(before), write(after))]


def config_version(data: Mapping[str, Any], path: Path) -> int:
    """What a file says, or what it looks like: version 0 did not say, and chose the algorithm by `type`."""
    said = data.get("schema_version")
    if said is None:
        algorithm = data.get("algorithm")
        old = isinstance(algorithm, Mapping) and "type" in algorithm and "name" not in algorithm
        return 0 if old else SCHEMA_VERSION
    if isinstance(said, bool) or not isinstance(said, int) or said < 0:
        raise DataError(str(path), f"schema_version: {str(said)[:40]!r} is no version", f"use 0 to {SCHEMA_VERSION}")
    if said > SCHEMA_VERSION:
        problem = f"is of version {said}, this ludus knows versions up to {SCHEMA_VERSION}"
        raise DataError(str(path), problem, "install a newer ludus")
    return said


def migrate(data: Data, version: int, steps: Mapping[int, Step] = CONFIG_STEPS, current: int = SCHEMA_VERSION) -> Data:
    """All steps from a version to the current one; `data` itself stays as it is."""
    for number in range(version, current):
        data = steps[number](deepcopy(data))
    return data


def check_checkpoint(manifest: Path) -> None:
    """There is one checkpoint format so far, so that any other version cannot be migrated."""
    try:
        version = json.loads(manifest.read_bytes()).get("version")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(str(manifest), f"not readable: {str(error)[:80]}", "remove that checkpoint") from None
    if version != VERSION:
        problem = f"format version {str(version)[:20]}, this ludus knows {VERSION}"
        raise DataError(str(manifest), problem, "use the ludus that wrote it")


def _to_json(data: Data) -> str:
    return json.dumps(data, indent=2) + "\n"
