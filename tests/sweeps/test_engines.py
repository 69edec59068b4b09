"""Engines elsewhere: a real Ray head, submitit's local cluster with preemption; what is missing is one line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.archive.index import Index
from ludus.errors import ConfigError, MissingExtra
from ludus.sweeps.engines import Job, engine_of
from ludus.sweeps.engines.elsewhere import environment
from ludus.sweeps.engines.ray import variables_of
from ludus.sweeps.search import Search
from sweeps.toy import spec_of

TINY = ("training.total_timesteps=512", "training.evaluation.every_steps=256", "training.evaluation.episodes=1")
GRID = ("sweep", "CartPole-v1:ppo", "algorithm.lr=1e-3,3e-4", "algorithm.clip=0.1,0.2", *TINY, "--jobs", "2")


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: Any, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"--engine {engine}: .*pip install 'ludus-rl\[{engine}\]'") as error:
        engine_of(engine, print, tmp_path)
    assert error.value.exit_code == 2


def test_a_search_without_optuna_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"method random .*pip install 'ludus-rl\[sweep\]'"):
        Search(spec_of("algorithm.lr=1e-3,1e-2", method="random", trials=2))


@pytest.mark.parametrize(("address", "told"), [("", "names no Ray cluster"), ("127.0.0.1:1", "nobody answers"),
                                               ("nowhere", "is no HOST:PORT")])  # fmt: skip
def test_a_cluster_that_is_not_there_is_one_line_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, told: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=f"{told}.*ray start --head"):
        engine_of("ray", print, tmp_path)


def test_slurm_without_sbatch_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LUDUS_SUBMITIT", raising=False)
    with pytest.raises(ConfigError, match="there is no sbatch"):
        engine_of("slurm", print, tmp_path)


def run(root: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus", *words]
    variables = {**os.environ, **variables}
    return subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, timeout=900, check=False)


def values(root: Path, name: str) -> list[Any]:
    """The table of results, as data."""
    done = run(root, "sweep", "show", name, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["trials"]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the grid gives on this machine."""
    root = tmp_path_factory.mktemp("local")
    done = run(root, *GRID, "--name", "grid")
    assert done.returncode == 0, done.stderr
    return values(root, "grid")


@pytest.mark.slow
def test_slurm_gives_the_same_table(tmp_path: Path, local: list[Any]) -> None:
    done = run(tmp_path, *GRID, "--name", "grid", "--engine", "slurm", LUDUS_SUBMITIT="local")
    assert done.returncode == 0, done.stderr
    assert values(tmp_path, "grid") == local


@pytest.mark.slow
def test_a_preempted_job_saves_is_queued_again_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_SUBMITIT", "local")
    monkeypatch.chdir(tmp_path)
    words = (
        "training.total_timesteps=40960",
        "training.checkpoints.every_steps=1024",
        "training.stop.eval_reward=null",
    )
    arguments = ("train", "CartPole-v1:ppo", *words, "-q", "--resume=auto", f"--runs-dir={tmp_path}/runs")
    engine = engine_of("slurm", print, tmp_path)
    task: Any = engine.start(Job("one", arguments, tmp_path / "log"))
    end = time.monotonic() + 300
    while not list(tmp_path.glob("runs/Cart*/checkpoints/step=1024")) and time.monotonic() < end:
        time.sleep(0.1)
    (worker,) = children(task.job._process.pid)
    os.kill(worker, signal.SIGUSR2)  # as SLURM does it; `_interrupt` would hit the process that stands for SLURM
    while task.code() is None and time.monotonic() < end:
        time.sleep(0.2)
    assert task.code() == 0, (tmp_path / "log").read_text()
    (record,) = Index(tmp_path / "runs").records()
    assert record.state == "finished" and record.env_steps == 40_960
    assert "resumed at" in (record.folder / "run.log").read_text()


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Ray head of two cores, and the variables with which it is reached."""
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray)] if ray.exists() else [sys.executable, "-m", "ray.scripts.scripts"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path_factory.mktemp("ray")
    own = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(home), "RAY_TMPDIR": "/tmp"}
    options = ["--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    variables = {**environment(), **own}
    with (home / "log").open("w") as log:
        process = subprocess.Popen([*command, "start", *options], env=variables, stdout=log, stderr=log)
    end = time.monotonic() + 120
    while "Ray runtime started" not in (home / "log").read_text() and time.monotonic() < end:
        assert process.poll() is None, (home / "log").read_text()
        time.sleep(0.5)
    address = socket.gethostbyname(socket.gethostname())
    yield {**own, "RAY_ADDRESS": f"{address}:{port}"}
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def test_ranks_of_several_machines_are_told_who_they_are() -> None:
    found = variables_of([("a", 1), ("a", 2), ("b", 3)])
    assert [one["LOCAL_RANK"] for one in found] == ["0", "1", "0"] and [one["RANK"] for one in found] == ["0", "1", "2"]
    assert [one["LOCAL_WORLD_SIZE"] for one in found] == ["2", "2", "1"]
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"], one["WORLD_SIZE"]) for one in found} == {("a", "1", "3")}
    here = variables_of([("a", 1), ("a", 2)])[1]
    assert (here["MASTER_ADDR"], here["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo")


@pytest.mark.slow
def test_ray_starts_the_ranks_of_one_training(tmp_path: Path, head: dict[str, str]) -> None:
    """The same training as with ranks that rank 0 starts itself, to the bit."""
    words = ("train", "CartPole-v1:ppo", *TINY, "--ranks", "2", "-q")
    for place, options in (("ray", ("--engine", "ray")), ("own", ())):
        done = run(tmp_path, *words, *options, "--runs-dir", place, **head)
        assert done.returncode == 0, done.stderr
    folders = [
        record.folder / "checkpoints" for place in ("ray", "own") for record in Index(tmp_path / place).records()
    ]
    marks = [fingerprint(checkpoint.load(folder / str((folder / "last").readlink()))) for folder in folders]
    assert len(marks) == 2 and marks[0] == marks[1]


@pytest.mark.slow
def test_the_shipped_grid_of_27_gives_the_same_table_on_ray(tmp_path: Path, head: dict[str, str]) -> None:
    grid = ("sweep", "configs/sweeps/cartpole_ppo_grid.yaml", *TINY, "--jobs", "2", "--name", "grid")
    tables = []
    for place, options in (("here", ()), ("ray", ("--engine", "ray"))):
        (tmp_path / place).mkdir()
        done = run(tmp_path / place, *grid, *options, **head)
        assert done.returncode == 0, done.stderr
        tables.append(values(tmp_path / place, "grid"))
    assert len(tables[0]) == 27 and tables[0] == tables[1]


@pytest.mark.slow
def test_ray_gives_the_same_table(tmp_path: Path, local: list[Any], head: dict[str, str]) -> None:
    done = run(tmp_path, *GRID, "--name", "grid", "--engine", "ray", **head)
    assert done.returncode == 0, done.stderr
    assert values(tmp_path, "grid") == local
