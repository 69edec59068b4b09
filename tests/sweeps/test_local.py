"""Real runs: on this machine, killed, at once; what they leave equals what an undisturbed sequence leaves."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus import cli
from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.archive.index import Index
from ludus.cli.sweep_run import stopping

TINY = ("training.total_timesteps=512", "training.evaluation.every_steps=256", "training.evaluation.episodes=1")
LONG = ("training.total_timesteps=6144", "training.evaluation.every_steps=2048", "training.evaluation.episodes=1")
CHECKPOINTS = "training.checkpoints.every_steps=512"


@pytest.fixture
def ludus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`ludus ...` in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return run


def marks(root: Path) -> dict[Any, str]:
    """Name or seed of every run -> fingerprint of its last state."""
    found = {}
    for record in Index(root).records():
        folder = record.folder / "checkpoints"
        found[record.name, record.seed] = fingerprint(checkpoint.load(folder / str((folder / "last").readlink())))
    return found


def test_a_grid_of_four_and_what_is_told_about_it(ludus: Callable[..., Any], tmp_path: Path) -> None:
    words = ["sweep", "CartPole-v1:ppo", "algorithm.lr=1e-3,3e-4", "algorithm.clip=0.1,0.2", *TINY]
    code, out, err = ludus(*words, "--jobs", "2", "--name", "four")
    assert code == 0, err
    assert "best     trial" in out and "ludus train CartPole-v1:ppo" in out
    runs = Index(tmp_path / "runs").find("tags=sweep:four")
    assert {run.name for run in runs} == {f"four-t{i:04}" for i in range(4)} and {run.state for run in runs} == {
        "finished"
    }
    page = (tmp_path / "runs/@sweeps/four/sweep.html").read_text()
    assert "http" not in page.replace("http-equiv", "") and "Parallel coordinates" in page and "<script" not in page
    code, out, _ = ludus("sweep", "show", "four", "--json")
    told = json.loads(out)
    assert [row["settings"] for row in told["trials"]] == [
        {"algorithm.lr": lr, "algorithm.clip": clip} for lr in (1e-3, 3e-4) for clip in (0.1, 0.2)
    ]
    assert told["best"]["value"] == max(row["value"] for row in told["trials"])
    assert ludus("sweep", "best", "four")[1].startswith("ludus train CartPole-v1:ppo ")
    assert ludus("sweep", "resume", "four")[0] == 0
    assert len(Index(tmp_path / "runs").records()) == 4  # nothing was trained again
    import optuna

    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "runs/@sweeps/four/optuna.journal"))
    )
    assert len(optuna.load_study(study_name="four", storage=storage).trials) == 4


def test_seeds_at_once_equal_seeds_one_after_the_other(ludus: Callable[..., Any], tmp_path: Path) -> None:
    words = ["train", "CartPole-v1:ppo", *TINY, "-q", "--seed", "1..3", "--tag", "three"]
    code, out, err = ludus(*words, "--jobs", "2", "--runs-dir", "at-once")
    assert code == 0, err
    assert "3 seeds: last evaluation" in out and "95 % interval" in out and out.count("last evaluation") == 4
    assert ludus(*words, "--runs-dir", "in-turn")[0] == 0
    assert {run.tags for run in Index(tmp_path / "at-once").records()} == {("three",)}
    assert marks(tmp_path / "at-once") == marks(tmp_path / "in-turn")
    assert ludus(*words, "--jobs", "2", "--runs-dir", "at-once", "--resume", "auto")[0] == 0
    assert len(Index(tmp_path / "at-once").records()) == 3  # finished seeds are kept


def test_seeds_that_fail_are_told_apart(ludus: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "plug.py").write_text(
        "import sys\n"
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Picky(CartPoleEnv):\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        if 'seed=2' in sys.argv: raise ValueError('not this seed')\n"
        "        return super().reset(seed=seed, options=options)\n"
        "gym.register('Picky-v0', Picky, max_episode_steps=50)\n"
    )
    words = ["train", "Picky-v0:ppo", "--plugin", "plug.py", *TINY, "environment.num_envs=2", "--seed", "1,2", "-q"]
    code, out, err = ludus(*words, "--jobs", "2")
    assert code == 4 and "failed" in err and "not this seed" in err and err.count("\n") == 1
    assert [run.seed for run in Index(tmp_path / "runs").records() if run.state == "finished"] == [1]


# ---- kill -9 -------------------------------------------------------------------------------------


def begin(root: Path, *words: str) -> subprocess.Popen[str]:
    """A sweep of three long trials in a process of its own."""
    command = [sys.executable, "-m", "ludus", *words]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until(found: Callable[[], Any], seconds: float = 240.0) -> Any:
    """What a function finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.05)
    raise AssertionError("nothing happened")


