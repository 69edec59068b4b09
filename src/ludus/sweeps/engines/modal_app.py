"""The app at Modal: one function, which carries out the commands of runs and gives their folders back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ludus

NAME = "ludus-sweeps"
RUNS = "/runs"
"""Where the volume of runs is mounted: a container that is preempted goes on from its last checkpoint."""
SECRET = "wandb-secret"
CORE = ("torch", "numpy", "gymnasium", "jinja2", "cloudpickle", "hydra-core", "omegaconf", "pydantic", "pyyaml", "rich",
        "typer", "safetensors", "cmaes")  # fmt: skip
"""What a container installs, in the versions that are here."""
SUITES = ("envpool", "ale-py", "box2d", "minigrid", "mujoco", "imageio", "wandb")
"""What it installs, too, if it is here."""
Returned = tuple[int, str, bytes]
"""Exit code of a run, what it printed, and its folder as a tar file."""


@dataclass(frozen=True)
class Worker:
    """What one container has, and how many runs it carries out."""

    cpu: float = 2.0
    memory_mb: int = 4096
    timeout: int = 3600
    """Seconds that one call may take: all its runs together."""
    runs: int = 1
    """Runs of one call, one after the other."""


def app_of(worker: Worker, containers: int, *, secret: bool) -> tuple[Any, Any]:
    """The app and its function, not yet deployed; at most so many containers at once."""
    import modal

    app = modal.App(NAME)
    carry_out = app.function(
        image=_image(modal),
        cpu=worker.cpu,
        memory=worker.memory_mb,
        timeout=worker.timeout,
        retries=2,
        max_containers=containers,
        volumes={RUNS: modal.Volume.from_name("ludus-runs", create_if_missing=True)},
        secrets=[modal.Secret.from_name(SECRET)] if secret else [],
        serialized=True,
        name="carry_out",
    )(_function())
    return app, carry_out


def _image(modal: Any) -> Any:
    place = Path(ludus.__file__).parent
    slim = modal.Image.debian_slim(python_version=f"{sys.version_info.major}.{sys.version_info.minor}")
    packages = [f"{name}=={version(name).partition('+')[0]}" for name in CORE]
    for name in SUITES:
        try:
            packages.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue
    installed = slim.pip_install(*packages).env({"PYTHONPATH": "/root", "OMP_NUM_THREADS": "1"})
    return installed.add_local_dir(place, "/root/ludus", ignore=["**/__pycache__", "**/*.pyc"])


def _function() -> Callable[[list[list[str]], str], list[Returned]]:
    """What a container does; a function without a module, which is sent as it is."""

    def carry_out(jobs: list[list[str]], root: str) -> list[Returned]:
        import io
        import subprocess
        import sys
        import tarfile
        from pathlib import Path

        done = []
        for arguments in jobs:
            name = next(word.partition("=")[2] for word in arguments if word.startswith("experiment.name="))
            command = [sys.executable, "-P", "-m", "ludus", *arguments, f"--runs-dir={root}"]
            ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
                for folder in sorted(Path(root).glob(f"{name}_*")):
                    tar.add(folder, folder.name)
            done.append((ended.returncode, ended.stdout.decode(errors="replace")[-100_000:], buffer.getvalue()))
        return done

    return carry_out
