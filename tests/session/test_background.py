"""`training.evaluation.background`: the numbers of the foreground, at their own steps, whatever ends the run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ludus import Run, load_run, train
from ludus.archive import checkpoint, history
from ludus.archive.fingerprint import fingerprint
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError, EnvironmentFailed
from ludus.orchestration.callbacks.early_stop import EarlyStop
from ludus.session.background import BackgroundEvaluation
from support import build, config

SMALL = {
    "training.total_timesteps": 768,
    "training.evaluation": {"every_steps": 256, "episodes": 3},
    "training.stop": {"eval_reward": None},
    "environment.num_envs": 4,
}
KEYS = ("env_steps", "updates", "val/roll/ep_rew/mean", "val/roll/ep_rew/std", "val/roll/ep_len/mean")


def trained(tmp_path: Path, background: bool, **more: Any) -> Run:
    settings = {**SMALL, "training.evaluation.background": background, **more}
    return train(more.pop("spec", "CartPole-v1:ppo"), settings, quiet=True, runs_dir=tmp_path)


def told(run: Run) -> list[tuple[Any, ...]]:
    """What its evaluations found, and where."""
    return [tuple(row[key] for key in KEYS) for row in history.evaluations(run.folder)]


def weights(run: Run) -> str:
    """Of everything that was learned; in the foreground the last evaluation is part of the state, too."""
    return fingerprint({"algorithm": checkpoint.load(checkpoint.find(run.folder, "last"))["algorithm"]})


def workers(folder: Path) -> list[int]:
    """Processes that evaluate this run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(b"ludus.session.evaluation_worker" in word for word in words) and str(folder).encode() in words:
            found.append(int(path.parent.name))
    return found


def test_the_numbers_are_those_of_the_foreground(tmp_path: Path) -> None:
    """Sampled actions included: everything random follows from seed and step. No process is left."""
    sampled = {"training.evaluation.deterministic": False, "environment.normalize_obs": True}
    back, front = trained(tmp_path, True, **sampled), trained(tmp_path, False, **sampled)
    assert told(back) == told(front) and [row[0] for row in told(back)] == [256, 512, 768]
    assert weights(back) == weights(front)
    assert back.record.reward == front.record.reward and back.record.last == front.record.last
    assert checkpoint.find(back.folder, "best").name == checkpoint.find(front.folder, "best").name
    assert workers(back.folder) == []


def test_a_longer_run_is_the_same_as_one_that_was_resumed(tmp_path: Path) -> None:
    """The last evaluation of the first part is repeated where the longer run takes it."""
    constant = {"algorithm.lr": 1e-3, "algorithm.clip": 0.2}
    whole = trained(tmp_path, True, **constant, **{"training.total_timesteps": 1280})
    part = trained(tmp_path, True, **constant).resume({"training.total_timesteps": 1280}, quiet=True)
    assert told(part) == told(whole) and weights(part) == weights(whole)
    assert [row["epoch"] for row in history.rows(part.folder)] == [row["epoch"] for row in history.rows(whole.folder)]


def test_an_interrupted_evaluation_is_played_after_the_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path, True)
    with monkeypatch.context() as patch:
        patch.setattr(EarlyStop, "on_epoch_end", lambda _, run: run.interrupt("a test") if run.position == 512 else 0)
        run = trained(tmp_path, True)
    assert [row[0] for row in told(run)] == [256]
    state = checkpoint.load(checkpoint.find(run.folder, "last"))
    assert state["callbacks"]["BackgroundEvaluation 0"]["name"] == "step=512"
    assert told(run.resume(quiet=True)) == told(whole) and weights(run) == weights(whole)


