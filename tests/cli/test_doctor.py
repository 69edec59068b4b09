"""`ludus doctor` and `ludus` alone: facts and next steps, never a key."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus import cli
from ludus.cli import doctor, welcome


def ludus(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main(list(arguments))
    assert end.value.code == 0
    return capsys.readouterr().out


def test_keys_are_there_or_not_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canarycanarycanary")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    facts = json.loads(text := ludus(capsys, "doctor", "--json"))
    assert facts["keys"]["HF_TOKEN"] == "set" and facts["keys"]["WANDB_API_KEY"] == "not set"
    assert "canary" not in text + ludus(capsys, "doctor")
    assert facts["versions"]["torch"] and facts["machine"]["device"] and facts["problems"] == []
    assert facts["extras"]["video"] == "installed" and "free" in facts["disk"]["runs"]


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: name != "av")
    assert doctor.extras()["video"] == "pip install 'ludus-rl[video]' (without av)"


def test_what_is_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.archive.store import RunFolder

    run = RunFolder.create(tmp_path / "runs", "cart", config_yaml="algorithm: ppo\n")
    run.set_status("running")
    status = json.loads((run.path / "status.json").read_text())
    (run.path / "status.json").write_text(json.dumps({**status, "pid": 2**22 + 1}))
    (tmp_path / "runs" / "@last").unlink()
    (tmp_path / "runs" / "@last").symlink_to("gone")
    monkeypatch.setattr(doctor, "_free", lambda _: 1000)
    told = "\n".join(doctor.problems(tmp_path / "runs"))
    assert f"ludus resume {run.id}" in told and "points to a run that is gone" in told and "only 1.0 kB free" in told


def test_a_file_where_runs_belong_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    assert f"{tmp_path / 'runs'} is no folder; choose another place" in "\n".join(doctor.problems(tmp_path / "runs"))


@pytest.mark.parametrize(
    ("state", "command"),
    [("finished", "play"), ("stopped", "resume"), ("lost", "resume"), ("failed", "show"), ("running", "show")],
)
def test_the_next_step_fits_the_newest_run(state: str, command: str) -> None:
    from ludus.archive.record import Record

    records: list[Any] = [Record(Path("x"), "cart", state=state, reward=12.0)]
    assert welcome.hints_for(records)[0][0] == f"ludus {command} @last"
    assert "best return 12.0" in welcome.told(records)[0]
    assert welcome.hints_for([])[0][0] == "ludus train CartPole-v1:ppo"


def test_alone_in_a_terminal_and_in_a_pipe(tmp_path: Path) -> None:
    """Neither imports torch or Gymnasium."""
    script = ("import sys\nfrom ludus import cli\ntry: cli.main([])\n"
              "except SystemExit: print('torch' in sys.modules or 'gymnasium' in sys.modules)")  # fmt: skip
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, stdout=theirs, check=True)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux says so at the end
            break
        if not part:
            break
        text += part
    assert b"There are no runs here yet" in text and text.strip().endswith(b"False")
    piped = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert piped.stdout.startswith("Usage: ludus") and piped.stdout.strip().endswith("False")
