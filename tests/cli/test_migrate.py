"""`ludus migrate` says that a file is current, or why it cannot be migrated; readers name the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.cli.migrate import migrate
from ludus.config.compose import load, to_yaml
from ludus.errors import ConfigError, DataError
from support import config


def test_a_current_file_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.yaml"
    path.write_text(to_yaml(config()))
    migrate(path)
    assert capsys.readouterr().out == f"{path} has the current version 1, nothing to migrate\n"
    assert path.read_text() == to_yaml(config())


def test_a_run_folder_and_its_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder.create(tmp_path, "cart", config_yaml=to_yaml(config()))
    manifest = checkpoint.save(run.path, {"x": 1}, name="step=8") / checkpoint.MANIFEST
    migrate(run.path)
    assert "nothing to migrate" in capsys.readouterr().out
    manifest.write_text(manifest.read_text().replace(f'"version": {checkpoint.VERSION}', '"version": 7'))
    with pytest.raises(DataError, match="format version 7, this Ludus reads 3; use the Ludus that wrote it"):
        migrate(run.path)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("schema_version: 0", DataError, "schema_version 0 cannot be migrated, this Ludus knows only 1; install"),
        ("schema_version: 99", DataError, "schema_version 99 cannot be migrated"),
        ("schema_version: true", DataError, "schema_version True cannot be migrated"),
        ("schema_version: one", DataError, "schema_version one cannot be migrated"),
        ("a: [", ConfigError, "not YAML"),
    ],
)
def test_what_cannot_be_migrated(tmp_path: Path, text: str, error: type[Exception], words: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(error, match=words):
        migrate(path)
    for other in (tmp_path, tmp_path / "gone.yaml"):
        with pytest.raises(ConfigError, match="neither a config file nor a run folder"):
            migrate(other)


@pytest.mark.parametrize("version", [0, 2])
def test_readers_name_the_command(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(f"extends: CartPole-v1:ppo\nschema_version: {version}\n")
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    assert f"run ludus migrate {path}" in caught.value.line()


def test_the_algorithm_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "type.yaml"
    path.write_text("environment: {id: CartPole-v1}\nalgorithm: {type: ppo}\n")
    with pytest.raises(ConfigError, match="algorithm: unknown key 'type'; did you mean 'name'"):
        load(str(path))
