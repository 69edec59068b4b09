"""Is resume exact? Trains, kills with SIGKILL, resumes, and compares with an uninterrupted run; one JSON line each.

python benchmarks/resume_exact.py [--filter CartPole] [--kills 2]
python benchmarks/resume_exact.py --compiled --series 6      # compiled updates: many series against one whole run
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.metrics.sinks.jsonl import read_rows
from ludus.verify import TIMING

PPO = ("algorithm.rollout_steps=32", "algorithm.batch_size=0.5", "algorithm.epochs=2")
GAMES = ("environment.num_envs=4", "environment.max_episode_steps=300", *PPO, "training.total_timesteps=4096")
DREAM = (
    "algorithm.batch_size=4",
    "algorithm.sequence_length=8",
    "algorithm.train_ratio=1",
    "training.total_timesteps=5000",
)
PLAN = (
    "algorithm.batch_size=16",
    "algorithm.candidates=16",
    "algorithm.policy_candidates=2",
    "algorithm.elites=4",
    "algorithm.rounds=2",
    "training.total_timesteps=5000",
)
CASES: dict[str, tuple[str, ...]] = {
    "CartPole-v1:ppo": PPO,
    "CartPole-v1:ppo_gru_masked": ("algorithm.rollout_steps=32",),
    "CartPole-v1:reinforce": ("algorithm.rollout_steps=64",),
    "CartPole-v1:a2c": ("algorithm.rollout_steps=32",),
    "LookAndFeel-v0:ppo": PPO,
    "LookAndFeel-v0:dqn": ("algorithm.update_ratio=0.1",),
    "Pendulum-v1:ppo": PPO,
    "FrozenLake-v1:ppo": PPO,
    "Taxi-v4:ppo": PPO,
    "Acrobot-v1:ppo": PPO,
    "MountainCar-v0:ppo": PPO,
    "LunarLander-v3:ppo": PPO,
    "BipedalWalker-v3:ppo": PPO,
    "HalfCheetah-v5:ppo": PPO,
    "Ant-v5:ppo": PPO,
    "MiniGrid-DoorKey-5x5-v0:ppo": PPO,
    "ALE-Breakout-v5:ppo": GAMES,
    "ALE-Pong-v5:ppo": (*GAMES, "environment.vectorization=sync"),
    "CartPole-v1:dqn": ("algorithm.update_ratio=0.1",),
    "CartPole-v1:rainbow": ("algorithm.update_ratio=0.1", "buffers.replay.size=3000"),
    "Pendulum-v1:sac": ("algorithm.update_ratio=0.1",),
    "Pendulum-v1:td3": ("algorithm.update_ratio=0.1", "buffers.replay.storage=disk"),
    "FrozenLake-v1:q_learning": (),
    "CartPole-v1:dreamer": DREAM,
    "CartPole-v1:dreamer_v2": (*DREAM, "buffers.replay.storage=disk"),
    "Pendulum-v1:dreamer": DREAM,
    "MinAtar-Breakout-v1:dreamer": (*DREAM, "algorithm.size=tiny", "buffers.replay.storage=disk"),
    "Pendulum-v1:planet": (*DREAM, "algorithm.candidates=16", "algorithm.elites=4", "algorithm.rounds=2"),
    "Pendulum-v1:tdmpc2": (*PLAN, "environment.num_envs=2"),
    "Pendulum-v1:tdmpc": (*PLAN, "buffers.replay.storage=disk"),
    "InvertedPendulum-v5:tdmpc2": PLAN,
}
"""Shipped configs, made small."""
OFFLINE = "CartPole-v1:dqn stored steps only"
"""A run that takes no environment steps: it learns from what `CartPole-v1:dqn` has stored."""
OFFLINE_CONFIG = """
environment: {{id: Nowhere-v0}}
algorithm: {{name: dqn, lr: lin_0.001}}
buffers: {{replay: {{type: stored, path: {steps}}}}}
training: {{total_updates: 6_000, epoch_updates: 500, checkpoints: {{every_updates: 500}}}}
runtime: {{compile: never}}
"""
SHORT_LAST = ("training.total_timesteps=6200", "training.checkpoints.every_steps=600")
COMPILED: dict[str, tuple[str, ...]] = {
    "CartPole-v1:ppo": SHORT_LAST,  # the last rollout is shorter than the others
    "CartPole-v1:ppo_phased": ("training.total_timesteps=24200", "training.checkpoints.every_steps=1500"),
    "CartPole-v1:ppo_replay": SHORT_LAST,
    "CartPole-v1:dqn": ("training.total_timesteps=6010", "algorithm.update_ratio=0.5"),
    "Pendulum-v1:td3": ("training.total_timesteps=3010", "algorithm.update_ratio=0.5"),
    "CartPole-v1:dreamer": (*DREAM, "training.checkpoints.every_steps=600"),
    "Pendulum-v1:tdmpc2": (*PLAN, "training.checkpoints.every_steps=600"),
}
"""The same with `runtime.compile=always`."""
COMMON = ("training.checkpoints.every_steps=1500", "training.evaluation.every_steps=3000", "runtime.compile=never")
ENDS = ("training.total_timesteps=10240", "training.evaluation.episodes=2", "training.stop.eval_reward=null", "-q")


def command(case: str, *, compiled: bool) -> list[str]:
    """The command line of a case."""
    own = (*COMPILED[case], "runtime.compile=always") if compiled else CASES[case]
    return ["train", case, *COMMON, *ENDS, *own]


def offline(scratch: Path) -> list[str]:
    """The command line of the offline case, with the steps it learns from."""
    process = ludus(command("CartPole-v1:dqn", compiled=False), scratch / "collected")
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors)
    steps = (scratch / "collected" / "runs" / "@last").resolve()
    (scratch / "offline.yaml").write_text(OFFLINE_CONFIG.format(steps=steps))
    return ["train", str(scratch / "offline.yaml"), "-q"]


def ludus(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """A child process in a folder of its own."""
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "ludus", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(folder: Path) -> tuple[str, list[dict[str, float | str]], str]:
    """Hash of the final state, rows without timings, and how environments were restored."""
    run = (folder / "runs" / "@last").resolve()
    rows = [{k: v for k, v in row.items() if not k.startswith(TIMING)} for row in read_rows(run / "metrics.jsonl")]
    state = checkpoint.load(checkpoint.find(run, "last"))
    return fingerprint(state), rows, state["collector"]["snapshot_method"] if "collector" in state else "stored steps"


def kill_at_random(process: subprocess.Popen[str], folder: Path, rng: random.Random) -> None:
    """SIGKILL some time after the first checkpoint is there."""
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline:
        if list(folder.glob("runs/*_*/checkpoints/*=*")):
            break
        time.sleep(0.02)
    time.sleep(rng.uniform(0.1, 3.0))
    process.send_signal(signal.SIGKILL)
    process.wait()


def broken_run(words: list[str], folder: Path, kills: int, rng: random.Random) -> str | None:
    """Train with so many SIGKILLs in between; the error of the last process, if any."""
    kill_at_random(ludus(words, folder), folder, rng)
    for _ in range(kills - 1):
        kill_at_random(ludus(["resume", "@last"], folder), folder, rng)
    last = ludus(["resume", "@last"], folder)
    _, errors = last.communicate()
    return errors.strip().splitlines()[-1] if last.returncode else None


def measure(case: str, kills: int, rng: random.Random, *, compiled: bool = False, series: int = 1) -> dict[str, object]:
    """One config: a whole run, and as many broken ones as asked for."""
    with tempfile.TemporaryDirectory() as scratch:
        words = offline(Path(scratch)) if case == OFFLINE else command(case, compiled=compiled)
        whole = Path(scratch, "whole")
        process = ludus(words, whole)
        _, errors = process.communicate()
        if process.returncode:
            return {"environment": case, "error": errors.strip().splitlines()[-1] if errors.strip() else "failed"}
        expected, rows, rung = outcome(whole)
        exact = 0
        for number in range(series):
            broken = Path(scratch, f"broken{number}")
            problem = broken_run(words, broken, kills, rng)
            if problem is not None:
                return {"environment": case, "error": problem}
            found, same, _ = outcome(broken)
            exact += found == expected and same == rows
        verdict = {"exact": exact == series} if series == 1 else {"exact": exact, "of": series}
        return {"environment": case, **verdict, "rung": rung, "sha256": expected[:16]}


def main() -> None:
    """All cases, or those whose name holds --filter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="the configs whose updates are compiled")
    parser.add_argument("--series", type=int, default=1, help="broken runs for each whole one")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for case in COMPILED if options.compiled else (*CASES, OFFLINE):
        if options.filter in case:
            found = measure(case, options.kills, rng, compiled=options.compiled, series=options.series)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
