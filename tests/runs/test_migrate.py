"""Old files become current ones step by step; golden files hold every version there was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.migrate import migrate as command
from ludus.config import files
from ludus.config.compose import load, parse, to_yaml
from ludus.config.schema import SCHEMA_VERSION
from ludus.errors import ConfigError, DataError
from ludus.runs import checkpoint
from ludus.runs.migrate import CONFIG_STEPS, config_version, migrate, plan
from ludus.runs.store import RunFolder
from support import config

GOLDEN = Path(__file__).parents[1] / "golden" / "migrate"


def _read(path: Path) -> dict[str, Any]:
    return files.plain(files.read(path))


@pytest.mark.parametrize("version", range(SCHEMA_VERSION))
def test_each_step_leads_to_the_next_golden_file(version: int) -> None:
    old, new = (_read(GOLDEN / f"config_v{n}.yaml") for n in (version, version + 1))
    before = json.dumps(old)
    assert CONFIG_STEPS[version](json.loads(before)) == new
    assert list(CONFIG_STEPS[version](json.loads(before))) == list(new)  # in the same order
    assert config_version(old, GOLDEN) == version
    assert json.dumps(migrate(old, version)) == json.dumps(_read(GOLDEN / f"config_v{SCHEMA_VERSION}.yaml"))
    assert json.dumps(old) == before  # steps get a copy


def test_there_is_a_step_for_every_old_version() -> None:
    assert sorted(CONFIG_STEPS) == list(range(SCHEMA_VERSION))


def test_the_newest_golden_file_is_a_config() -> None:
    path = GOLDEN / f"config_v{SCHEMA_VERSION}.yaml"
    found = parse(_read(path), str(path))
    assert (found.algorithm.name, found.algorithm.config.epochs, found.network.memory.name) == ("ppo", 20, "gru")


def test_longer_chains_run_in_order() -> None:
    steps = {n: lambda data, n=n: {**data, "seen": [*data["seen"], n]} for n in range(4)}
    assert migrate({"seen": []}, 1, steps, 4) == {"seen": [1, 2, 3]}


def test_a_dry_run_shows_a_diff_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.yaml"
    path.write_bytes((GOLDEN / "config_v0.yaml").read_bytes())
    command(path)
    out = capsys.readouterr().out
    assert "-  type: ppo\n+  name: ppo\n" in out
    assert "+schema_version: 1\n" in out
    assert f"ludus migrate {path} --yes" in out
    assert path.read_bytes() == (GOLDEN / "config_v0.yaml").read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_yes_writes_and_keeps_the_old_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.yaml"
    old = b"# a comment\n" + (GOLDEN / "config_v0.yaml").read_bytes()
    path.write_bytes(old)
    command(path, yes=True)
    assert path.read_text() == (GOLDEN / "config_v1.yaml").read_text()
    assert (tmp_path / "old.yaml.bak").read_bytes() == old
    assert load(str(path)).config.algorithm.name == "ppo"
    command(path, yes=True)
    assert "current version already" in capsys.readouterr().out
    path.write_bytes(old)
    command(path, yes=True)
    assert {file.name for file in tmp_path.iterdir()} == {"old.yaml", "old.yaml.bak", "old.yaml.bak2"}


def test_json_and_an_explicit_version_zero(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"schema_version": 0, "algorithm": "ppo", "environment": {"id": "CartPole-v1"}}))
    (change,) = plan(path)
    assert change.needed
    change.write()
    assert json.loads(path.read_text())["schema_version"] == 1
    assert load(str(path)).config.environment.id == "CartPole-v1"


def test_a_run_folder_and_its_checkpoints(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "cart", config_yaml=(GOLDEN / "config_v0.yaml").read_text())
    place = checkpoint.save(run.path, {"x": 1}, name="step=8")
    (change,) = plan(run.path)
    assert (change.path, change.needed) == (run.config_path, True)
    manifest = place / checkpoint.MANIFEST
    manifest.write_text(manifest.read_text().replace('"version": 2', '"version": 7'))
    with pytest.raises(DataError, match="format version 7, this ludus knows 2; use the ludus that wrote it"):
        plan(run.path)
    manifest.write_text("{")
    with pytest.raises(DataError, match="not readable"):
        plan(run.path)


def test_a_current_file_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.yaml"
    path.write_text(to_yaml(config()))
    command(path, yes=True)
    assert "current version already" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("schema_version: 99", DataError, "version 99, this ludus knows versions up to"),
        ("schema_version: one", DataError, "'one' is no version"),
        ("schema_version: -1", DataError, "is no version"),
        ("a: [", ConfigError, "not YAML"),
    ],
)
def test_what_cannot_be_migrated(tmp_path: Path, text: str, error: type[Exception], words: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(error, match=words):
        plan(path)
    with pytest.raises(ConfigError, match=r"holds no config\.yaml"):
        plan(tmp_path)


@pytest.mark.parametrize("text", ["algorithm: {type: ppo}", "schema_version: 0\nalgorithm: ppo", "schema_version: 2"])
def test_readers_name_the_command(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        "extends: CartPole-v1:ppo\n" + text if "type" not in text else f"environment: {{id: CartPole-v1}}\n{text}"
    )
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    assert f"run ludus migrate {path}" in caught.value.line()
