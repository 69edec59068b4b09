"""A sweep file or folder from elsewhere starts no program, imports no code and gives no options."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ludus.cli import main
from ludus.errors import ConfigError, DataError
from ludus.sweeps.store import FOLDER, SPEC, SweepFolder
from sweeps.test_spec import read, words

PLUGIN = """
from pathlib import Path
from ludus.algorithms.random import Random
from ludus.registry import ALGORITHMS

Path("canary").write_text("ran")
ALGORITHMS.register("mine")(type("Mine", (Random,), {}))
"""
SMALL = ["algorithm.name=mine", "training.total_timesteps=64", "training.evaluation.every_steps=32",
         "training.evaluation.episodes=1", "--seeds", "1", "--jobs", "1", "--name", "own"]  # fmt: skip


def ludus(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the user has run a sweep with a plugin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "mine.py").write_text(PLUGIN)
    assert ludus("sweep", "CartPole-v1:random", "environment.num_envs=1,2", "--plugin", "mine.py", *SMALL) == 0
    (tmp_path / "canary").unlink()
    return tmp_path


def test_a_sweep_of_ones_own_is_shown_and_goes_on(started: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("show", "best", "resume"):
        assert ludus("sweep", action, "own") == 0, capsys.readouterr().err


@pytest.mark.parametrize("action", ["show", "best", "resume", "retry-failed"])
def test_the_same_folder_elsewhere_runs_nothing(
    started: Path, action: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(started / "another"))
    assert ludus("sweep", action, "own") == 2
    assert "own: names code that you have not allowed: mine.py; go on at a terminal" in capsys.readouterr().err
    assert not (started / "canary").exists()


def test_a_plugin_that_has_changed_is_another_one(started: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (started / "mine.py").write_text(PLUGIN + "\n")
    assert ludus("sweep", "show", "own") == 2
    assert ludus("sweep", "show", "own", "--plugin", "mine.py") == 0  # typed
    assert ludus("sweep", "show", "own") == 0


def test_a_copy_of_the_folder_is_another_sweep(started: Path) -> None:
    runs = started / "runs" / FOLDER
    shutil.copytree(runs / "own", runs / "theirs")
    assert ludus("sweep", "resume", "theirs") == 2 and not (started / "canary").exists()


@pytest.mark.parametrize(
    "searched",
    [
        "logging.alert_command: {values: [[touch, canary]]}",
        "logging.alert_command: {value: [touch, canary]}",
        "+logging.alert_command: {values: [[touch, canary]]}",
        "environment.id: {values: ['evil:Env', CartPole-v1]}",
        "env_id: {value: 'evil:Env'}",
    ],
)
def test_a_file_names_no_code(tmp_path: Path, searched: str) -> None:
    text = f"method: grid\nspec: CartPole-v1:ppo\nparameters:\n  {searched}\n  algorithm.lr: {{values: [1e-3, 1e-4]}}\n"
    with pytest.raises(ConfigError, match="names code to run"):
        read(tmp_path, text)


def test_a_class_has_to_be_typed(tmp_path: Path) -> None:
    text = "method: grid\nspec: 'evil:Env:ppo'\nparameters: {algorithm.lr: {values: [1e-3, 1e-4]}}\n"
    with pytest.raises(ConfigError, match="names code to run: evil:Env"):
        read(tmp_path, text)
    assert read(tmp_path, text, "evil:Env:ppo").base == "evil:Env:ppo"
    assert words("evil:Env:ppo", "algorithm.lr=1e-3,1e-4").base == "evil:Env:ppo"


@pytest.mark.parametrize(
    "change",
    [
        {"base": "--plugin=evil.py"},
        {"overrides": ["--plugin=evil.py"]},
        {"parameters": [{"key": "--plugin", "kind": "choice", "values": ["evil.py"]}]},
    ],
)
def test_options_are_no_part_of_a_sweep(tmp_path: Path, change: dict[str, Any]) -> None:
    from ludus.config.read import to_yaml

    searched = {"key": "algorithm.lr", "kind": "choice", "values": [1]}
    good = {"name": "bad", "base": "CartPole-v1:ppo", "parameters": [searched]}
    folder = SweepFolder(tmp_path, "bad")
    folder.path.mkdir(parents=True)
    (folder.path / SPEC).write_text(to_yaml({**good, **change}))
    with pytest.raises(DataError, match="options are no part of a sweep"):
        folder.spec()
