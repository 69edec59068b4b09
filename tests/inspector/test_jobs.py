"""Orders: played by another process, which may die without taking the page along; remembered, limited, cleaned up."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from inspected import make_run
from ludus.archive.store import RunFolder
from ludus.inspector.jobs import Workshop
from ludus.plugins import load_plugins
from support import CORNER, forget_plugins

from .conftest import wait

DEADLY = CORNER.replace(
    "        self.t += 1\n",
    "        self.t += 1\n        if self.t == 3 and getattr(self, 'seed_given', 0) == 13:\n"
    "            import os\n            os._exit(77)\n",
).replace("        self.t = 0\n", "        self.t = 0\n        self.seed_given = seed\n")


def test_an_episode_comes_in_files_and_parts(client: TestClient, ids: dict[str, str], played: Any) -> None:
    job = played(ids["CartPole-v1-ppo"], steps=30)
    assert job["state"] == "ready", job["error"]
    size = job["meta"]["frames"]["index"][-1]
    part = client.get(f"/api/jobs/{job['id']}/frames.bin", headers={"Range": "bytes=0-7"})
    assert (part.status_code, part.content) == (206, b"\x89PNG\r\n\x1a\n")
    assert len(client.get(f"/api/jobs/{job['id']}/frames.bin").content) == size
    assert client.get(f"/api/jobs/{job['id']}/inside-0.json").status_code == 400
    assert client.get("/api/jobs/unknown").status_code == 400


def test_the_same_order_is_done_once(client: TestClient, ids: dict[str, str], played: Any) -> None:
    run = ids["CartPole-v1-ppo"]
    one = played(run, steps=30)
    assert played(run, steps=30, checkpoint="step=1024")["id"] == one["id"]
    assert (
        len({one["id"], *(played(run, steps=30, **other)["id"] for other in ({"seed": 4}, {"mode": "sampled"}))}) == 3
    )


def test_looks_are_ordered_by_step_and_remembered(client: TestClient, ids: dict[str, str], played: Any) -> None:
    job = played(ids["CartPole-v1-dreamer"], steps=20)
    for what in ("inside", "dream"):
        order = {"episode": job["id"], "what": what, "t": 2}
        look = wait(client, client.post("/api/looks", json=order).json())
        assert look["state"] == "ready", look["error"]
        assert client.get(f"/api/jobs/{look['id']}/{what}-2.json").json()["t"] == 2
        assert client.post("/api/looks", json=order).json()["state"] == "ready"
    for bad in ({"episode": "x", "what": "inside"}, {"episode": job["id"], "what": "rm"}):
        assert client.post("/api/looks", json=bad).status_code == 400
    ppo = played(ids["CartPole-v1-ppo"], steps=30)
    dream = wait(client, client.post("/api/looks", json={"episode": ppo["id"], "what": "dream"}).json())
    assert "learns no world model" in dream["error"]


@pytest.fixture
def corner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of an environment of a plugin, which ends its process at step 3 of seed 13."""
    plugin = tmp_path / "deadly.py"
    plugin.write_text(DEADLY + "\ngym.register('Deadly-v0', Corner)\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    load_plugins([plugin])
    make_run(tmp_path / "runs", "CartPole-v1:ppo", "environment.id=Deadly-v0", "training.stop.eval_reward=null")
    forget_plugins()
    return plugin


def test_a_bad_environment_ends_its_process_and_not_the_page(corner: Path, opened: Callable[..., TestClient]) -> None:
    client = opened(corner.parent / "runs", plugins=[str(corner)])
    run = client.get("/api/runs").json()["runs"][0]["id"]

    def play(seed: int) -> dict[str, Any]:
        return wait(client, client.post("/api/episodes", json={"run": run, "seed": seed}).json())

    died = play(13)
    assert died["state"] == "failed"
    assert "exit 77" in died["error"]
    alive = play(14)
    assert (alive["state"], alive["meta"]["steps"]) == ("ready", 5)
    assert alive["meta"]["frames"] is None  # it draws nothing
    assert client.get("/api/runs").status_code == 200
    assert play(13)["state"] == "failed"  # asked again, done again


def test_a_plugin_that_nobody_allowed_is_not_run(corner: Path, tmp_path: Path) -> None:
    from ludus.archive.run_plugins import load_for
    from ludus.errors import ConfigError, LudusError
    from ludus.inspector.recording import Wish, play

    run = RunFolder.load(tmp_path / "runs", "@last")
    meta = run.meta() | {"plugins": [{"path": str(corner), "sha256": "0" * 64, "copy": ""}]}
    run.write("meta.json", meta)
    with pytest.raises(ConfigError, match="add --plugin"):
        load_for(run)
    with pytest.raises(LudusError, match="--plugin"):
        play(tmp_path / "runs", Wish(run.id, "last", 0, "greedy", 5), [], tmp_path / "frames.bin", lambda _: None)


def test_an_order_that_takes_too_long_is_given_up(runs: Path, ids: dict[str, str]) -> None:
    shop = Workshop(runs, deadline=0.05)
    try:
        wish = {"run": ids["CartPole-v1-ppo"], "checkpoint": "last", "seed": 0, "mode": "greedy", "steps": 10}
        job = shop.episode(wish, "")
        assert job.over.wait(60)
        assert "signal 9" in job.error
    finally:
        shop.close()
    assert not shop.folder.exists()


def test_old_recordings_go(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.inspector.jobs.MOST_EPISODES", 2)
    shop = Workshop(runs)
    monkeypatch.setattr(shop, "_do", lambda job: Path(job.order["folder"]).mkdir() or "")
    try:
        jobs = []
        for seed in range(5):
            jobs.append(shop.episode({"seed": seed}, ""))
            assert jobs[-1].over.wait(10)
        assert [shop.get(job.id) is not None for job in jobs] == [False, False, True, True, True]
        assert sorted(path.name for path in shop.folder.iterdir()) == sorted(job.id for job in jobs[2:])
        shutil.rmtree(jobs[-1].order["folder"])
        assert shop.file(jobs[-1], "episode.json") is None
    finally:
        shop.close()


def test_closing_drops_the_orders_that_wait(runs: Path, ids: dict[str, str]) -> None:
    shop = Workshop(runs)
    wish = {"run": ids["CartPole-v1-ppo"], "checkpoint": "step=512", "mode": "greedy", "steps": 5}
    jobs = [shop.episode({**wish, "seed": seed}, "") for seed in range(4)]
    shop.close()
    assert jobs[-1].state == "waiting"
    assert not shop.folder.exists()
