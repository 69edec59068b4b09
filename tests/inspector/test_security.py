"""Who may ask and what can be read: strangers, other sites, paths and links out of the folder, pickles, scripts."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ludus.archive import checkpoint, tags
from ludus.inspector.guard import COOKIE
from synthetic import make_run as plain_run

from .conftest import HERE, wait

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "[::1]:7860", "LOCALHOST"])
def test_this_machine_is_answered(client: TestClient, host: str) -> None:
    assert client.get("/api/about", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example:7860", "127.0.0.1.evil.example", "10.0.0.7:7860", "", "localhost.evil"])
def test_another_name_of_this_machine_is_refused(client: TestClient, host: str) -> None:
    """DNS rebinding: a page of another site that made its own name lead here."""
    answer = client.get("/api/about", headers={"Host": host})
    assert (answer.status_code, "Host" in answer.text) == (403, True)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:7860"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_others_are_refused(client: TestClient, origin: str, method: str) -> None:
    answer = client.request(method, "/api/runs", headers={"Origin": origin, "Content-Type": "application/json"})
    assert (answer.status_code, "Origin" in answer.text) == (403, True)


def test_our_own_page_is_answered(client: TestClient) -> None:
    assert client.get("/api/runs", headers={"Origin": HERE}).status_code == 200


def test_what_another_site_embeds_is_refused(client: TestClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert client.get("/api/runs", headers=headers).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_orders_nothing(client: TestClient, kind: str) -> None:
    """A form of another site needs no permission of ours to be sent, but it cannot be JSON."""
    answer = client.post("/api/episodes", content='{"run": "x"}', headers={"Content-Type": kind})
    assert (answer.status_code, "JSON" in answer.text) == (403, True)


def test_a_token_is_needed_where_others_can_connect(runs: Path, opened: Callable[..., TestClient]) -> None:
    client = opened(runs, "http://192.0.2.7:7860", host="0.0.0.0", token="secret-token")
    for path in ("/", "/static/main.js", "/api/runs", "/api/about?token=", "/api/about?token=secret-toke"):
        assert client.get(path).status_code == 403, path
    assert client.get("/api/runs", headers={"Cookie": f"{COOKIE}=wrong"}).status_code == 403
    first = client.get("/?token=secret-token")
    assert first.status_code == 200
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "SameSite=Strict" in first.headers["set-cookie"]
    assert client.get("/api/runs").status_code == 200  # the cookie is enough now
    assert client.get("/api/runs", headers={"Host": "evil.example"}).status_code == 403


def test_every_answer_forbids_what_the_page_does_not_need(client: TestClient) -> None:
    for path in ("/", "/static/main.js", "/api/runs"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"] and "*" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"  # no page of another site embeds it
        assert headers["referrer-policy"] == "no-referrer"  # the address may hold the token
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static//etc/passwd",
        "/api/runs/..", "/api/runs/%2e%2e/config", "/api/runs/..%2f..%2fetc/config", "/api/runs/@last",
        "/api/runs/{run}/videos/..%2fconfig.yaml", "/api/runs/{run}/videos/%2e%2e",
        "/api/runs/{run}%00", "/api/jobs/../../etc/passwd", "/api/jobs/x/..%2f..%2fepisode.json",
        "/api/curve?run=../{run}&metric=a", "/api/curve?run=/etc&metric=a", "/api/events?run=..",
        "/api/sparklines?run=..",
    ],
)  # fmt: skip
def test_paths_lead_nowhere_else(client: TestClient, ids: dict[str, str], path: str) -> None:
    answer = client.get(path.replace("{run}", ids["CartPole-v1-dqn"]))
    assert answer.status_code in (400, 404), answer.text[:200]
    assert "root:" not in answer.text


def test_a_run_that_is_a_link_does_not_exist(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    plain_run(tmp_path / "runs", "mine")
    plain_run(tmp_path / "elsewhere", "other")
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "elsewhere" / "other")
    client = opened(tmp_path / "runs")
    assert [run["id"] for run in client.get("/api/runs").json()["runs"]] == ["mine"]
    assert client.get("/api/runs/linked").status_code == 400


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "config.yaml", "report.html", "meta.json", "videos", "checkpoints/last",
     "checkpoints/step=1000/tensors.safetensors"],
)  # fmt: skip
def test_a_run_with_a_link_that_leads_out_is_refused(
    tmp_path: Path, opened: Callable[..., TestClient], name: str
) -> None:
    folder = plain_run(tmp_path / "runs", "mine", heavy=True)
    secret = tmp_path / "secret"
    if name == "videos":
        secret.mkdir()
        shutil.rmtree(folder / name)
    else:
        secret.write_text("canary")
        (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    client = opened(tmp_path / "runs")
    for path in ("", "/config", "/alerts", "/report", "/videos/secret"):
        answer = client.get(f"/api/runs/mine{path}")
        assert answer.status_code == 400, path
        assert "canary" not in answer.text
    curve = client.get("/api/curve", params={"run": "mine", "metric": "train/loss/total"})
    assert curve.status_code == 400
    assert "/" in name or client.get("/api/runs").json()["runs"] == []


def test_links_within_a_run_are_fine(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    plain_run(tmp_path / "runs", "mine", heavy=True)
    client = opened(tmp_path / "runs")
    assert client.get("/api/runs/mine").json()["checkpoints"][0]["marks"] == ["best", "last"]
    assert client.get("/api/runs/mine/videos/a.mp4").headers["content-type"] == "video/mp4"


def test_only_the_report_and_videos_are_sent(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    folder = plain_run(tmp_path / "runs", "mine", heavy=True)
    (folder / "videos" / "page.html").write_text("canary")
    (folder / "secret").write_text("canary")
    (folder / "report.html").unlink(missing_ok=True)
    (folder / "report.html").symlink_to("secret")
    client = opened(tmp_path / "runs")
    for path in ("videos/page.html", "report"):
        answer = client.get(f"/api/runs/mine/{path}")
        assert (answer.status_code, "canary" in answer.text) == (400, False), path


def test_a_report_can_draw_but_reach_nothing(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    folder = plain_run(tmp_path / "runs", "mine")
    (folder / "report.html").write_text("<script>fetch('/api/runs')</script>")
    policy = opened(tmp_path / "runs").get("/api/runs/mine/report").headers["content-security-policy"]
    assert "sandbox allow-scripts" in policy
    assert "allow-same-origin" not in policy
    assert "default-src 'none'" in policy


def test_a_pickle_is_never_run(
    runs: Path, ids: dict[str, str], tmp_path: Path, opened: Callable[..., TestClient]
) -> None:
    canary = tmp_path / "canary"

    class Trap:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {canary}",)

    root = tmp_path / "runs"
    shutil.copytree(runs / ids["CartPole-v1-dqn"], root / "trap", symlinks=True)
    folder = root / "trap" / "checkpoints" / "step=1024"
    data = pickle.dumps(Trap())
    (folder / checkpoint.TENSORS).write_bytes(data)
    manifest = json.loads((folder / checkpoint.MANIFEST).read_text())
    manifest.pop("sha256")
    manifest["files"][checkpoint.TENSORS] = {"size": len(data), "sha256": checkpoint._digest(data)}
    body = {**manifest, "sha256": checkpoint._digest(checkpoint._dump(manifest))}
    (folder / checkpoint.MANIFEST).write_bytes(checkpoint._dump(body))
    client = opened(root)
    job = wait(client, client.post("/api/episodes", json={"run": "trap", "checkpoint": "last"}).json())
    assert job["state"] == "failed"
    assert "tensors.safetensors" in job["error"]
    assert not canary.exists()


def test_script_in_names_arrives_as_text(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    folder = plain_run(tmp_path / "runs", "mine", name=EVIL, spec=EVIL)
    (folder / "tags.json").write_text(json.dumps({"tags": [EVIL]}))
    row = {"epoch": 1, "env_steps": 1, "updates": 1, "phase": EVIL, "seconds": 1.0, EVIL: 1.0}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    client = opened(tmp_path / "runs")
    answer = client.get("/api/runs/mine")
    assert answer.headers["content-type"] == "application/json"
    assert EVIL in answer.json()["metrics"]
    assert answer.json()["tags"] == [EVIL]


def test_nothing_of_the_page_is_parsed_as_html() -> None:
    """The page builds elements and sets text: there is no way from a string to markup."""
    static = Path(tags.__file__).parents[1] / "inspector" / "static"
    for path in static.glob("*.js"):
        if not path.name.startswith("uPlot"):
            text = path.read_text()
            for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
                assert way not in text, f"{path.name}: {way}"


@pytest.mark.parametrize("body", ["", "[]", "nonsense", '{"run": 1}', "[" * 100_000, "x" * 100_000, '{"run": ".."}'])
def test_bad_orders_are_one_line(client: TestClient, body: str) -> None:
    answer = client.post("/api/episodes", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "\n" not in answer.json()["error"]


def test_a_long_order_is_refused_while_it_arrives(client: TestClient) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1 << 20:
            sent += 1 << 14
            yield b" " * (1 << 14)

    answer = client.post("/api/episodes", content=endless(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, "is too long" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("wish", [{"seed": -1}, {"seed": "x"}, {"steps": 0}, {"steps": 10**9}, {"mode": "wild"},
                                  {"checkpoint": "../x"}, {"checkpoint": "step=7"}])  # fmt: skip
def test_bad_wishes_are_refused(client: TestClient, ids: dict[str, str], wish: dict[str, Any]) -> None:
    answer = client.post("/api/episodes", json={"run": ids["CartPole-v1-dqn"], **wish})
    assert (answer.status_code, "error" in answer.json()) == (400, True)
