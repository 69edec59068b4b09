"""Resume is exact: train 2N == train N, kill -9, resume N, to the last bit, for weights, optimizer and metrics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demonstrations import demonstrations
from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.archive.store import read_json
from ludus.metrics.sinks.jsonl import read_rows

TIMING = ("seconds", "train/time/", "val/time/", "train/system/")
PPO = ["algorithm.rollout_steps=32", "algorithm.batch_size=0.5", "algorithm.epochs=2"]
SAC = ["algorithm.update_ratio=0.1", "algorithm.batch_size=32", "algorithm.epoch_steps=256", "environment.num_envs=2"]
DQN = ["algorithm.update_ratio=0.05", "algorithm.batch_size=16", "algorithm.epoch_steps=256"]
CASES = {
    "CartPole-v1:ppo": [*PPO],
    "CartPole-v1:reinforce": ["algorithm.rollout_steps=64"],
    "CartPole-v1:a2c": ["algorithm.rollout_steps=32"],
    "LookAndFeel-v0:dqn": [*DQN],
    "CartPole-v1:ppo_gru_masked": ["algorithm.rollout_steps=32"],
    "CartPole-v1:ppo_trxl_masked": ["algorithm.rollout_steps=32", "algorithm.epochs=2"],
    "Pendulum-v1:ppo": [*PPO],
    "FrozenLake-v1:ppo": [*PPO],
    "FrozenLake-v1:q_learning": [],
    "CartPole-v1:ppo_replay": ["algorithm.epochs=2"],
    "CartPole-v1:sac": [*SAC, "runtime.overlap=true"],
    "Pendulum-v1:sac": [*SAC],
    "Pendulum-v1:sac_gru_masked": [*SAC, "algorithm.sequence_length=8", "algorithm.burn_in=2"],
    "Pendulum-v1:td3": [*SAC, "buffers.replay.storage=disk"],
    "CartPole-v1:dqn": [*DQN],
    "CartPole-v1:rainbow": [*DQN, "buffers.replay.size=2000"],
    "CartPole-v1:dqn_gru_masked": [*DQN, "buffers.replay.storage=disk", "buffers.replay.size=3000"],
    "LunarLander-v3:ppo": [*PPO],
}
COMMON = ["training.total_timesteps=12288", "training.checkpoints.every_steps=2000", "runtime.compile=never", "-q"]
EVALUATION = [
    "training.evaluation.every_steps=3000",
    "training.evaluation.episodes=3",
    "training.stop.eval_reward=null",
]


def ludus(*words: str, folder: Path, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "ludus", *words],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def only_run(folder: Path) -> Path:
    (run,) = [path for path in (folder / "runs").iterdir() if path.is_dir() and not path.is_symlink()]
    return run


def outcome(run: Path) -> tuple[str, list[dict]]:
    rows = [{k: v for k, v in row.items() if not k.startswith(TIMING)} for row in read_rows(run / "metrics.jsonl")]
    return fingerprint(checkpoint.load(checkpoint.find(run, "last"))), rows


def kill_when_past(process: subprocess.Popen, run_folder: Path, steps: int) -> None:
    """SIGKILL once a checkpoint beyond `steps` is there; the moment within a cycle is up to the scheduler."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = [run for run in (run_folder / "runs").glob("*_*") if not run.is_symlink()]
        if found and any(checkpoint.position(name)[0] > steps for name in checkpoint.checkpoints(found[0])):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    process.wait()


@pytest.mark.integration
def test_a_run_that_only_learns_from_stored_steps_is_killed_and_resumed(tmp_path: Path) -> None:
    """Its environment does not exist, and neither process asks for it."""
    collect = ["train", "CartPole-v1:dqn", *DQN, "training.total_timesteps=2048", "-q"]
    finished(ludus(*collect, "training.evaluation.every_steps=null", "training.stop.eval_reward=null", folder=tmp_path))
    steps = only_run(tmp_path)
    (tmp_path / "offline.yaml").write_text(OFFLINE.format(steps=steps))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    words = ["train", str(tmp_path / "offline.yaml"), "-q"]
    finished(ludus(*words, folder=whole))
    kill_when_past(ludus(*words, folder=broken), broken, 300)
    kill_when_past(ludus("resume", "@last", folder=broken), broken, 1_000)
    finished(ludus("resume", "@last", folder=broken))
    expected, rows = outcome(only_run(whole))
    assert outcome(only_run(broken)) == (expected, rows)
    assert rows[-1]["updates"] == 2_000
    assert len({row["train/hp/lr"] for row in rows}) == len(rows)


