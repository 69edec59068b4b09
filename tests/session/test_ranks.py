"""A run over two ranks: one folder, one log, one end; the second rank is a process of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.algorithms import AlgorithmConfig
from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.errors import ConfigError, LudusError
from ludus.learning.ranks import ConnectedRanks
from ludus.metrics.sinks.jsonl import read_rows
from ludus.orchestration import orchestrator
from ludus.orchestration.agreement import agreed_settings
from ludus.run import Run
from ludus.session import ranks as session_ranks
from ludus.session.ranks import check_alike, first_host, launched, leads, ranks_of
from session.conftest import SMALL, Ludus, only_run
from support import build, config
from two_ranks import together

PPO = [*SMALL, "--ranks", "2", "environment.normalize_obs=rolling", "environment.normalize_reward=true"]
SAC = [
    "Pendulum-v1:sac",
    "--ranks",
    "2",
    "environment.num_envs=4",
    "algorithm.learning_starts=64",
    "algorithm.batch_size=16",
    "algorithm.train_freq=4",
    "algorithm.update_ratio=0.25",
    "algorithm.epoch_steps=64",
    "network.critic.hidden_dims=[16]",
    "network.actor.hidden_dims=[16]",
    "buffers.replay.size=1024",
    "training.evaluation.every_steps=null",
    "training.stop.eval_reward=null",
    "training.checkpoints.every_steps=64",
    "training.checkpoints.keep=20",
    "training.total_timesteps=384",
    "-q",
]


@pytest.fixture
def at_epoch(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[int], None]], None]:
    """Do something with the process of rank 1 when rank 0 ends an epoch."""
    started: list[Any] = []
    enter = session_ranks.Followers.__enter__

    def remember(self: Any) -> Any:
        started.append(enter(self))
        return self

    def arrange(epoch: int, act: Callable[[int], None]) -> None:
        def agreeing(run: Run) -> list[AlgorithmConfig]:
            if run.progress.epochs == epoch:
                act(started[-1].processes[0].pid)
            return agreed_settings(run)

        monkeypatch.setattr(session_ranks.Followers, "__enter__", remember)
        monkeypatch.setattr(orchestrator, "agreed_settings", agreeing)

    return arrange


def final(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """The state of the last checkpoint, and the rows without times."""
    rows = [
        {key: value for key, value in row.items() if "time/" not in key and "system/" not in key and key != "seconds"}
        for row in read_rows(folder / "metrics.jsonl")
    ]
    return fingerprint(checkpoint.load(checkpoint.find(folder, "last"))), rows


def test_a_killed_rank_ends_the_run_with_one_line_and_the_run_goes_on_to_the_bit(
    ludus: Ludus, tmp_path: Path, at_epoch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ludus("train", *PPO, "training.total_timesteps=384", "--runs-dir", "whole/runs")
    assert whole.code == 0, whole.err
    assert "2 ranks" in whole.out and "4 at once, 2 in each rank" in whole.out
    assert "eager (ranks exchange their gradients" in whole.out
    rows = list(read_rows(only_run(tmp_path / "whole") / "metrics.jsonl"))
    assert [row["env_steps"] for row in rows] == [64, 128, 192, 256, 320, 384]

    with monkeypatch.context():
        at_epoch(3, lambda pid: os.kill(pid, signal.SIGKILL))
        killed = ludus("train", *PPO, "training.total_timesteps=384")
    assert killed.code == 4
    (line,) = killed.err.strip().splitlines()
    assert line.startswith("error: rank 1 (process ") and "killed by signal 9" in line and "ludus resume" in line
    folder = only_run(tmp_path)
    assert "killed by signal 9" in (folder / "run.log").read_text()

    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = ludus("resume", folder.name)
    assert again.code == 0, again.err
    assert final(folder) == final(only_run(tmp_path / "whole"))
    assert "identical: 6 rows up to step 384 and the final state" in ludus("verify", folder.name).out


def test_a_signal_to_any_rank_stops_all_of_them_and_buffers_go_on_to_the_bit(
    ludus: Ludus, tmp_path: Path, at_epoch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ludus("train", *SAC, "--runs-dir", "whole/runs").code == 0
    at_epoch(3, lambda pid: (os.kill(pid, signal.SIGTERM), time.sleep(0.3)))
    stopped = ludus("train", *SAC)
    assert stopped.code == 75, stopped.err
    folder = only_run(tmp_path)
    assert "SIGTERM" in (folder / "status.json").read_text()
    assert (folder / "buffers" / "rank=1" / "replay" / "index.json").exists()

    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert ludus("resume", folder.name).code == 0
    assert final(folder) == final(only_run(tmp_path / "whole"))


def test_a_hung_rank_ends_the_run_after_its_timeout(
    ludus: Ludus, at_epoch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_ranks, "LAST_SECONDS", 0.5)
    at_epoch(2, lambda pid: os.kill(pid, signal.SIGSTOP))
    done = ludus("train", *PPO, "training.total_timesteps=512", "runtime.rank_timeout=2")
    assert done.code == 4
    (line,) = done.err.strip().splitlines()
    assert "another rank has not answered for 2 seconds" in line and "ludus resume" in line


FAILS_ON_RANK_1 = """
import os
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Brittle(CartPoleEnv):
    def step(self, action):
        if os.environ.get("RANK") == "1":
            raise OSError("no more steps")
        return super().step(action)

