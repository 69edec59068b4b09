"""`ludus migrate PATH`: check the version of a config file or a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from ludus.errors import ConfigError, DataError


def migrate(
    path: Annotated[Path, Argument(metavar="PATH", help="A config file (.yaml, .json) or a run folder.")],
) -> None:
    """Check the version of a file; so far there is one version, so that nothing has to be migrated."""
    from ludus.archive import checkpoint
    from ludus.config.read import plain, read_file
    from ludus.config.schema import SCHEMA_VERSION

    config = path / "config.yaml" if path.is_dir() else path
    if not config.is_file():
        raise ConfigError(str(path), "is neither a config file nor a run folder", "name one of them")
    found = plain(read_file(config)).get("schema_version", SCHEMA_VERSION)
    if found != SCHEMA_VERSION or isinstance(found, bool):
        problem = f"schema_version {str(found)[:40]} cannot be migrated, this Ludus knows only {SCHEMA_VERSION}"
        raise DataError(str(config), problem, "install the Ludus that wrote it")
    for saved in checkpoint.checkpoints(path).values():
        checkpoint.read_manifest(saved)
    print(f"{config} has the current version {SCHEMA_VERSION}, nothing to migrate")
