"""A short run, a Hub on 127.0.0.1, and the command line."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fake_hub import TOKENS, FakeHub

pytest.importorskip("huggingface_hub")

CANARY = next(iter(TOKENS))
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with one of 768 steps, evaluated twice."""
    import ludus

    root = tmp_path_factory.mktemp("made") / "runs"
    evaluation = {"every_steps": 256, "episodes": 2}
    settings = {"training": {"total_timesteps": 768, "evaluation": evaluation}, "experiment.name": "cart"}
    ludus.train("CartPole-v1:ppo", settings, quiet=True, runs_dir=root)
    return root


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "runs", symlinks=True))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub with LFS storage, and the token of alice."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    from ludus.hub import client

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-login"))
    monkeypatch.setattr(client, "PAUSE", 0.01)
    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=lambda _: None, time=time.time, monotonic=time.monotonic))
    monkeypatch.setenv("HF_TOKEN", CANARY)
    with FakeHub(tmp_path / "cas") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


@pytest.fixture
def ludus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `ludus ...` in a folder of its own: exit code, output, errors."""
    from ludus import cli

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run
