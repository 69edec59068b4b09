"""Run folders made by hand, for everything that only reads them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

CONFIG = """schema_version: 1
experiment: {{name: cart, description: '', seed: {seed}, device: auto, tags: []}}
environment: {{id: {environment}, num_envs: 8, reward_threshold: null, kwargs: {{}}, wrappers: []}}
algorithm:
  name: {algorithm}
  gamma: 0.98
  lr: {lr}
network:
  encoder: {{type: auto, hidden_dims: []}}
  memory: {{type: none}}
training: {{total_timesteps: 40000, evaluation: {{episodes: 20, every_steps: 4096}}}}
logging: {{csv: true}}
"""
DEAD = 2**22 + 1
"""A process number no Linux gives out."""


def make_run(
    root: Path,
    id: str,
    returns: Sequence[float] = (100.0, 480.0),
    *,
    state: str = "finished",
    seed: int = 1,
    lr: Any = 0.001,
    environment: str = "CartPole-v1",
    algorithm: str = "ppo",
    name: str = "cart",
    spec: str = "CartPole-v1:ppo",
    days: float = 0.0,
    threshold: float | None = 475.0,
    status: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    summary: Mapping[str, Any] | None = None,
    heavy: bool = False,
) -> Path:
    """A run that was evaluated every 1,000 steps with these mean returns and ended `days` ago."""
    folder = root / id
    folder.mkdir(parents=True)
    now = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
    text = CONFIG.format(seed=seed, lr=json.dumps(lr), environment=environment, algorithm=algorithm)
    (folder / "config.yaml").write_text(text)
    _write(folder / "meta.json", {
        "name": name, "spec": spec, "overrides": [f"seed={seed}"], "config_hash": f"{seed:016x}", "started": now,
        "argv": ["ludus", "train"], "git": {"commit": "c0ffee" * 6, "dirty": False},
        "versions": {"python": "3.11"}, "host": {"name": socket.gethostname(), "platform": "Linux", "cpus": 2},
        **(meta or {}),
    })  # fmt: skip
    _write(folder / "status.json", {"state": state, "pid": os.getpid(), "updated": now, **(status or {})})
    steps = 1000 * len(returns)
    rows = [_row(1000 * (i + 1), value) for i, value in enumerate(returns)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if state in ("finished", "stopped"):
        _write(folder / "metrics.json", {
            "mean": returns[-1], "best": max(returns), "best_step": steps, "threshold": threshold,
            "solved": threshold is not None and returns[-1] >= threshold, "seconds": 5.0, "env_steps": steps,
            "updates": steps // 10, "resume": "adapter", "compiled": False, **(summary or {}),
        })  # fmt: skip
    if heavy:
        add_files(folder)
    return folder


def add_files(folder: Path) -> None:
    """A checkpoint, a video and an event file of a kilobyte each."""
    for name in ("checkpoints/step=1000/tensors.safetensors", "videos/a.mp4", "tensorboard/events"):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 1000)
    (folder / "checkpoints" / "best").symlink_to("step=1000")
    (folder / "checkpoints" / "last").symlink_to("step=1000")


def _row(steps: int, value: float) -> dict[str, Any]:
    return {
        "epoch": steps // 250,
        "env_steps": steps,
        "updates": steps // 10,
        "phase": "train",
        "seconds": steps / 1000,
        "train/roll/ep_rew/mean": value / 2,
        "train/loss/total": 1000.0 / steps,
        "train/policy/entropy": 0.6,
        "val/roll/ep_rew/mean": value,
        "val/roll/ep_rew/std": 1.5,
        "val/roll/ep_len/mean": value,
        "val/roll/episodes": 20.0,
    }


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
