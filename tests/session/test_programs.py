"""A config or a run folder from somebody else starts no program unless the user has agreed to that very command."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from session.conftest import SMALL, Ludus, only_run

ALERT = "stalled_seconds: 1.0e-4"
"""No epoch is that fast: a certain alert."""


def program(canary: Path) -> list[str]:
    """A command that leaves a trace."""
    return [sys.executable, "-c", f"open({str(canary)!r}, 'w')"]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A config from somewhere whose alerts start a program; every run has an alert."""
    path = tmp_path / "shared.yaml"
    words = json.dumps(program(tmp_path / "canary"))
    path.write_text(f"extends: CartPole-v1:ppo\nlogging: {{alert_command: {words}, {ALERT}}}\n")
    return path


def small(spec: Path | str) -> list[str]:
    return [str(spec), *SMALL[1:], "training.total_timesteps=128"]


def test_a_file_starts_nothing_and_says_how_to_allow_it(ludus: Ludus, shared: Path, tmp_path: Path) -> None:
    done = ludus("train", *small(shared))
    assert done.code == 0, done.err
    assert not (tmp_path / "canary").exists()
    told = (only_run(tmp_path) / "run.log").read_text()
    assert "logging.alert_command is not run" in told and "shared.yaml:2" in told and "to allow it" in told


def test_what_was_typed_once_is_allowed_for_a_resume_and_for_that_very_command_only(
    ludus: Ludus, shared: Path, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    typed = f"logging.alert_command={json.dumps(program(canary))}"
    assert ludus("train", *small(shared), typed).code == 0
    assert canary.exists()
    canary.unlink()
    assert ludus("resume", "@last", "training.total_timesteps=256").code == 0
    assert canary.exists()
    canary.unlink()
    config = only_run(tmp_path) / "config.yaml"
    config.write_text(config.read_text().replace("canary'", "another'"))
    assert ludus("resume", "@last", "training.total_timesteps=384").code == 0
    assert not (tmp_path / "another").exists() and not canary.exists()


def test_who_has_agreed_to_a_program_has_not_agreed_to_its_next_content(ludus: Ludus, tmp_path: Path) -> None:
    alert = tmp_path / "alert.sh"
    for name in ("first", "second"):
        alert.write_text(f"#!/bin/sh\ntouch {tmp_path / name}\n")
        alert.chmod(0o755)
        if name == "first":
            words = [f"logging.alert_command={json.dumps(['sh', './alert.sh'])}", f"logging.{ALERT.replace(': ', '=')}"]
            assert ludus("train", *small("CartPole-v1:ppo"), *words).code == 0
            (tmp_path / name).unlink()
        assert ludus("resume", "@last", f"training.total_timesteps={256 if name == 'first' else 384}").code == 0
    assert (tmp_path / "first").exists() and not (tmp_path / "second").exists()


def test_a_run_folder_from_another_machine_starts_nothing(
    ludus: Ludus, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ludus("train", *small(shared), f"logging.alert_command={json.dumps(program(tmp_path / 'canary'))}").code == 0
    (tmp_path / "canary").unlink()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody else"))
    assert ludus("resume", "@last", "training.total_timesteps=256").code == 0
    assert ludus("train", *small(only_run(tmp_path) / "config.yaml")).code == 0
    assert not (tmp_path / "canary").exists()


def test_the_users_own_settings_are_obeyed(ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "config" / "ludus" / "settings.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"alert_command: {json.dumps(program(tmp_path / 'canary'))}\n")
    words = [*small("CartPole-v1:ppo"), "logging.stalled_seconds=1e-4"]
    settings.chmod(0o666)
    refused = ludus("train", *words)
    assert refused.code == 2 and "may be written by others" in refused.err
    settings.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 12345)
        assert ludus("train", *words).code == 2
    assert ludus("train", *words).code == 0
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("", False), ("no", False)])
def test_on_a_terminal_one_is_asked(
    ludus: Ludus, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, runs: bool
) -> None:
    asked: list[str] = []

    def reply(question: str) -> str:
        asked.append(question)
        return "y" if "Start training" in question else answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", reply)
    done = ludus("train", *[word for word in small(shared) if word != "-q"], "logging.console=false")
    assert done.code == 0, done.err
    assert "wants to run this program" in done.out and len(asked) == 2
    assert (tmp_path / "canary").exists() is runs
    assert ludus("train", *small(shared), "logging.console=false").code == 0  # -q never asks
    assert len(asked) == 2


