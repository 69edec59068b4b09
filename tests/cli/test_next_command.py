"""The commands that a run prints at its end find it: also where runs are kept elsewhere."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from faults.support import SMALL
from ludus import cli
from ludus.archive.store import RunFolder
from ludus.config.compose import load
from ludus.experiment import build
from ludus.session.finish import summary
from support import close


def following(runs_dir: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words after `ludus` that a finished run prints, and those of the same run if it were interrupted."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", *SMALL, "training.total_timesteps=64", "--runs-dir", runs_dir])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    folder = RunFolder.load(Path(runs_dir), "@last")
    run = build(load(SMALL[0], [word for word in SMALL[1:] if "=" in word]).config)
    run.interrupt("SIGTERM")
    run.stop("SIGTERM")
    ((resume, _),) = summary(run, folder)["next"]
    close(run)
    lines = [line.partition("ludus ")[2] for line in printed.splitlines() if "ludus play" in line]
    return [*lines, resume.removeprefix("ludus ")]


@pytest.mark.parametrize("runs_dir", ["experiments", "my runs"])
def test_the_next_commands_name_the_runs_dir(
    runs_dir: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = following(runs_dir, capsys)
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)
        assert Path(words[words.index("--runs-dir") + 1]).absolute() == tmp_path / runs_dir


def test_the_default_needs_no_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = following("runs", capsys)
    assert len(commands) == 3 and not any("--runs-dir" in command for command in commands)
