"""What the server tells about runs: the list, one run, its config and alerts, and what is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from starlette.testclient import TestClient

from synthetic import DEAD
from synthetic import make_run as plain_run


def test_the_list_is_that_of_ludus_list(client: TestClient, ids: dict[str, str]) -> None:
    found = client.get("/api/runs").json()
    assert found["count"] == found["found"] == 7
    assert found["runs"][0]["started"] >= found["runs"][-1]["started"]
    some = client.get("/api/runs", params={"filter": ["algorithm=ppo", "seed<2"], "sort": "id"}).json()
    assert [run["id"] for run in some["runs"]] == [ids["CartPole-v1-ppo"]]
    bad = client.get("/api/runs", params={"filter": ["nonsense=1"]}).json()
    assert "no run has 'nonsense'" in bad["error"]
    assert bad["runs"] == []


def test_a_killed_run_says_how_to_resume(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    plain_run(tmp_path / "runs", "killed", state="running", status={"pid": DEAD})
    plain_run(tmp_path / "runs", "fine")
    found = {run["id"]: run for run in opened(tmp_path / "runs").get("/api/runs").json()["runs"]}
    assert found["killed"]["state"] == "lost"
    assert found["killed"]["resume"] == f"ludus resume killed --runs-dir {tmp_path / 'runs'}"
    assert found["fine"]["resume"] == ""


def test_a_run_has_checkpoints_with_their_evaluation_and_metrics(client: TestClient, ids: dict[str, str]) -> None:
    run = client.get(f"/api/runs/{ids['CartPole-v1-ppo']}").json()
    assert [one["name"] for one in run["checkpoints"]] == ["step=512", "step=1024"]
    assert [one["marks"] for one in run["checkpoints"]] == [["best"], ["last"]]
    assert run["metrics"] == ["train/loss/policy", "train/roll/ep_rew/mean", "val/roll/ep_rew/mean"]
    assert (run["report"], run["videos"]) == (False, [])


def test_a_checkpoint_knows_the_mean_of_its_step(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    plain_run(tmp_path / "runs", "mine", returns=(123.0, 480.0), heavy=True)
    saved = opened(tmp_path / "runs").get("/api/runs/mine").json()["checkpoints"]
    assert [one["mean"] for one in saved] == [123.0]


def test_config_values_know_their_origin(client: TestClient, ids: dict[str, str]) -> None:
    config = client.get(f"/api/runs/{ids['CartPole-v1-ppo']}/config").json()
    rows = {row["path"]: row for row in config["rows"]}
    assert rows["experiment.seed"]["origin"] == "experiment.seed=1"
    assert rows["algorithm.gamma"]["value"] == "0.98"
    assert rows["algorithm.gamma"]["default"] == "0.99"
    assert rows["algorithm.gamma"]["origin"].startswith("configs/environments/CartPole-v1.yaml:")
    assert rows["algorithm.value_coef"]["origin"] == "default"


def test_a_spec_that_names_a_file_is_not_read(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("extends: CartPole-v1:ppo")
    plain_run(tmp_path / "runs", "mine", spec=str(secret))
    config = opened(tmp_path / "runs").get("/api/runs/mine/config").json()
    assert not any("secret" in row["origin"] for row in config["rows"])


def test_alerts_are_those_of_the_monitor(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    folder = plain_run(tmp_path / "runs", "mine")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows += [{**rows[-1], "env_steps": 3000 + i, "train/loss/total": "NaN"} for i in range(3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = opened(tmp_path / "runs").get("/api/runs/mine/alerts").json()
    assert any("train/loss/total" in alert["line"] for alert in found)


def test_sparklines_prefer_evaluations(client: TestClient, ids: dict[str, str]) -> None:
    id = ids["CartPole-v1-ppo"]
    assert client.get("/api/sparklines", params={"run": id}).json() == {id: [32.0, 64.0, 96.0]}


def test_a_run_that_goes_away_is_one_line(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    folder = plain_run(tmp_path / "runs", "mine")
    client = opened(tmp_path / "runs")
    assert client.get("/api/runs/mine").status_code == 200
    shutil.rmtree(folder)
    for path in ("/api/runs/mine", "/api/runs/mine/config", "/api/curve?run=mine&metric=train/loss/total"):
        answer = client.get(path)
        assert answer.status_code == 400
        assert "no such run" in answer.json()["error"]
    assert client.get("/api/runs").json()["count"] == 0


def test_an_empty_folder_has_no_runs(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    (tmp_path / "runs").mkdir()
    assert opened(tmp_path / "runs").get("/api/runs").json() == {"runs": [], "found": 0, "count": 0, "unread": 0}


def test_a_broken_run_stays_in_the_list(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    folder = plain_run(tmp_path / "runs", "mine")
    (folder / "config.yaml").write_text("{[")
    (folder / "status.json").write_text("nonsense")
    client = opened(tmp_path / "runs")
    assert [run["id"] for run in client.get("/api/runs").json()["runs"]] == ["mine"]
    assert client.get("/api/runs/mine/config").status_code == 200
