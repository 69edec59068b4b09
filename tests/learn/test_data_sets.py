"""What data sets teach: an expert is cloned, and a mixed data set gives a better policy than those who made it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("minari")

SMALL = [
    "network.actor={hidden_dims: [64, 64], activation: relu}",
    "network.critic={hidden_dims: [64, 64], activation: relu}",
]
SAC = ["training.total_timesteps=7000", "training.evaluation.every_steps=null", "training.stop.eval_reward=null"]
SAC += ["training.checkpoints.every_steps=1000", "training.checkpoints.keep=9"]
IQL = [*SMALL, "algorithm.gamma=0.98", "algorithm.lr=1e-3", "algorithm.beta=1", "training.total_updates=5000"]


def ludus(folder: Path, *words: str) -> Any:
    """Run a command; what it says as JSON, if it says so."""
    done = subprocess.run([sys.executable, "-m", "ludus", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in words else None


@pytest.mark.slow
def test_a_clone_is_nearly_as_good_as_its_expert(tmp_path: Path) -> None:
    """50 episodes of PPO in CartPole: at least 90 % of their return."""
    ludus(tmp_path, "train", "CartPole-v1:ppo", "--seed", "200", "-q")
    expert = ludus(tmp_path, "record", "@last", "-n", "50", "--out", "cart-v0", "--seed", "1", "--json")["mean"]
    assert expert > 400
    clone = ["+experiment=behaviour_cloning", "buffers.demos.path=cart-v0", "training.total_updates=3000"]
    ludus(tmp_path, "train", *clone, "--seed", "201", "-q")
    words = ["--env", "CartPole-v1", "-n", "50", "--seed", "2", "--json"]
    assert ludus(tmp_path, "evaluate", "@last", *words)["mean"] >= 0.9 * expert


@pytest.mark.slow
def test_the_best_of_a_mixed_data_set_is_learned(tmp_path: Path) -> None:
    """Random, half trained and trained episodes of Pendulum: far better than their mean."""
    ludus(tmp_path, "train", "Pendulum-v1:sac", "--seed", "200", *SAC, "-q")
    data = ["-n", "30", "--out", "mixed-v0"]
    ludus(tmp_path, "record", "Pendulum-v1", "--policy", "random", *data, "--seed", "1")
    for step in ("step=3000", "step=7000"):
        ludus(tmp_path, "record", f"@last/{step}", *data, "--append", "--seed", "2")
    mean = ludus(tmp_path, "data", "info", "mixed-v0", "--json")["return"]["mean"]
    ludus(tmp_path, "train", "+experiment=iql", "buffers.demos.path=mixed-v0", *IQL, "--seed", "201", "-q")
    words = ["--env", "Pendulum-v1", "-n", "50", "--seed", "2", "--json"]
    assert ludus(tmp_path, "evaluate", "@last", *words)["mean"] > mean + 100
