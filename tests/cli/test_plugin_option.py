"""Every command that needs parts takes `--plugin` and `--import`."""

from __future__ import annotations

import json
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
