"""Engine modal: Modal's real client against a server of ours, which carries the same worker out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("modal")

from fake_modal import FakeModal
from ludus import cli
from ludus.archive.index import Index
from ludus.cli.sweep_run import Where, described, workers
from ludus.errors import ConfigError, MissingExtra
from ludus.sweeps.engines import KILLED, Job
from ludus.sweeps.engines.modal import CALLS, ModalEngine, check, require_server
from ludus.sweeps.engines.modal_app import Worker
from ludus.sweeps.plan import Plan
from sweeps.toy import spec_of

TINY = ("training.total_timesteps=256", "training.evaluation.every_steps=256", "training.evaluation.episodes=1")


@pytest.fixture(scope="module")
def modal() -> Iterator[FakeModal]:
    """One server: a process keeps its client."""
    with FakeModal() as server, pytest.MonkeyPatch.context() as own:
        own.setenv("MODAL_SERVER_URL", server.address)
        own.setenv("MODAL_TOKEN_ID", "ak-1")
        own.setenv("MODAL_TOKEN_SECRET", "as-1")
        yield server


@pytest.fixture
def server(modal: FakeModal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeModal:
    """The server, which has forgotten everything."""
    monkeypatch.setenv("LUDUS_MODAL_RUNS", str(tmp_path / "volume"))
    modal.paused.set()
    for seen in (modal.functions, modal.calls, modal.cancelled, modal.asked):
        seen.clear()
    return modal


def job(root: Path, name: str, *words: str) -> Job:
    return Job(name, (*(words or ("--version",)), f"experiment.name={name}", "--runs-dir=elsewhere"), root / name)


def ended(engine: ModalEngine, *tasks: Any) -> list[int]:
    end = time.monotonic() + 120
    while any(task.code() is None for task in tasks[:1]) and time.monotonic() < end:
        engine.wait(tasks, 0.05)
    return [task.code() for task in tasks[1:]]


def test_a_container_has_what_was_asked_for(server: FakeModal, tmp_path: Path) -> None:
    ModalEngine(tmp_path, tmp_path, Worker(cpu=4, memory_mb=8192, timeout=60), 7)
    made = server.functions[0]
    assert (made.resources.milli_cpu, made.resources.memory_mb, made.timeout_secs) == (4000, 8192, 60)
    assert (made.autoscaler_settings.max_containers, made.retry_policy.retries) == (7, 2)
    assert [volume.mount_path for volume in made.volume_mounts] == ["/runs"]
    assert Worker() == Worker(2.0, 4096, 3600, 1)


def test_runs_of_one_worker_are_one_call(server: FakeModal, tmp_path: Path) -> None:
    engine = ModalEngine(tmp_path, tmp_path, Worker(runs=2), 2)
    first, second, third = (engine.start(job(tmp_path, f"run{i}")) for i in range(3))
    assert ended(engine, third, first, second) == [0, 0]
    assert len(server.calls) == 2 and (tmp_path / "run1").read_text().startswith("ludus ")


def test_calls_outlive_the_process_that_made_them(server: FakeModal, tmp_path: Path) -> None:
    server.paused.clear()
    left = ModalEngine(tmp_path, tmp_path, Worker(), 1)
    left.start(job(tmp_path, "one"))
    assert left.start(job(tmp_path, "bad", "--no-such-option")).code() is None
    server.paused.set()
    again = ModalEngine(tmp_path, tmp_path, Worker(), 1)
    assert again.root == left.root
    tasks = [again.start(job(tmp_path, name)) for name in ("bad", "one")]
    assert ended(again, *tasks) == [0] and len(server.calls) == 2
    assert "No such command" in (tmp_path / "bad").read_text()
    assert json.loads((tmp_path / CALLS).read_text())["calls"] == {}


def test_a_call_is_taken_back(server: FakeModal, tmp_path: Path) -> None:
    server.paused.clear()
    engine = ModalEngine(tmp_path, tmp_path, Worker(runs=2), 1)
    sent = [engine.start(job(tmp_path, name)) for name in ("a", "b", "c")]
    for task in (sent[0], sent[2]):
        task.stop(None)
    assert [task.code() for task in sent] == [KILLED] * 3 and server.cancelled == ["fc-1"]
    server.paused.set()


def test_a_plan_says_how_many_workers(server: FakeModal) -> None:
    plan = Plan(spec_of("algorithm.epochs=range(1,51)"))
    where = Where("modal", worker=Worker(runs=5))
    assert workers(plan, where) == 10
    assert described(plan, where) == "10 workers x 5 runs, each with 2 cores, 4,096 MB, 3,600 s"


def test_without_token_or_network_it_is_one_line_within_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "none.toml"))
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.delenv(name, raising=False)
    begin = time.monotonic()
    with pytest.raises(ConfigError, match="there is no token; run modal token new"):
        require_server()
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-1")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-1")
    monkeypatch.setenv("MODAL_SERVER_URL", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:1 does not answer") as error:
        require_server()
    assert time.monotonic() - begin < 5 and error.value.exit_code == 2
    monkeypatch.setitem(__import__("sys").modules, "modal", None)
    with pytest.raises(MissingExtra, match=r"ludus-rl\[modal\]"):
        require_server()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"plugins": ("mine.py",)}, "mine.py stays on this machine"),
        ({"base": "mine.yaml"}, "mine.yaml stays on this machine"),
        ({"pruning": {"type": "median"}}, "none is stopped before"),
        ({"limits": {"minutes": 2}}, "none is stopped before"),
    ],
)
def test_what_a_container_cannot_do_is_one_line(fields: dict[str, Any], told: str) -> None:
    spec = spec_of("algorithm.lr=1e-3,1e-2")
    with pytest.raises(ConfigError, match=told):
        check(type(spec).model_validate({**spec.model_dump(), **fields}))


@pytest.mark.slow
def test_a_sweep_that_was_left_is_fetched_and_equals_one_of_this_machine(
    server: FakeModal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def ludus(*words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        said = capsys.readouterr()
        assert not end.value.code, said.err
        return said.out

    grid = ["sweep", "CartPole-v1:ppo", "algorithm.lr=1e-3,3e-4", *TINY, "--name", "two"]
    assert "ludus sweep resume two --engine modal" in ludus(
        *grid, "--engine", "modal", "--detach", "--runs-per-worker=2"
    )
    assert len(server.calls) == 1 and not Index(tmp_path / "runs").records()
    with pytest.raises(SystemExit):
        cli.main(["sweep", "resume", "two"])
    assert "has runs at Modal" in capsys.readouterr().err
    ludus("sweep", "--sweep-id", "two", "--engine", "modal")
    ludus(*grid, "--runs-dir", "here", "--jobs", "1")
    tables = [json.loads(ludus("sweep", "show", "two", "--json", "--runs-dir", place))["trials"] for place in
              ("runs", "here")]  # fmt: skip
    assert tables[0] == tables[1] and [row["state"] for row in tables[0]] == ["complete"] * 2
    assert len(server.calls) == 1
