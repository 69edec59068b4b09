"""Is resume exact? Trains, kills with SIGKILL, resumes, and compares with an uninterrupted run; one JSON line each.

python benchmarks/resume_exact.py [--filter CartPole] [--kills 2]
python benchmarks/resume_exact.py --filter dreamer --signal TERM      # the run saves at the end of a cycle, and goes on
python benchmarks/resume_exact.py --compiled --series 6      # compiled updates: many series against one whole run
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.cli import main as main_of_ludus
from ludus.metrics.sinks.jsonl import read_rows
from ludus.verify import TIMING

PPO = ("algorithm.rollout_steps=32", "algorithm.batch_size=0.5", "algorithm.epochs=2")
GAMES = ("environment.num_envs=4", "environment.max_episode_steps=300", *PPO, "training.total_timesteps=4096")
WORLD = (
    "algorithm.size=tiny",
    "algorithm.epoch_steps=200",
    "training.checkpoints.every_steps=200",
    "training.evaluation.every_steps=600",
    "training.evaluation.episodes=1",
)
DREAM = (
    *WORLD,
    "algorithm.batch_size=4",
    "algorithm.sequence_length=8",
    "algorithm.train_ratio=4",
    "algorithm.learning_starts=200",
    "training.total_timesteps=1100",
)
CEM = (*DREAM, "algorithm.candidates=16", "algorithm.elites=4", "algorithm.rounds=2")
PLAN = (
    *WORLD,
    "algorithm.batch_size=16",
    "algorithm.candidates=16",
    "algorithm.policy_candidates=2",
    "algorithm.elites=4",
    "algorithm.rounds=2",
    "training.total_timesteps=1600",
)
DISK = ("buffers.replay.storage=disk",)
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
    "CartPole-v1:dreamer disk": (*DREAM, *DISK),
    "CartPole-v1:dreamer_v2": DREAM,
    "CartPole-v1:dreamer_v2 disk": (*DREAM, *DISK),
    "Pendulum-v1:dreamer v1": DREAM,
    "Pendulum-v1:dreamer v1 disk": (*DREAM, *DISK),
    "MinAtar-Breakout-v1:dreamer": DREAM,
    "MinAtar-Breakout-v1:dreamer disk": (*DREAM, *DISK),
    "MinAtar-Breakout-v1:dreamer v2": (*DREAM, "algorithm.variant=v2"),
    "MinAtar-Breakout-v1:dreamer v1 disk": (*DREAM, "algorithm.variant=v1", *DISK),
    "Pendulum-v1:planet": CEM,
    "Pendulum-v1:planet disk": (*CEM, *DISK),
    "Pendulum-v1:tdmpc2": (*PLAN, "environment.num_envs=2"),
    "Pendulum-v1:tdmpc": (*PLAN, *DISK),
    "InvertedPendulum-v5:tdmpc2": PLAN,
}
"""Shipped configs, made small; what follows the name of one only tells cases apart."""
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
    "CartPole-v1:dreamer": DREAM,
    "CartPole-v1:dreamer_v2 disk": (*DREAM, *DISK),
    "Pendulum-v1:dreamer v1": DREAM,
    "MinAtar-Breakout-v1:dreamer disk": (*DREAM, *DISK),
    "Pendulum-v1:tdmpc2": PLAN,
    "Pendulum-v1:tdmpc": (*PLAN, *DISK),
}
"""The same with `runtime.compile=always`."""
COMMON = ("training.checkpoints.every_steps=1500", "training.evaluation.every_steps=3000", "runtime.compile=never")
ENDS = ("training.total_timesteps=10240", "training.evaluation.episodes=2", "training.stop.eval_reward=null", "-q")


def command(case: str, *, compiled: bool) -> list[str]:
    """The command line of a case."""
    own = (*COMPILED[case], "runtime.compile=always") if compiled else CASES[case]
    return ["train", case.split()[0], *COMMON, *ENDS, *own]


def offline(scratch: Path) -> list[str]:
    """The command line of the offline case, with the steps it learns from."""
    folder = scratch / "collected"
    if problem := problem_of(ludus(command("CartPole-v1:dqn", compiled=False), folder), folder):
        raise SystemExit(problem)
    steps = (scratch / "collected" / "runs" / "@last").resolve()
    (scratch / "offline.yaml").write_text(OFFLINE_CONFIG.format(steps=steps))
    return ["train", str(scratch / "offline.yaml"), "-q"]


FORKS = multiprocessing.get_context("forkserver")  # importing takes longer than most of these trainings


def ludus(words: list[str], folder: Path) -> BaseProcess:
    """A command in a process of its own and a folder of its own; `errors` has what it says on stderr."""
    folder.mkdir(exist_ok=True)
    process = FORKS.Process(target=command_line, args=(words, folder))
    process.start()
    return process


def command_line(words: list[str], folder: Path) -> None:
    """Be `ludus WORDS`."""
    os.chdir(folder)
    for stream, name in ((sys.stdout, os.devnull), (sys.stderr, "stderr.txt")):
        with Path(name).open("w") as file:
            os.dup2(file.fileno(), stream.fileno())
    main_of_ludus(words)


def problem_of(process: BaseProcess, folder: Path) -> str | None:
    """Wait for a process; its last line on stderr if it failed."""
    process.join()
    if process.exitcode == 0:
        return None
    lines = (folder / "stderr.txt").read_text().strip().splitlines()
    return lines[-1] if lines else f"exit code {process.exitcode}"


def outcome(folder: Path) -> tuple[str, list[dict[str, float | str]], str]:
    """Hash of the final state, rows without timings, and how environments were restored."""
    run = (folder / "runs" / "@last").resolve()
    rows = [{k: v for k, v in row.items() if not k.startswith(TIMING)} for row in read_rows(run / "metrics.jsonl")]
    state = checkpoint.load(checkpoint.find(run, "last"))
    return fingerprint(state), rows, state["collector"]["snapshot_method"] if "collector" in state else "stored steps"


def kill_at_random(process: BaseProcess, folder: Path, rng: random.Random, number: signal.Signals) -> None:
    """A signal some time after one, two or three new checkpoints are there."""
    known, wanted, deadline = checkpoints(folder), rng.randint(1, 3), time.monotonic() + 600
    seen = set(known)
    while process.is_alive() and time.monotonic() < deadline and len(seen - known) < wanted:
        seen |= checkpoints(folder)  # old ones are removed
        time.sleep(0.02)
    time.sleep(rng.uniform(0.1, 1.0))
    if process.is_alive():
        os.kill(process.pid or 0, number)
    process.join()


def checkpoints(folder: Path) -> set[str]:
    """Names of those that are there."""
    return {path.name for path in folder.glob("runs/*_*/checkpoints/*=*")}


def broken_run(words: list[str], folder: Path, kills: int, rng: random.Random, number: signal.Signals) -> str | None:
    """Train with so many signals in between; the error of the last process, if any."""
    kill_at_random(ludus(words, folder), folder, rng, number)
    for _ in range(kills - 1):
        kill_at_random(ludus(["resume", "@last"], folder), folder, rng, number)
    return problem_of(ludus(["resume", "@last"], folder), folder)


def measure(
    case: str, kills: int, rng: random.Random, *, compiled: bool, series: int, number: signal.Signals
) -> dict[str, object]:
    """One config: a whole run, and as many broken ones as asked for."""
    with tempfile.TemporaryDirectory() as scratch:
        words = offline(Path(scratch)) if case == OFFLINE else command(case, compiled=compiled)
        whole = Path(scratch, "whole")
        if problem := problem_of(ludus(words, whole), whole):
            return {"environment": case, "error": problem}
        expected, rows, rung = outcome(whole)
        exact = 0
        for number in range(series):
            broken = Path(scratch, f"broken{number}")
            problem = broken_run(words, broken, kills, rng, number)
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
    parser.add_argument("--signal", choices=("KILL", "TERM"), default="KILL", help="TERM saves within an epoch")
    options = parser.parse_args()
    FORKS.set_forkserver_preload(["ludus.session.train", "ludus.session.resume", "ludus.algorithms.dreamer"])
    rng, number = random.Random(options.seed), signal.Signals[f"SIG{options.signal}"]
    for case in COMPILED if options.compiled else (*CASES, OFFLINE):
        if options.filter in case:
            found = measure(case, options.kills, rng, compiled=options.compiled, series=options.series, number=number)
            print(json.dumps({**found, "compiled": options.compiled, "signal": options.signal}), flush=True)


if __name__ == "__main__":
    main()
