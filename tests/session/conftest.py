"""The command line in this process: a run of a fifth of a second, in a folder and with a config home of its own."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path

import pytest

from ludus import cli
from ludus.cli import job as job_module

Ludus = Callable[..., types.SimpleNamespace]
SMALL = [
    "CartPole-v1:ppo",
    "environment.num_envs=4",
    "algorithm.rollout_steps=16",
    "algorithm.batch_size=1.0",
    "algorithm.epochs=1",
    "training.evaluation.every_steps=null",
    "training.stop.eval_reward=null",
    "training.checkpoints.every_steps=64",
    "training.checkpoints.keep=20",
    "runtime.compile=never",
    "-q",
]
"""64 steps a cycle, a checkpoint of each."""


@pytest.fixture
def ludus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ludus:
    """`ludus("train", ...)`: exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(job_module, "debugger_attached", lambda: False)

    def command(*words: str) -> types.SimpleNamespace:
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        out, err = capfd.readouterr()
        return types.SimpleNamespace(code=stop.value.code, out=out, err=err)

    return command


@pytest.fixture
def trained(ludus: Ludus, tmp_path: Path) -> Path:
    """The folder of a run of 512 steps that has finished."""
    done = ludus("train", *SMALL, "training.total_timesteps=512")
    assert done.code == 0, done.err
    return only_run(tmp_path)


def only_run(folder: Path) -> Path:
    """The one run below `folder`/runs."""
    (run,) = [path for path in (folder / "runs").iterdir() if path.is_dir() and not path.is_symlink()]
    return run
