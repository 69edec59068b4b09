"""What the tests of the inspector share: small runs with checkpoints of untrained policies, and a client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from starlette.testclient import TestClient

from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.config.compose import load, to_yaml
from ludus.config.read import digest
from ludus.experiment import build
from ludus.inspector.server import application

HERE = "http://127.0.0.1:7860"


def make_run(root: Path, spec: str, *overrides: str, steps: tuple[int, ...] = (512, 1024)) -> RunFolder:
    """A finished run of a shipped config, with checkpoints of its first weights and twelve rows of metrics."""
    resolved = load(spec, ["runtime.compile=never", *overrides])
    config = resolved.config
    asked = ["runtime.compile=never", *overrides]
    facts = {"config_hash": digest(resolved.data), "spec": spec, "overrides": asked, "argv": ["ludus", "train", spec]}
    run = RunFolder.create(root, resolved.run_name[:40], config_yaml=to_yaml(config), **facts)
    built = build(config)
    try:
        state: dict[str, Any] = built.state_dict()
    finally:
        built.close()
    for step in steps:
        checkpoint.save(run.path, state, name=f"step={step}", best=step == steps[0])
    rows = []
    for i in range(1, 13):
        row = {"epoch": i, "env_steps": i * 100, "updates": i * 4, "phase": "train", "seconds": i * 0.5}
        row |= {"train/roll/ep_rew/mean": 10.0 * i, "train/loss/policy": 0.5 / i}
        rows.append(row | ({"val/roll/ep_rew/mean": 8.0 * i} if i % 4 == 0 else {}))
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.set_status("finished", reason="the step budget is used up")
    return run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of several kinds; nobody may change them."""
    root = tmp_path_factory.mktemp("inspected") / "runs"
    make_run(root, "CartPole-v1:ppo", "experiment.seed=1")
    make_run(root, "CartPole-v1:ppo", "experiment.seed=2")
    make_run(root, "CartPole-v1:ppo_gtrxl_masked")
    make_run(root, "CartPole-v1:dqn")
    make_run(root, "Pendulum-v1:sac", "environment.max_episode_steps=40")
    make_run(root, "MiniGrid-Empty-8x8-v0:ppo_rgb", "environment.max_episode_steps=30")
    make_run(root, "CartPole-v1:dreamer")
    return root


@pytest.fixture(scope="session")
def ids(runs: Path) -> dict[str, str]:
    """The runs by the beginning of their names; of several the one with the least seed."""

    def seed(path: Path) -> int:
        return int(yaml.safe_load((path / "config.yaml").read_text())["experiment"]["seed"])

    folders = [path for path in runs.iterdir() if path.is_dir() and not path.is_symlink()]
    found: dict[str, str] = {}
    for path in sorted((path for path in folders if (path / "config.yaml").exists()), key=seed):
        found.setdefault(path.name.split("_2")[0], path.name)
    return found


@pytest.fixture(scope="session")
def client(runs: Path) -> Iterator[TestClient]:
    """A page of the application over those runs, as a browser on this machine."""
    with TestClient(application(runs), base_url=HERE) as made:
        yield made


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    """Opens applications over other folders, and closes them."""
    made: list[TestClient] = []

    def opened(root: Path, base: str = HERE, **options: Any) -> TestClient:
        client = TestClient(application(root, **options), base_url=base)
        client.__enter__()
        made.append(client)
        return client

    yield opened
    for client in made:
        client.__exit__(None, None, None)


@pytest.fixture(scope="session")
def played(client: TestClient) -> Callable[..., dict[str, Any]]:
    """Plays an episode and waits for it; returns the job with its facts as `meta`."""

    def play(run: str, **wish: Any) -> dict[str, Any]:
        job = client.post("/api/episodes", json={"run": run, "checkpoint": "last", "seed": 3, **wish}).json()
        return wait(client, job)

    return play


def wait(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    """The job when it is over."""
    assert "id" in job, job
    client.app.state.inspector.shop.get(job["id"]).over.wait(120)  # type: ignore[attr-defined]
    found = client.get(f"/api/jobs/{job['id']}").json()
    if found["state"] == "ready" and "-" not in found["id"]:
        found["meta"] = client.get(f"/api/jobs/{found['id']}/episode.json").json()
    return found