gym.register("Brittle-v0", Brittle, max_episode_steps=50)
"""


def test_what_fails_on_another_rank_is_told_by_the_first(ludus: Ludus, tmp_path: Path) -> None:
    (tmp_path / "brittle.py").write_text(FAILS_ON_RANK_1)
    done = ludus("train", *PPO, "environment.id=Brittle-v0", "--plugin", "brittle.py", "training.total_timesteps=128")
    assert done.code == 4
    (line,) = done.err.strip().splitlines()
    assert line.startswith("error: rank 1: ") and "no more steps" in line


def test_rank_0_decides_when_the_goal_is_reached(ludus: Ludus, tmp_path: Path) -> None:
    """An evaluation, its confirmation and the stop after it, all of which only rank 0 sees."""
    goal = ["training.evaluation.every_steps=128", "training.evaluation.episodes=2", "training.stop.eval_reward=1.0"]
    done = ludus("train", *PPO, "training.total_timesteps=640", *goal, "training.stop.confirm_episodes=3")
    assert done.code == 0, done.err
    assert "over 3 fresh episodes reached 1" in (only_run(tmp_path) / "status.json").read_text()
    saved = checkpoint.load(checkpoint.find(only_run(tmp_path), "last"))
    assert saved["scheduler"]["progress"]["env_steps"] == 128
    assert set(saved["ranks"]) == {"1"}
    assert set(saved["ranks"]["1"]) == {"collector", "buffers", "reward_normalizer", "torch", "exploration"}
    own, other = saved["exploration"], saved["ranks"]["1"]["exploration"]
    assert own["state"] != other["state"]


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_another_number_of_ranks_is_refused_and_names_the_warm_start(ludus: Ludus, trained: Path) -> None:
    done = ludus("resume", trained.name, "runtime.ranks=2", "training.total_timesteps=1024")
    assert done.code == 2
    assert "cannot change runtime.ranks: 1 -> 2" in done.err and "--mode warm_start" in done.err


def test_a_state_of_another_number_of_ranks_does_not_load() -> None:
    run = build(config())
    state = {**run.state_dict(), "ranks": {"1": {}}}
    with pytest.raises(ValueError, match=r"it was saved by 2 rank\(s\), runtime.ranks is 1"):
        run.load_state_dict(state)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["FrozenLake-v1:q_learning"], "runtime.ranks: q_learning does not learn over several ranks"),
        (["CartPole-v1:ppo", "environment.num_envs=5"], "environment.num_envs: 5 cannot be divided among 2 ranks"),
        (
            ["Pendulum-v1:sac", "environment.num_envs=2", "algorithm.batch_size=33"],
            "algorithm.batch_size: 33 cannot be divided among 2 ranks",
        ),
        (
            ["CartPole-v1:ppo", "training.evaluation.background=true"],
            "training.evaluation.background: a run over several ranks evaluates in its first rank",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused(ludus: Ludus, words: list[str], problem: str) -> None:
    done = ludus("train", *words, "--ranks", "2", "-q")
    assert done.code == 2
    (line,) = done.err.strip().splitlines()
    assert problem in line


def test_commands_that_train_in_one_process_refuse_ranks() -> None:
    with pytest.raises(ConfigError, match=r"2 ranks are asked for, and this command trains in 1 process"):
        build(config(runtime={"ranks": 2}))


# ---- launchers -------------------------------------------------------------------------------------------------------


def test_who_am_i_is_read_from_the_variables_of_torchrun_and_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert launched(torchrun) == (3, 4, 1, 2, "torchrun")
    srun = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1", "SLURM_NTASKS": "2"}
    assert launched(srun) == (1, 2, 1, 1, "srun")
    assert launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}) is None  # a batch script is no job step
    assert launched({"RANK": "0", "WORLD_SIZE": "1"}) is None and launched({}) is None
    assert leads()
    for name, value in torchrun.items():
        monkeypatch.setenv(name, value)
    assert not leads()
    with (
        pytest.raises(ConfigError, match=r"torchrun started 4 processes, and 2 ranks are asked for; use --ranks 4"),
        ranks_of(config(runtime={"ranks": 2})),
    ):
        pass
    for name in torchrun:
        monkeypatch.delenv(name)
    for name, value in srun.items():
        monkeypatch.setenv(name, value)
    with ranks_of(config()) as alone:  # tasks of a step that are runs of their own
        assert alone.count == 1


@pytest.mark.parametrize(
    ("nodes", "first"), [("gpu03", "gpu03"), ("gpu[03-06,9],cpu1", "gpu03"), ("a1,b[2-3]", "a1"), ("n[7,9]", "n7")]
)
def test_the_first_host_of_a_slurm_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


# ---- ranks that differ -----------------------------------------------------------------------------------------------


def test_ranks_with_another_config_or_network_are_refused_at_the_start() -> None:
    for what, problem in (("lr", "config differs from that of rank 0: algorithm.lr"), ("width", "its config differs")):
        for found in together(met, what):
            assert found.startswith("rank 1: ") and problem in found


def met(ranks: ConnectedRanks, what: str) -> str:
    other = ranks.rank == 1
    settings = {"lr": 1e-3 if what == "lr" and other else 1e-2}
    network = {"actor": {"hidden_dims": [8 if what == "width" and other else 4]}}
    run = build(config({"name": "ppo", **settings}, network=network, runtime={"ranks": 2}), ranks=ranks)
    try:
        check_alike(run, ranks)
    except LudusError as error:
        return error.line()
    return "alike"


def test_environments_have_the_seeds_of_their_number_and_ranks_act_at_random_for_themselves() -> None:
    cfg = config(runtime={"ranks": 2})
    found = together(seeded, cfg)
    alone = build(config()).streams.integers("training environments", 4)
    assert found[0]["seeds"] + found[1]["seeds"] == alone
    assert found[0]["weights"] == found[1]["weights"]
    assert found[0]["action"] != found[1]["action"]


def seeded(ranks: ConnectedRanks, cfg: Any) -> dict[str, Any]:
    run = build(cfg, ranks=ranks)
    assert run.collector is not None and run.scheduler.quantum == 4
    return {
        "seeds": run.streams.integers("training environments", run.collector.num_envs),
        "weights": [float(learner.theta.sum()) for learner in run.learners.values()],
        "action": run.exploration.random(),
    }


def test_episodes_of_all_ranks_are_counted() -> None:
    one, other = together(counted, config(runtime={"ranks": 2}))
    assert one == other
    assert one["roll/episodes"] == 3.0 and one["roll/ep_rew/best"] == 9.0
    assert one["roll/ep_rew/mean"] == pytest.approx((9.0 + 2.0) / 2)


def counted(ranks: ConnectedRanks, cfg: Any) -> dict[str, float]:
    collector = build(cfg, ranks=ranks).collector
    assert collector is not None
    for episode in ([9.0], [1.0, 3.0])[ranks.rank]:
        done = collector.episodes
        done.returns.append(episode)
        done.lengths.append(5)
        done.count, done.best_return = done.count + 1, max(done.best_return, episode)
    return collector.statistics()


@pytest.mark.slow
def test_torchrun_starts_the_same_ranks(tmp_path: Path) -> None:
    import subprocess
    import sys

    words = [*PPO, "training.total_timesteps=128"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    command += ["--standalone", "-m", "ludus", "train", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert checkpoint.load(checkpoint.find(only_run(tmp_path), "last"))["ranks"].keys() == {"1"}
