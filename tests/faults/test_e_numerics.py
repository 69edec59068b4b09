"""Faults 54-60: numbers that are not finite, memory that does not suffice, images that grow, memory that leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faults.conftest import Ludus
from faults.support import SMALL, only_run, refused, status, steps
from ludus.archive import checkpoint
from ludus.archive.tree import flatten
from ludus.metrics.sinks.jsonl import read_rows
from support import build, close, config

PLUGIN = Path(__file__).with_name("plugin.py")
SOURCES = Path(__file__).parents[2] / "src" / "ludus"
RUN = [
    *(word for word in SMALL if not word.startswith("CartPole")),
    "CartPole-v1:ppo",
    "--plugin",
    str(PLUGIN),
    "environment.id=Faulty/Extreme-v0",
    "training.total_timesteps=1280",
    "training.checkpoints.every_steps=64",
    "training.checkpoints.keep=100",
]


QUIET = "import warnings; warnings.simplefilter('ignore')"
"""NumPy's own words about overflows, beside the one line of ours."""


def finite(run: Path) -> bool:
    """No number in any weight, moment or statistic of any checkpoint is NaN or infinite."""
    for path in checkpoint.checkpoints(run).values():
        _, tensors = flatten(checkpoint.load(path))
        if not all(torch.isfinite(tensor).all() for tensor in tensors.values() if tensor.is_floating_point()):
            return False
    return True


def test_54_diverged_raise(ludus: Ludus, tmp_path: Path) -> None:
    """Stopped at that step, the culprit named; the newest checkpoint is the last good one and can be resumed."""
    line = refused(ludus("train", *RUN, "environment.kwargs={at: [100]}", prelude=QUIET), 2, "training has diverged")
    assert " at environment step " in line and "lower algorithm.lr" in line
    run = only_run(tmp_path)
    assert status(run)["state"] == "failed" and "diverged" in status(run)["reason"]
    assert 0 < steps(run)[-1] < 1_280 and finite(run)
    last = list(read_rows(run / "metrics.jsonl"))[-1]
    assert float(last["env_steps"]) <= steps(run)[-1] + 64
    dumped = [path for path in (run / "nan_dump").rglob("*") if path.is_file()]
    assert dumped and all(path.stat().st_mode & 0o077 == 0 for path in dumped)


def test_54_diverged_on_a_full_disk(ludus: Ludus, tmp_path: Path) -> None:
    """That the dump cannot be written must not hide why the run ended."""
    full = "lambda: __import__('resource').setrlimit(1, (1_000, -1))"
    prelude = f"{QUIET}; inject.on_call('ludus.orchestration.callbacks.debug:dump', {full})"
    refused(ludus("train", *RUN, "environment.kwargs={at: [100]}", prelude=prelude), 2, "training has diverged")
    assert status(only_run(tmp_path))["state"] == "failed"


@pytest.mark.parametrize("choice", ["skip", "rollback"])
def test_54_diverged_go_on(ludus: Ludus, tmp_path: Path, choice: str) -> None:
    """The bad update is undone and counted; training goes on with numbers."""
    done = ludus("train", *RUN, "environment.kwargs={at: [100, 200]}", f"training.on_nan={choice}")
    assert done.code == 0, done.err
    run = only_run(tmp_path)
    rows = list(read_rows(run / "metrics.jsonl"))
    alerts = [row["train/alerts/nan"] for row in rows if "train/alerts/nan" in row]
    assert len(alerts) >= 2 and max(map(float, alerts)) >= 2
    assert steps(run)[-1] == 1_280 and finite(run)
    assert np.isfinite(float(rows[-1]["train/loss/total"]))


@pytest.mark.parametrize("choice", ["skip", "rollback"])
def test_54_diverged_again_and_again(ludus: Ludus, tmp_path: Path, choice: str) -> None:
    """Skipping for ever would be training nothing."""
    process = ludus("train", *RUN, "environment.kwargs={every: 7}", f"training.on_nan={choice}", prelude=QUIET)
    refused(process, 2, "training has diverged")
    assert finite(only_run(tmp_path))


