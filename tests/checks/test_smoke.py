"""Smoke tests: what works passes, what fails or is missing is told, and a crash ends one row, not the table."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.checks import smoke, trial
from ludus.checks.smoke import Result
from ludus.config.compose import load
from ludus.errors import ConfigError, EnvironmentFailed, MissingExtra


def _told(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_targets_by_name() -> None:
    assert "CartPole-v1:ppo" in smoke.targets()
    assert all("cartpole" in spec.lower() for spec in smoke.targets("cartpole"))
    assert smoke.targets("CartPole", 2) == smoke.targets("CartPole")[:2]


def test_random_actions_in_a_process_of_their_own() -> None:
    results = list(smoke.run("env", ["CartPole-v1:ppo", "Acrobot-v1"], timesteps=20, timeout=120, jobs=2))
    assert sorted(result.spec for result in results) == ["Acrobot-v1", "CartPole-v1:ppo"]
    assert {result.status for result in results} == {"PASS"}, results


def test_training_for_a_moment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert trial.main("train", "CartPole-v1:ppo", "64") == 0
    assert _told(capsys) == {"status": "PASS", "detail": ""}
    assert list(tmp_path.iterdir()) == []  # no runs are left


def test_an_id_without_a_config_is_trained_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert trial.main("train", "MountainCarContinuous-v0", "64") == 0
    assert _told(capsys)["status"] == "PASS"


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "CartPole-v1:ppo_gru_masked", "CartPole-v1:ppo_phased"])
@pytest.mark.parametrize("timesteps", [1, 50, 256])
def test_the_overrides_make_a_valid_short_run(spec: str, timesteps: int) -> None:
    config = load(spec, trial.small(load(spec).config, timesteps)).config
    assert config.training.total_timesteps <= max(timesteps, 4)
    assert config.environment.num_envs <= 4 and config.algorithm.config.rollout_steps <= 32
    assert not config.logging.wandb.enabled and not config.training.evaluation.video.every_evaluations


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    trial.main("env", "CartPoole-v1", "5")
    told = _told(capsys)
    assert told["status"] == "FAIL" and "CartPoole-v1" in told["detail"]


def test_what_is_not_installed_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any) -> None:
        raise MissingExtra("environment.id: X", "atari")

    monkeypatch.setitem(trial.TRIALS, "env", absent)
    trial.main("env", "X", "5")
    assert _told(capsys) == {"status": "MISSING", "detail": "pip install 'ludus[atari]'"}


def test_an_observation_outside_its_space_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.envs.vector.cartpole import CartPoleVectorEnv

    step = CartPoleVectorEnv.step
    monkeypatch.setattr(CartPoleVectorEnv, "step", lambda self, a: step(self, a)._replace(obs=self._task.obs + 100))
    with pytest.raises(EnvironmentFailed, match="step 0: an observation has"):
        trial.env("CartPole-v1:ppo", 5)


def test_a_recording_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    trial.video("CartPole-v1:ppo", 10)
    assert (tmp_path / "smoke.mp4").stat().st_size > 1000


def _python(tmp_path: Path, body: str) -> str:
    """Stands for the interpreter: answers like a trial that does `body`."""
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\nimport os, sys, time, json\n{body}\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (f"os.kill(os.getpid(), {int(signal.SIGSEGV)})", "died of SIGSEGV"),
        ("sys.exit('RuntimeError: no good')", "RuntimeError: no good"),
        ("os._exit(7)", "exit code 7"),
        ("time.sleep(60)", "took longer than 1 s"),
    ],
)
def test_a_crash_is_a_row(tmp_path: Path, body: str, detail: str) -> None:
    (result,) = smoke.run("env", ["X"], timesteps=1, timeout=1, python=_python(tmp_path, body))
    assert (result.status, result.detail) == ("FAIL", detail)


def test_one_crash_does_not_end_the_table(tmp_path: Path) -> None:
    good = 'print(json.dumps({"status": "PASS", "detail": ""}))'
    body = f"os.abort() if sys.argv[4] == 'bad' else {good}"
    results = list(smoke.run("env", ["a", "bad", "c"], timesteps=1, timeout=30, python=_python(tmp_path, body)))
    assert {result.spec: result.status for result in results} == {"a": "PASS", "bad": "FAIL", "c": "PASS"}


def test_own_configs_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs" / "environments").mkdir(parents=True)
    (tmp_path / "configs" / "environments" / "Mine.yaml").write_text(
        "x: {algorithm: random, environment: {id: Acrobot-v1}}"
    )
    monkeypatch.chdir(tmp_path)
    assert "Mine:x" in smoke.targets()
    assert smoke.one("env", "Mine:x", 5, 120).status == "PASS"
    assert sorted(os.listdir(tmp_path)) == ["configs"]  # noqa: PTH208 - nothing is left behind


def test_summary_and_exit_code() -> None:
    rows = [Result("a", "PASS", 1.0), Result("b", "MISSING", 1.0, "pip install 'ludus[x]'")]
    assert smoke.summary(rows) == "1 passed, 1 missing"
    assert (smoke.exit_code(rows), smoke.exit_code(rows, strict=True)) == (0, 1)
    assert smoke.exit_code([*rows, Result("c", "FAIL", 1.0, "no")]) == 1


def test_resolve() -> None:
    assert trial.resolve("CartPole-v1:ppo") == ("CartPole-v1:ppo", [])
    assert trial.resolve("CartPole-v1") == ("CartPole-v1:ppo", [])
    assert trial.resolve("CliffWalking-v1") == ("CartPole-v1:ppo", ["environment.id=CliffWalking-v1"])
    assert trial.resolve("ALE-Surround-v5") == ("CartPole-v1:ppo", ["environment.id=ALE/Surround-v5"])
    assert trial.environment("CartPole-v1:ppo_masked") == load("CartPole-v1:ppo_masked").config.environment
    with pytest.raises(ConfigError):
        trial.environment("CartPole-v1:nope")
