"""Every command that needs parts takes `--plugin` and `--import`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ludus import cli
from support import CORNER, forget_plugins


@pytest.mark.parametrize("option", ["--plugin", "--import"])
@pytest.mark.parametrize(
    "words",
    [
        ("env", "info", "Corner-v0", "--json"),
        ("env", "check", "Corner-v0", "--backend", "sync", "--json"),
        ("bench", "env", "Corner-v0", "--num-envs", "1", "--backends", "sync", "--seconds", "0.01", "--json"),
        ("model", "Corner-v0:ppo"),
        ("smoke", "env", "Corner-v0", "--timesteps", "5", "--json"),
        ("config", "validate", "Corner-v0:ppo"),
        ("play", "Corner-v0:ppo", "--random", "--episodes", "1", "--render", "none"),
    ],
    ids=" ".join,
)
def test_a_command_takes_it(
    words: tuple[str, ...],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forget_plugins()
    monkeypatch.chdir(tmp_path)
    Path("corner.py").write_text(f'{CORNER}\ngym.register("Corner-v0", Corner)\n')
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, option, "corner.py"])
    told = capsys.readouterr()
    assert stop.value.code == 0, told.out + told.err
    if "--json" in words:
        assert json.loads(told.out)
    assert "unknown" not in told.out
    forget_plugins()
    with pytest.raises(SystemExit) as stop:
        cli.main(list(words))
    told = capsys.readouterr()
    assert "'Corner-v0' is unknown" in told.out + told.err, "it needs it"


def test_a_benchmark_of_memory_hands_it_to_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_plugins()
    monkeypatch.chdir(tmp_path)
    Path("corner.py").write_text(f'{CORNER}\ngym.register("Corner-v0", Corner)\n')
    commands: list[list[str]] = []

    def fails(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "error: no time\n")

    monkeypatch.setattr("ludus.bench.memory.jobs.subprocess.run", fails)
    words = ["--env", "Corner-v0:ppo", "--cores", "gru", "--seeds", "1", "--steps", "64", "--match-params", "0"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", "memory", *words, "--plugin", "corner.py"])
    assert stop.value.code == 1 and "gru, seed 1: no time" in capsys.readouterr().out
    (command,) = commands
    assert command[1:4] == ["-P", "-m", "ludus"] and f"--plugin={tmp_path / 'corner.py'}" in command
    forget_plugins()
