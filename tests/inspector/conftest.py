"""What the tests of the inspector share: small runs with checkpoints of untrained policies, and a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from starlette.testclient import TestClient

from inspected import make_run
from ludus.inspector.server import application

HERE = "http://127.0.0.1:7860"


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