def test_a_repository_from_elsewhere_starts_nothing(tmp_path: Path) -> None:
    """`git status` runs what the repository's own config names: monitors, filters and hooks."""
    import subprocess

    from ludus.archive.provenance import git_state

    def git(*words: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    if shutil.which("git") is None:
        pytest.skip("no git")
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "x")
    git("config", "core.fsmonitor", f"touch {tmp_path}/canary1; false")
    (tmp_path / ".git" / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {tmp_path}/canary2\n")
    (tmp_path / ".git" / "hooks" / "post-index-change").chmod(0o755)
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path)["dirty"] is True
    git("config", "filter.x.clean", f"touch {tmp_path}/canary3; cat")
    (tmp_path / ".git" / "info" / "attributes").write_text("a filter=x\n")
    (tmp_path / "a").write_text("3")
    assert git_state(tmp_path)["dirty"] is None
    assert list(tmp_path.glob("canary*")) == []


def test_a_submodule_from_elsewhere_starts_nothing(tmp_path: Path) -> None:
    """`git status` looks into submodules, which have configs, and so filters, of their own."""
    import subprocess

    from ludus.archive.provenance import git_state

    def git(*words: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
        subprocess.run(["git", *identity, *words], check=True, capture_output=True)

    if shutil.which("git") is None:
        pytest.skip("no git")
    outer, inner = str(tmp_path / "outer"), str(tmp_path / "inner")
    for place in (inner, outer):
        git("init", place)
    (tmp_path / "inner" / "a").write_text("1")
    (tmp_path / "inner" / ".gitattributes").write_text("a filter=x\n")
    git("-C", inner, "add", ".")
    git("-C", inner, "commit", "-m", "x")
    git("-C", outer, "submodule", "add", inner, "sub")
    git("-C", outer, "commit", "-m", "x")
    git("-C", f"{outer}/sub", "config", "filter.x.clean", f"touch {tmp_path}/canary; cat")
    (tmp_path / "outer" / "sub" / "a").write_text("2")
    assert git_state(tmp_path / "outer")["dirty"] is False
    assert not (tmp_path / "canary").exists()


def test_who_agrees_to_a_command_agrees_for_one_folder(
    ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./alert.sh` of a repository from elsewhere is another program than one's own."""
    for place in ("mine", "theirs"):
        (tmp_path / place).mkdir()
        script = tmp_path / place / "alert.sh"
        script.write_text("#!/bin/sh\ntouch canary\n")
        script.chmod(0o755)
    monkeypatch.chdir(tmp_path / "mine")
    alert = "logging.stalled_seconds=1e-4"
    assert ludus("train", *small("CartPole-v1:ppo"), alert, "logging.alert_command=[./alert.sh]").code == 0
    assert (tmp_path / "mine" / "canary").exists()
    monkeypatch.chdir(tmp_path / "theirs")
    Path("config.yaml").write_text(f"extends: CartPole-v1:ppo\nlogging: {{alert_command: [./alert.sh], {ALERT}}}\n")
    assert ludus("train", *small("config.yaml")).code == 0
    assert not (tmp_path / "theirs" / "canary").exists()


def test_nobody_agrees_to_what_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ludus.archive import consent
    from ludus.config.compose import Resolved, load

    config = load("CartPole-v1:ppo", ["logging.alert_command=[sh,-c," + 600 * "a" + ",tail]"]).config
    monkeypatch.setattr(consent, "can_answer", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    consent.ask(Resolved(config, "shared.yaml", (), {}))
    assert 600 * "a" + " tail" in capsys.readouterr().out


def test_the_program_runs_where_the_command_was_given(tmp_path: Path) -> None:
    """An environment may change the directory, and `./alert.sh` with it."""
    from ludus.watch.alert_command import AlertCommand

    command = AlertCommand([sys.executable, "-c", "open('here', 'w')"], "x", cwd=tmp_path)
    command._run("an alert")
    command.close()
    assert (tmp_path / "here").exists()