@pytest.mark.parametrize("where", ["reward", "observation"])
@pytest.mark.parametrize("choice", ["raise", "skip", "rollback"])
def test_54_normalisers_stay_finite(ludus: Ludus, tmp_path: Path, where: str, choice: str) -> None:
    """Running statistics outlive an update: what they save must be numbers too, or the run must say what broke."""
    words = ["environment.normalize_obs=rolling", "environment.normalize_reward=true", f"training.on_nan={choice}"]
    process = ludus("train", *RUN, *words, f"environment.kwargs={{at: [100], where: {where}}}", prelude=QUIET)
    if process.code != 0:
        assert process.code in (2, 4)
        refused(process, process.code)
    assert finite(only_run(tmp_path))


def test_55_no_precision_that_needs_a_scaler() -> None:
    """bfloat16 has the range of float32. Whoever adds float16: the scaler is state, skipped steps are counted."""
    words = ("GradScaler", "float16")
    assert not [
        path
        for path in SOURCES.rglob("*.py")
        if any(word in path.read_text().replace("bfloat16", "") for word in words)
    ]


def test_56_rollouts_larger_than_memory(ludus: Ludus, tmp_path: Path) -> None:
    """Refused before the first step, with the number and what to lower."""
    never = "inject.on_call('ludus.data.collector:Collector.collect', inject.die)"
    process = ludus("train", *SMALL, "algorithm.rollout_steps=10_000_000_000", prelude=never)
    refused(process, 5, "the run needs about", "GB are free", "lower algorithm.")


def test_57_images_stay_bytes() -> None:
    """What the collector stores is what the space says, one byte a pixel."""
    import faults.plugin  # noqa: F401

    environment = {"num_envs": 2, "vectorization": "sync"}
    run = build(config({"name": "ppo", "rollout_steps": 8}, "Faulty/Pixels-v0", environment=environment))
    collector: Any = run.collector
    rollout = run.algorithm.collector.collect(run.algorithm.behaviour, 8)
    raw = collector._storage.raw
    assert raw.dtype == np.uint8 == collector.env.observation_space.dtype
    assert raw.nbytes == 9 * 2 * 36 * 36 * 3
    assert rollout.obs.dtype == np.uint8
    close(run)


def resident(pid: int) -> float:
    """Megabytes in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@pytest.mark.parametrize("spec", ["random", "ppo"])
def test_58_memory_does_not_grow(start: Ludus, tmp_path: Path, spec: str) -> None:
    """Less than 1 MB per 100,000 steps, after the first quarter."""
    total = 800_000  # the allocator's own ups and downs are a megabyte, whatever the length
    words = [word for word in SMALL if not word.startswith(("CartPole", "algorithm", "environment"))]
    words += [f"CartPole-v1:{spec}", "environment.num_envs=16", f"training.total_timesteps={total}"]
    words += ["algorithm.rollout_steps=128"]
    words += ["algorithm.epochs=1", "algorithm.batch_size=1.0"] if spec == "ppo" else []
    training = start("train", *words, "training.checkpoints.every_steps=50_000")
    samples: list[tuple[float, float]] = []

    def look() -> bool:
        rows = list(tmp_path.glob("runs/*_*/metrics.jsonl"))
        if rows and rows[0].stat().st_size:
            tail = rows[0].read_bytes()[-4_000:].splitlines()[-2:-1]
            done = [float(part.split(b",")[0]) for line in tail for part in line.split(b'"env_steps": ')[1:]]
            samples.extend((step, resident(training.pid)) for step in done)
        return bool(samples) and samples[-1][0] > 0.9 * total

    training.until(look)
    training.kill()
    late = [(step, memory) for step, memory in samples if step > total / 4]
    assert len(late) >= 5
    at, memory = np.array(late).T
    slope = np.polyfit(at, memory, 1)[0] * 100_000
    assert slope < 1.0, f"{slope:.2f} MB per 100,000 steps"
