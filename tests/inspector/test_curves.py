"""Curves: every spike survives, NaN is null, large files are searched, bands hold seeds, tails wait for whole lines."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from ludus.inspector import curves, events, search
from ludus.inspector.curves import MetricsFile, downsample
from synthetic import make_run as plain_run


def rows(count: int, rare: int = 0) -> list[dict[str, Any]]:
    """Rows with the metric `often`, and `rare` in one of so many."""
    found = []
    for i in range(count):
        row: dict[str, Any] = {
            "epoch": i,
            "env_steps": 10 * i,
            "updates": i,
            "phase": "p",
            "seconds": i / 4,
            "often": math.sin(i),
        }
        found.append(row | ({"rare": float(i)} if rare and i % rare == 0 else {}))
    return found


def write(path: Path, found: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=False, width=32), min_size=1, max_size=300), st.integers(2, 40)
)
def test_downsampling_keeps_ends_and_extremes(values: list[float], most: int) -> None:
    x, y = np.arange(len(values), dtype=float), np.array(values)
    few, kept = downsample(x, y, most)
    assert len(few) <= most * 1.5 + 3 or len(few) == len(x) <= most
    assert (few[0], few[-1]) == (x[0], x[-1])
    assert list(few) == sorted(set(few))
    if np.isfinite(y).any():
        assert (np.nanmin(kept), np.nanmax(kept)) == (np.nanmin(y), np.nanmax(y))


def test_a_gap_in_a_long_curve_is_kept() -> None:
    y = np.ones(10_000)
    y[5_000] = np.nan
    assert np.isnan(downsample(np.arange(10_000.0), y, 100)[1]).sum() == 1


def test_not_finite_is_null(tmp_path: Path, opened: Callable[..., TestClient]) -> None:
    folder = plain_run(tmp_path / "runs", "mine")
    found = rows(4)
    found[1]["often"], found[2]["often"] = "NaN", "Infinity"
    write(folder / "metrics.jsonl", found)
    answer = opened(tmp_path / "runs").get("/api/curve", params={"run": "mine", "metric": "often"})
    assert "NaN" not in answer.text
    assert json.loads(answer.text, parse_constant=lambda name: pytest.fail(name))["y"][1:3] == [None, None]


@pytest.mark.parametrize("axis", curves.AXES)
def test_curves_over_every_axis(tmp_path: Path, opened: Callable[..., TestClient], axis: str) -> None:
    folder = plain_run(tmp_path / "runs", "mine")
    write(folder / "metrics.jsonl", rows(50))
    found = opened(tmp_path / "runs").get("/api/curve", params={"run": "mine", "metric": "often", "axis": axis}).json()
    assert found["x"] == [row[axis] for row in rows(50)]
    assert found["y"] == [row["often"] for row in rows(50)]


def test_an_unknown_axis_is_refused(client: TestClient, ids: dict[str, str]) -> None:
    answer = client.get("/api/curve", params={"run": ids["CartPole-v1-ppo"], "metric": "a", "axis": "phase"})
    assert answer.status_code == 400


def test_of_a_large_file_all_of_a_rare_metric_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "metrics.jsonl", rows(5_000, rare=100))
    whole = MetricsFile(tmp_path / "metrics.jsonl")
    exact = whole.column("rare", ["env_steps"])
    monkeypatch.setattr(curves, "WHOLE", 1_000)
    searched = MetricsFile(tmp_path / "metrics.jsonl")
    for mine, theirs in zip(searched.column("rare", ["env_steps"]), exact, strict=True):
        assert mine.tolist() == theirs.tolist()
    assert searched.names() == whole.names() == ["often", "rare"]
    often = searched.column("often", ["env_steps"])
    assert 1_000 < len(often[0]) <= (search.PARTS + 5) * search.MOST_PER_PART
    assert often[0].tolist() == sorted(often[0].tolist())
    assert all(y == math.sin(x / 10) for x, y in zip(*often, strict=True))


def test_a_large_file_is_followed_and_searched_again_when_it_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, rows(300, rare=10))
    found = search.Search(path, "rare")
    assert len(found.rows()) == 30
    with path.open("a") as out:
        out.write(json.dumps({"env_steps": 3_000, "rare": 7.0}) + "\n" + '{"env_steps": 3010, "rare": 8')
    assert found.rows()[-1] == {"env_steps": 3_000, "rare": 7.0}  # the torn line waits
    with path.open("a") as out:
        out.write(".0}\n")
    assert [row["env_steps"] for row in found.rows()[29:]] == [2_900, 3_000, 3_010]
    write(tmp_path / "new", rows(20, rare=10))
    (tmp_path / "new").replace(path)
    assert len(found.rows()) == 2
    path.unlink()
    assert found.rows() == []


def test_a_name_in_a_value_is_not_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "metrics.jsonl", [{**row, "phase": "rare"} for row in rows(3)])
    monkeypatch.setattr(curves, "WHOLE", 10)
    assert MetricsFile(tmp_path / "metrics.jsonl").column("rare", ["env_steps"])[0].tolist() == []


def test_a_file_is_followed_and_read_again_when_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, rows(3))
    file = MetricsFile(path)
    assert len(file.column("often", ["env_steps"])[0]) == 3
    with path.open("a") as out:
        out.write(json.dumps(rows(4)[3]) + "\n" + '{"env_steps": 99, "oft')
    assert file.column("often", ["env_steps"])[0].tolist() == [0, 10, 20, 30]  # the torn line waits
    with path.open("a") as out:
        out.write('en": 1.0}\n')
    assert file.column("often", ["env_steps"])[0].tolist() == [0, 10, 20, 30, 99]
    write(path, rows(2))
    assert file.column("often", ["env_steps"])[0].tolist() == [0, 10]
    path.unlink()
    assert file.column("often", ["env_steps"])[0].tolist() == []


def test_seeds_of_one_config_are_one_band(client: TestClient, ids: dict[str, str], runs: Path) -> None:
    wanted = [path.name for path in runs.iterdir() if path.name.startswith("CartPole-v1-ppo_2")] + [
        ids["CartPole-v1-dqn"]
    ]
    found = client.get("/api/band", params={"run": wanted, "metric": "train/roll/ep_rew/mean"}).json()
    assert sorted(len(group["runs"]) for group in found) == [1, 2]
    for group in found:
        assert all(low <= y <= high for low, y, high in zip(group["low"], group["y"], group["high"], strict=True))
        assert (group["x"][0], group["x"][-1]) == (100, 1200)


def test_a_tail_gives_new_whole_rows_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, rows(3))
    tail = events.Tail(path)
    assert tail.rows() == []
    with path.open("a") as out:
        out.write(json.dumps(rows(4)[3]) + "\n" + '{"env_steps": 99')
    assert [row["env_steps"] for row in tail.rows()] == [30]
    assert tail.rows() == []
    with path.open("a") as out:
        out.write("}\n")
    assert [row["env_steps"] for row in tail.rows()] == [99]
    write(path, rows(1))
    assert [row["env_steps"] for row in tail.rows()] == [0]


def test_events_tell_new_rows_and_changed_runs(tmp_path: Path) -> None:
    folder = plain_run(tmp_path / "runs", "mine")

    async def listen() -> list[str]:
        stream = events.stream(tmp_path / "runs", ["mine"], lambda: False)
        found = [await anext(stream)]
        with (folder / "metrics.jsonl").open("a") as out:
            out.write(json.dumps({**rows(1)[0], "often": "NaN"}) + "\n")
        found.append(await anext(stream))
        (folder / "status.json").write_text('{"state": "stopped"}')
        plain_run(tmp_path / "runs", "new")
        found.append(await anext(stream))
        await stream.aclose()  # type: ignore[attr-defined]
        return found

    hello, added, changed = asyncio.run(asyncio.wait_for(listen(), 30))
    assert hello.startswith("event: hello\n")
    assert added.startswith("event: rows\n")
    data = json.loads(added.partition("data: ")[2])
    assert (data["run"], data["count"], data["rows"][0]["often"]) == ("mine", 1, None)
    assert set(json.loads(changed.partition("data: ")[2])["runs"]) == {"mine", "new"}
