"""What the scripts share: the command line in a process of its own, and the weights it leaves."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

SHORT = [
    "train",
    "CartPole-v1:ppo",
    "-q",
    "training.total_timesteps=600",
    "training.evaluation.every_steps=null",
    "training.stop.eval_reward=null",
]
"""Updates that do not pay for a compiler."""


def ludus(*words: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `ludus` in a folder; the result holds exit code, output and errors."""
    folder.mkdir(parents=True, exist_ok=True)
    words = (sys.executable, "-m", "ludus", *words)
    return subprocess.run(words, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)


def weights(folder: Path) -> str:
    """Hash of the weights of the newest run below `folder`."""
    file = folder / "runs" / "@last" / "checkpoints" / "last" / "tensors.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()