@pytest.mark.integration
@pytest.mark.parametrize("algorithm", ["behaviour_cloning", "iql"])
def test_a_run_that_learns_from_a_data_set_is_killed_and_resumed(algorithm: str, tmp_path: Path) -> None:
    """No process has an environment; both read the data set anew and draw on where the killed one was saved."""
    pytest.importorskip("minari")
    folder, _ = demonstrations(tmp_path / "demos-v0", episodes=12)
    words = ["train", f"+experiment={algorithm}", f"buffers.demos.path={folder}", "algorithm.batch_size=32", "-q"]
    words += ["training.total_updates=400", "training.epoch_updates=20", "training.checkpoints.every_updates=20"]
    words += ["runtime.compile=never", "algorithm.lr=lin_0.001", "environment.normalize_obs=rolling"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    finished(ludus(*words, folder=whole))
    kill_when_past(ludus(*words, folder=broken), broken, 50)
    kill_when_past(ludus("resume", "@last", folder=broken), broken, 150)
    finished(ludus("resume", "@last", folder=broken))
    expected, rows = outcome(only_run(whole))
    assert outcome(only_run(broken)) == (expected, rows)
    assert rows[-1]["updates"] == 400 and len(rows) == 20


OFFLINE = """
environment: {{id: Nowhere-v0}}
algorithm: {{name: dqn, lr: lin_0.001, batch_size: 32}}
buffers: {{replay: {{type: stored, path: {steps}}}}}
training: {{total_updates: 2_000, epoch_updates: 200, checkpoints: {{every_updates: 200}}}}
runtime: {{compile: never}}
"""
LONG = ("CartPole-v1:ppo_trxl_masked", "CartPole-v1:sac", "Pendulum-v1:sac_gru_masked", "CartPole-v1:dqn_gru_masked")
"""Half a minute each, and not far from another case."""


@pytest.mark.integration
@pytest.mark.parametrize(
    "spec", [pytest.param(spec, marks=pytest.mark.slow) if spec in LONG else spec for spec in CASES]
)
def test_killed_twice_and_resumed_equals_uninterrupted(spec: str, tmp_path: Path) -> None:
    check_kills(spec, tmp_path)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("spec", ["CartPole-v1:dqn", "CartPole-v1:rainbow", "Pendulum-v1:sac"])
def test_the_same_while_steps_are_taken_ahead(spec: str, tmp_path: Path) -> None:
    """The step that is under way when a checkpoint is written, or the process dies, is neither lost nor taken twice."""
    check_kills(spec, tmp_path, "runtime.overlap=true", "algorithm.train_freq=1")


@pytest.mark.integration
@pytest.mark.parametrize("spec", ["LunarLander-v3:ppo", pytest.param("BipedalWalker-v3:ppo", marks=pytest.mark.slow)])
def test_python_without_assertions_resumes_exactly(spec: str, tmp_path: Path) -> None:
    """`python -O` skips every assert, so none may do work. These environments must know before the first reset how they
    are saved: by replaying actions, or by making new environments at every checkpoint."""
    pytest.importorskip("Box2D")
    check_kills(spec, tmp_path, *PPO, optimize="1")


def check_kills(spec: str, tmp_path: Path, *more: str, optimize: str = "") -> None:
    """One run without an end, one with two; the same in the last bit."""
    words = ["train", spec, *CASES.get(spec, []), *more, *COMMON, *EVALUATION]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    finished(ludus(*words, folder=whole))  # with assertions: the others must equal it without them
    kill_when_past(ludus(*words, folder=broken, PYTHONOPTIMIZE=optimize), broken, 1_000)
    kill_when_past(ludus("resume", "@last", folder=broken, PYTHONOPTIMIZE=optimize), broken, 5_000)
    finished(ludus("resume", "@last", folder=broken, PYTHONOPTIMIZE=optimize))
    expected, rows = outcome(only_run(whole))
    found, same = outcome(only_run(broken))
    assert found == expected
    assert same == rows


@pytest.mark.integration
def test_resume_falls_back_when_the_newest_checkpoint_is_corrupt(tmp_path: Path) -> None:
    words = ["train", "CartPole-v1:ppo", *PPO, *COMMON, *EVALUATION]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    finished(ludus(*words, folder=whole))
    kill_when_past(ludus(*words, folder=broken), broken, 5_000)
    newest = checkpoint.find(only_run(broken), "last")
    data = bytearray((newest / "tensors.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (newest / "tensors.safetensors").write_bytes(data)
    process = ludus("resume", "@last", folder=broken)
    finished(process)
    assert f"skipped {newest}/" in (only_run(broken) / "run.log").read_text()
    assert outcome(only_run(broken)) == outcome(only_run(whole))


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_and_exits_75(number: signal.Signals, tmp_path: Path) -> None:
    words = ["train", "CartPole-v1:ppo", *PPO, *COMMON, *EVALUATION]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    finished(ludus(*words, folder=whole))
    process = ludus(*words, folder=broken)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(p.stat().st_size for p in broken.glob("runs/*_*/metrics.jsonl")):
        time.sleep(0.01)
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert "Traceback" not in errors
    finished(ludus("resume", "@last", folder=broken))
    assert outcome(only_run(broken)) == outcome(only_run(whole))


@pytest.mark.integration
def test_auto_goes_on_with_the_unfinished_run_of_just_this_config(tmp_path: Path) -> None:
    words = ["train", "CartPole-v1:ppo", *PPO, *COMMON, "--resume", "auto"]
    process = ludus(*words, folder=tmp_path)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(p.stat().st_size for p in tmp_path.glob("runs/*_*/metrics.jsonl")):
        time.sleep(0.01)
    process.kill()
    process.communicate()
    finished(ludus(*words, folder=tmp_path))
    run = only_run(tmp_path)
    assert "resumed at" in (run / "run.log").read_text()
    finished(ludus(*words, "seed=7", "training.total_timesteps=512", folder=tmp_path))
    assert (tmp_path / "runs" / "@last").resolve() != run
    process = ludus("train", "CartPole-v1:ppo", "--resume", "@last", folder=tmp_path)
    assert "leave the spec out" in process.communicate(timeout=60)[1]
    assert process.returncode == 2


@pytest.mark.integration
def test_a_finished_run_is_left_alone_and_can_be_extended(tmp_path: Path) -> None:
    words = ["train", "CartPole-v1:ppo", *PPO, "runtime.compile=never", *EVALUATION, "-q"]
    finished(ludus(*words, "training.total_timesteps=1024", folder=tmp_path))
    run = only_run(tmp_path)
    assert read_json(run / "metrics.json")["alerts"] == []
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    finished(ludus("resume", "@last", folder=tmp_path))
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    finished(ludus("resume", "@last", "training.total_timesteps=2048", folder=tmp_path))
    assert list(read_rows(run / "metrics.jsonl"))[-1]["env_steps"] == 2_048


@pytest.mark.integration
def test_a_run_that_reached_its_goal_goes_on_to_a_higher_one_within_its_budget(tmp_path: Path) -> None:
    evaluation = ["training.evaluation.every_steps=512", "training.evaluation.episodes=2"]
    goal = ["training.stop.eval_reward=1", "training.stop.confirm_episodes=0"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = ["train", "CartPole-v1:ppo", *PPO, "runtime.compile=never", *evaluation, "training.total_timesteps=2048"]
    for folder, own in ((whole, ["training.stop.eval_reward=600"]), (broken, goal)):
        folder.mkdir()
        finished(ludus(*words, *own, "training.checkpoints.every_steps=512", "-q", folder=folder))
    run = only_run(broken)
    assert list(read_rows(run / "metrics.jsonl"))[-1]["env_steps"] == 512
    finished(ludus("resume", "@last", "training.stop.eval_reward=600", folder=broken))
    assert outcome(run)[0] == outcome(only_run(whole))[0]
    assert read_json(run / "status.json")["env_steps"] == 2_048


@pytest.mark.integration
def test_a_resumed_run_refuses_to_become_another(tmp_path: Path) -> None:
    words = ["train", "CartPole-v1:ppo", *PPO, "runtime.compile=never", *EVALUATION, "-q"]
    finished(ludus(*words, "training.total_timesteps=512", folder=tmp_path))
    process = ludus("resume", "@last", "algorithm.gamma=0.5", "training.total_timesteps=4096", folder=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert "algorithm.gamma: 0.98 -> 0.5" in errors
    assert "training.total_timesteps may change" in errors


@pytest.mark.integration
def test_weights_can_start_another_run(tmp_path: Path) -> None:
    words = ["train", "CartPole-v1:ppo", *PPO, "runtime.compile=never", "training.total_timesteps=512", "-q"]
    finished(ludus(*words, folder=tmp_path))
    first = only_run(tmp_path)
    finished(ludus(*words, "--init-from", f"{first.name}/@last", "algorithm.gamma=0.9", folder=tmp_path))
    second = (tmp_path / "runs" / "@last").resolve()
    assert second != first
    assert "weights taken over: 12 tensors" in (second / "run.log").read_text()
    finished(ludus("resume", first.name, "algorithm.lr=1e-4", "--mode", "warm_start_optimizer", folder=tmp_path))
    process = ludus(*words, "--init-from", first.name, "network.actor.hidden_dims=[32]", folder=tmp_path)
    finished(process)
    assert "did not fit" in ((tmp_path / "runs" / "@last").resolve() / "run.log").read_text()
