"""The index: always what the folders say, whatever happens to the file."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ludus.archive import index as module
from ludus.archive.index import NAME, Index
from ludus.archive.lock import RunLock
from ludus.archive.query import order
from synthetic import DEAD, add_files, make_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def ids(records: list[Any]) -> list[str]:
    return [record.id for record in records]


def test_every_field_of_a_run(root: Path) -> None:
    folder = make_run(root, "cart_1", [100.0, 480.0, 470.0], seed=7, heavy=True)
    (record,) = Index(root).records()
    facts = record.facts()
    for key, value in {
        "id": "cart_1", "name": "cart", "spec": "CartPole-v1:ppo", "algorithm": "ppo", "environment": "CartPole-v1",
        "seed": 7, "state": "finished", "seconds": 5.0, "env_steps": 3000, "updates": 300, "reward": 480.0,
        "last": 470.0, "threshold": 475.0, "solved": False, "exact": True, "config_hash": f"{7:016x}", "tags": [],
        "commit": "c0ffee" * 6,
    }.items():  # fmt: skip
        assert facts[key] == value, key
    files = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    assert record.size == sum(path.lstat().st_size for path in files)
    assert record.get("training.evaluation.every_steps") == 4096
    assert record.get("best") == 480.0


def test_without_patience_the_rest_is_read_the_next_time(root: Path) -> None:
    for i in range(3):
        make_run(root, f"cart_{i}")
    index = Index(root)
    assert (index.records(patience=0), index.unread) == ([], 3)
    assert (len(index.records()), index.unread) == (3, 0)
    assert (len(index.records(patience=0)), index.unread) == (3, 0)  # what is known needs no patience


def test_folders_are_the_truth_and_changes_are_seen(root: Path) -> None:
    folder = make_run(root, "cart_1")
    index = Index(root)
    assert index.records()[0].reward == 480.0
    summary = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({**summary, "best": 499.5}))
    assert index.records()[0].reward == 499.5
    make_run(root, "cart_2")
    assert set(ids(index.records())) == {"cart_1", "cart_2"}
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink()
    folder.rmdir()
    assert ids(index.records()) == ["cart_2"]


def test_an_unchanged_run_is_not_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(root, "cart_1")
    Index(root).records()
    monkeypatch.setattr(module, "read", lambda _: pytest.fail("read again"))
    assert ids(Index(root).records()) == ["cart_1"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not a database" * 1000),
        lambda path: path.write_bytes(path.read_bytes()[:-700]),
        lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 8192),
        lambda path: path.unlink(),
        lambda path: _execute(path, "PRAGMA user_version=99"),
        lambda path: _execute(path, "DROP TABLE runs"),
        lambda path: _execute(path, "UPDATE runs SET record='{'"),
        lambda path: _execute(path, "UPDATE runs SET record='{}'"),
        lambda path: (path.unlink(), path.symlink_to("/dev/null")),
    ],
)
def test_a_damaged_or_foreign_index_is_made_anew(root: Path, damage: Any) -> None:
    for i in range(30):
        make_run(root, f"cart_{i:02}", seed=i)
    expected = Index(root).records()
    _execute(root / NAME, "PRAGMA wal_checkpoint(TRUNCATE)")
    for name in (f"{NAME}-wal", f"{NAME}-shm"):
        (root / name).unlink(missing_ok=True)
    damage(root / NAME)
    assert Index(root).records() == expected
    assert Index(root).records() == expected
    assert Path("/dev/null").is_char_device()


def _execute(path: Path, sql: str) -> None:
    with sqlite3.connect(path) as base:
        base.execute(sql)
    base.close()


def test_an_index_that_cannot_be_written_is_kept_in_memory(root: Path) -> None:
    make_run(root, "cart_1")
    (root / NAME).mkdir()
    assert ids(Index(root).records()) == ["cart_1"]


def test_rebuild_counts_and_an_empty_place_has_nothing(root: Path) -> None:
    assert Index(root).records() == []
    assert not root.exists()
    make_run(root, "cart_1")
    assert Index(root).rebuild() == 1


def test_half_made_and_foreign_folders(root: Path) -> None:
    (root / "notes").mkdir(parents=True)
    folder = make_run(root, "torn")
    (folder / "status.json").write_text('{"state": "fin')
    (folder / "metrics.json").unlink()
    odd = make_run(root, "odd", meta={"name": "\ud800", "git": [], "host": "x"}, status={"pid": 10**40})
    (odd / "config.yaml").write_text("experiment: [1]\nalgorithm: ppo\nenvironment: {id: 5}\n")
    found = {record.id: record for record in Index(root).records()}
    assert set(found) == {"torn", "odd"}
    assert (found["torn"].state, found["torn"].reward) == ("lost", 480.0)
    assert (found["odd"].environment, found["odd"].algorithm) == ("5", None)


def test_numbers_of_a_run_that_goes_on_come_from_its_rows(root: Path) -> None:
    """A resumed run still has the metrics.json of its first end."""
    folder = make_run(root, "cart_1", [50.0, 300.0, 200.0], summary={"best": 1.0, "mean": 1.0, "env_steps": 1})
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "running"}))
    (record,) = Index(root).records()
    assert (record.state, record.reward, record.last, record.env_steps) == ("running", 300.0, 200.0, 3000)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 4000, "val/roll/ep_rew/mean": "NaN"}\n{"env_steps": 5000, "val/roll')
    (record,) = Index(root).records()
    assert (record.reward, record.last, record.env_steps) == (300.0, 200.0, 4000)


@pytest.mark.parametrize(
    ("status", "host", "state"),
    [
        ({}, None, "running"),
        ({"pid": DEAD}, None, "lost"),
        ({"pid": 0}, None, "lost"),
        ({"pid": -1}, None, "lost"),
        ({"pid": None}, None, "lost"),
        ({}, "elsewhere", "running"),
        ({"updated": "2020-01-01T00:00:00+00:00"}, "elsewhere", "lost"),
        ({"updated": "yesterday"}, "elsewhere", "lost"),
    ],
)
def test_a_run_is_lost_when_nobody_works_on_it(root: Path, status: Any, host: str | None, state: str) -> None:
    make_run(root, "cart_1", state="running", status=status, meta={"host": {"name": host}} if host else None)
    assert Index(root).records()[0].state == state


def test_a_recycled_process_number_is_told_by_the_lock(root: Path) -> None:
    folder = make_run(root, "cart_1", state="running")
    lock = RunLock(folder)
    lock.acquire()
    assert Index(root).records()[0].state == "running"
    lock.release()
    assert Index(root).records()[0].state == "lost"


def test_listing_stores_what_it_read(root: Path) -> None:
    make_run(root, "cart_1")
    Index(root).records()
    with sqlite3.connect(root / NAME) as base:
        stored = base.execute("SELECT id, record ->> 'reward', record ->> 'algorithm' FROM runs").fetchall()
    assert stored == [("cart_1", 480.0, "ppo")]
    base.close()


def test_sizes_follow_what_is_added(root: Path) -> None:
    folder = make_run(root, "cart_1")
    index = Index(root)
    before = index.records()[0].size
    add_files(folder)
    assert index.records()[0].size > before + 3000


def test_replay_data_of_a_crashed_run_is_counted(root: Path) -> None:
    folder = make_run(root, "cart_1", state="running", status={"pid": DEAD})
    before = Index(root).records()[0].size
    (folder / "replay").mkdir()
    (folder / "replay" / "shard-0.npy").write_bytes(bytes(5000))
    assert Index(root).records()[0].size == before + 5000


def test_several_processes_at_once(root: Path) -> None:
    for i in range(20):
        make_run(root, f"cart_{i:02}", [float(i)])
    code = (
        "import sys; from pathlib import Path; from ludus.archive.index import Index; root = Path(sys.argv[1])\n"
        "for _ in range(10):\n"
        "    (root / 'cart_00' / 'status.json').touch()\n"
        "    records = Index(root).records(); assert len(records) == 20, len(records)\n"
        "    assert sorted(r.reward for r in records) == [float(i) for i in range(20)]\n"
    )
    with ThreadPoolExecutor(4) as pool:
        command = [sys.executable, "-c", code, str(root)]
        done = list(pool.map(lambda _: subprocess.run(command, capture_output=True, text=True), range(4)))
    assert [result.stderr for result in done] == [""] * 4
    assert len(Index(root).records()) == 20


def test_a_thousand_runs_are_listed_at_once(root: Path) -> None:
    for i in range(1000):
        make_run(root, f"cart_{i:04}", [float(i % 500)], seed=i)
    Index(root).records()
    start = time.process_time()
    best = order(Index(root).records(), "reward")
    assert time.process_time() - start < 2.0  # a fifth of a second on two idle cores
    assert best[0].reward == 499.0
    assert len(best) == 1000