def saved(root: Path, name: str) -> Path | None:
    """The folder of a run that trains and has a checkpoint besides its first."""
    found = [path for path in root.glob(f"{name}_*") if len(list(path.glob("checkpoints/step=*"))) > 1]
    return found[0] if found and json.loads((found[0] / "status.json").read_text())["state"] == "running" else None


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep without a disturbance."""
    root = tmp_path_factory.mktemp("whole")
    done = begin(root, *KILLED)
    assert done.wait(600) == 0
    return root


KILLED = ("sweep", "CartPole-v1:ppo", "algorithm.lr=1e-3,3e-4,1e-4", *LONG, CHECKPOINTS,
          "training.stop.eval_reward=null", "--name", "kill", "--jobs", "1")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["coordinator", "worker", "trial"])
def test_kill_9_then_resume_repeats_and_loses_nothing(tmp_path: Path, undisturbed: Path, victim: str) -> None:
    """The second of three trials is under way: the first must not be trained again, the second not from its start."""
    sweep = begin(tmp_path, *KILLED)
    folder = until(lambda: saved(tmp_path / "runs", "kill-t0001"))
    trial = int(json.loads((folder / "status.json").read_text())["pid"])
    os.kill({"coordinator": sweep.pid, "worker": parent(trial), "trial": trial}[victim], signal.SIGKILL)
    code = sweep.wait(600)
    assert code == (-signal.SIGKILL if victim == "coordinator" else 0), sweep.stdout and sweep.stdout.read()
    again = begin(tmp_path, "sweep", "resume", "kill", "--jobs", "1")
    assert again.wait(600) == 0
    assert marks(tmp_path / "runs") == marks(undisturbed / "runs")
    log = (folder / "run.log").read_text()
    assert log.count("created for") == 1
    assert len(list((tmp_path / "runs").glob("kill-t*"))) == 3


@pytest.mark.slow
def test_ctrl_c_saves_every_run_and_resume_goes_on(tmp_path: Path, undisturbed: Path) -> None:
    sweep = begin(tmp_path, *KILLED)
    until(lambda: saved(tmp_path / "runs", "kill-t0001"))
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(600) == 75
    states = [run.state for run in Index(tmp_path / "runs").records()]
    assert sorted(states) == ["finished", "stopped"]
    assert begin(tmp_path, "sweep", "resume", "kill").wait(600) == 0
    assert marks(tmp_path / "runs") == marks(undisturbed / "runs")


def test_json_has_standard_output_to_itself(ludus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDUS_QUIET", raising=False)
    code, out, err = ludus("sweep", "CartPole-v1:ppo", "algorithm.lr=1e-3,3e-4", *TINY, "--name", "two", "--json")
    assert code == 0 and len(json.loads(out)["trials"]) == 2 and "two-t0001: final" in err
    code, out, err = ludus("sweep", "retry-failed", "two", "--json")
    assert code == 0 and json.loads(out)["name"] == "two" and "0 failed trials" in err
    tuning = ("--trials", "2", "--steps", "256", "--seeds", "1", "--fresh", "2", "--name", "three")
    code, out, err = ludus("tune", "CartPole-v1:ppo", "algorithm.lr=uniform(1e-3,1e-2)", *tuning, "--json")
    assert code == 0 and json.loads(out)["name"] == "three" and "fresh seeds" in err


def test_a_sweep_in_which_every_trial_fails_has_failed(ludus: Callable[..., Any], tmp_path: Path) -> None:
    words = ["CartPole-v1:ppo", "algorithm.lr=1e-3,3e-4", *TINY, "--name", "none", "--jobs", "1"]
    code, out, err = ludus("sweep", *words, "--metric", "roll/ep_rew/nothing")
    assert code == 2 and "no run writes it" in err
    assert ludus("sweep", "resume", "none")[0] == 2  # the metric of the second trial
    code, out, err = ludus("sweep", "resume", "none")
    assert code == 2 and err.count("\n") == 1 and "no trial was trained to the end: " in err
    shutil.rmtree(tmp_path / "runs/@sweeps/none/logs")
    (tmp_path / "runs/@sweeps/none/sweep.yaml").write_text(
        (tmp_path / "runs/@sweeps/none/sweep.yaml").read_text().replace("roll/ep_rew/nothing", "final")
    )
    assert ludus("sweep", "retry-failed", "none")[0] == 0  # its runs are finished; the logs are made again


def test_a_closed_terminal_stops_a_sweep_but_not_under_nohup() -> None:
    for under_nohup in (False, True):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN if under_nohup else signal.SIG_DFL)
        try:
            asked = argparse.Namespace(stopping=False)
            with stopping(asked):
                os.kill(os.getpid(), signal.SIGHUP)
            assert asked.stopping is not under_nohup
        finally:
            signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_the_shipped_grid_of_27(ludus: Callable[..., Any], tmp_path: Path) -> None:
    code, out, err = ludus("sweep", "configs/sweeps/cartpole_ppo_grid.yaml", *TINY, "--jobs", "2")
    assert code == 0, err
    runs = Index(tmp_path / "runs").records()
    assert len(runs) == 27 and {run.state for run in runs} == {"finished"}
    assert (
        len({(run.get("algorithm.lr"), run.get("algorithm.clip"), run.get("algorithm.epochs")) for run in runs}) == 27
    )