def test_a_killed_training_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ludus", "train", "CartPole-v1:ppo", "-q", "--runs-dir", str(tmp_path)]
    command += ["training.evaluation={every_steps: 256, episodes: 50, background: true}", "logging.console=false"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 100
    while not (found := [pid for path in tmp_path.glob("*_*") for pid in workers(path)]):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(_alive(pid) for pid in found):
        assert time.monotonic() < until
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_that_dies_is_told_on_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = BackgroundEvaluation._started

    def killed(self: BackgroundEvaluation) -> Any:
        process = real(self)
        process.kill()
        process.wait()
        return process

    with monkeypatch.context() as patch:
        patch.setattr(BackgroundEvaluation, "_started", killed)
        with pytest.raises(EnvironmentFailed, match="its process was killed by SIGKILL; ludus resume plays"):
            trained(tmp_path, True)
    run = load_run(runs_dir=tmp_path)
    assert told(run.resume(quiet=True)) == told(trained(tmp_path, False))


def test_a_goal_is_seen_one_evaluation_later(tmp_path: Path) -> None:
    goal = {"training.stop": {"eval_reward": 1.0, "confirm_episodes": 0}}
    back, front = trained(tmp_path, True, **goal), trained(tmp_path, False, **goal)
    assert (front.record.env_steps, back.record.env_steps) == (256, 512)
    assert "evaluated mean return" in str(back.record.reason) and len(told(back)) == 2


def test_without_a_folder_results_arrive_at_the_same_moments() -> None:
    rows: list[Any] = []

    class Sink:
        warning = ""

        def write(self, row: Any) -> None:
            rows.append(row)

        def close(self) -> None:
            """Nothing to do."""

    grid = {"evaluation": {"every_steps": 256, "episodes": 2, "background": True}, "total_timesteps": 512}
    run = build(config({"name": "ppo", "rollout_steps": 32}, training=grid), sinks=[Sink()])  # type: ignore[list-item]
    run.run()
    run.close()
    found = [(row["epoch"], row["env_steps"]) for row in rows if "val/roll/ep_rew/mean" in row]
    assert [steps for _, steps in found] == [256, 512] and found[0][0] < found[1][0] == run.progress.epochs + 1


def test_what_cannot_be_played_elsewhere_is_refused(tmp_path: Path) -> None:
    import gymnasium as gym

    with pytest.raises(ValueError, match=r"set video\.every_evaluations to 0"):
        video = {"evaluation": {"background": True, "video": {"every_evaluations": 1}}}
        ExperimentConfig.model_validate({"environment": {"id": "CartPole-v1"}, "algorithm": "ppo", "training": video})
    with pytest.raises(ConfigError, match="handed in from Python"):
        made = {**SMALL, "training.evaluation.background": True}
        train("ppo", made, env=lambda: gym.make("CartPole-v1"), quiet=True, runs_dir=tmp_path)


def test_verify_repeats_it(tmp_path: Path) -> None:
    from ludus.archive.store import RunFolder
    from ludus.verify import verify

    run = trained(tmp_path, True)
    assert verify(RunFolder(run.folder)).identical


OLD = {
    "training.total_timesteps": 1152,
    "training.checkpoints": {"every_steps": 128, "keep": 2},
    "environment.num_envs": 4,
    "algorithm.rollout_steps": 32,
}


def test_going_back_finds_the_evaluation_that_was_under_way(tmp_path: Path) -> None:
    """A checkpoint that stays needs the one that was being evaluated when it was taken: that stays, too."""
    run = trained(tmp_path, True, **OLD)
    there = checkpoint.checkpoints(run.folder)
    waits = {name: checkpoint.load(path)["callbacks"]["BackgroundEvaluation 0"]["name"] for name, path in there.items()}
    assert set(waits.values()) <= set(there) and any(name != waited for name, waited in waits.items())
    before, (first, *_) = told(run), [name for name, waited in waits.items() if name != waited]
    assert told(load_run(f"{run.id}/{first}", runs_dir=tmp_path).resume(quiet=True)) == before


def test_a_folder_without_the_evaluated_checkpoint_goes_on_without_it(tmp_path: Path) -> None:
    run = trained(tmp_path, True, **OLD)
    whole, there = weights(run), checkpoint.checkpoints(run.folder)
    waits = {name: checkpoint.load(path)["callbacks"]["BackgroundEvaluation 0"]["name"] for name, path in there.items()}
    first = next(name for name, waited in waits.items() if name != waited)
    shutil.rmtree(there[waits[first]])
    going_on = load_run(f"{run.id}/{first}", runs_dir=tmp_path).resume(quiet=True)
    assert weights(going_on) == whole
    assert f"{waits[first]} is not there any more" in (run.folder / "run.log").read_text()


def test_a_signal_in_the_last_cycle_does_not_lose_the_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run stops for its own reason, so nobody would resume it."""

    def on_epoch_end(_: EarlyStop, run: Any) -> None:
        if run.position == 512:
            run.stop("a test")
            run.interrupt("a signal")

    monkeypatch.setattr(EarlyStop, "on_epoch_end", on_epoch_end)
    run = trained(tmp_path, True)
    assert run.record.state == "finished" and [row[0] for row in told(run)] == [256, 512]
