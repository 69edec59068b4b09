"""Faults 19-27: two processes, stale locks, vanishing folders, jumping clocks, odd paths, rows from a lost future."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.conftest import Ludus, Mount
from faults.support import SMALL, STEPS, contents, names, only_run, refused, status, steps, whole
from ludus.archive import checkpoint
from ludus.archive.lock import NAME, RunLock
from ludus.metrics.sinks.jsonl import read_rows
from ludus.session.loading import SUPERSEDED, rewind_metrics

ENDLESS = [*SMALL, "training.total_timesteps=1_000_000_000", f"training.checkpoints.every_steps={2 * STEPS}"]
NEVER_STEP = "inject.on_call('ludus.data.collector:Collector.collect', inject.die)"


def rows_past(folder: Path, step: int) -> bool:
    """Whether a row beyond a step is written."""
    files = list(folder.glob("runs/*_*/metrics.jsonl"))
    return bool(files) and any(float(row["env_steps"]) > step for row in read_rows(files[0]))


# ---- locks ---------------------------------------------------------------------------------------


def test_19_two_processes_in_the_same_millisecond(start: Ludus, tmp_path: Path) -> None:
    """Thirty races for one folder: one wins, the other names it."""
    for race in range(30):
        folder, go, over = (tmp_path / f"{race}{end}" for end in ("", ".go", ".over"))
        folder.mkdir()
        script = f"inject.wait_for({str(go)!r}); inject.lock({str(folder)!r}, {str(over)!r})"
        pair = [start(prelude=script) for _ in range(2)]
        time.sleep(0.02)
        go.touch()
        for _ in range(3_000):  # the loser ends first, however slow the machine is
            if any(process.poll() is not None for process in pair):
                break
            time.sleep(0.01)
        over.touch()
        codes = [process.wait() for process in pair]
        assert sorted(codes) == [0, 2], [process.err for process in pair]
        winner, loser = (pair[codes.index(code)] for code in (0, 2))
        assert winner.out == "held"
        refused(loser, 2, str(folder), "is in use by")
        assert f"process {winner.pid} on " in loser.err or "another process" in loser.err


def test_19_a_run_that_is_being_trained_cannot_be_resumed(start: Ludus, ludus: Ludus, tmp_path: Path) -> None:
    training = start("train", *ENDLESS)
    training.until(lambda: rows_past(tmp_path, 256))
    refused(ludus("resume", "@last"), 2, f"is in use by process {training.pid} on {os.uname().nodename}")
    training.signal(15)
    assert training.wait() == 75, training.err
    assert whole(only_run(tmp_path)) == steps(only_run(tmp_path))


def test_19_two_new_runs_in_the_same_millisecond(start: Ludus, tmp_path: Path) -> None:
    go = tmp_path / "go"
    words = ["train", *SMALL, "training.total_timesteps=64"]
    pair = [start(*words, prelude=f"inject.wait_for({str(go)!r})") for _ in range(2)]
    time.sleep(0.1)
    go.touch()
    assert [process.wait() for process in pair] == [0, 0]
    runs = [path for path in (tmp_path / "runs").glob("*_*") if not path.is_symlink()]
    assert len(runs) == 2 and all(status(run)["state"] == "finished" for run in runs)
    assert (tmp_path / "runs" / "@last").resolve() in runs


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_20_stale_lock_after_kill_9(start: Ludus, ludus: Ludus, tmp_path: Path, backend: str) -> None:
    """The lock died with its owner, whatever the file says: even if the number is some living process's by now."""
    training = start("train", *ENDLESS, f"environment.vectorization={backend}")
    training.until(lambda: rows_past(tmp_path, 256))
    run = only_run(tmp_path)
    assert RunLock.is_held(run)
    training.kill()
    assert (run / NAME).exists()
    (run / NAME).write_text(json.dumps({"host": os.uname().nodename, "pid": os.getpid(), "boot": "another"}))
    target = 10 * STEPS + int(max(float(row["env_steps"]) for row in read_rows(run / "metrics.jsonl")))
    resumed = ludus("resume", "@last", f"training.total_timesteps={target // STEPS * STEPS}")
    assert resumed.code == 0, resumed.err
    assert status(run)["state"] == "finished" and not RunLock.is_held(run)


def test_20_what_a_killed_process_left_is_swept(ludus: Ludus, stopped: Path) -> None:
    """Killed between writing a temporary file and renaming it: the next resume cleans up."""
    for _ in range(3):
        killed = ludus("resume", "@last", prelude="inject.on_call('pathlib:Path.replace', inject.die)")
        assert killed.code == -9
    assert [name for name in names(stopped) if name.endswith(".tmp")]
    assert ludus("resume", "@last", "training.total_timesteps=704").code == 0
    assert list(stopped.rglob("*.tmp")) == []


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP"])
def test_21_file_system_without_locks(ludus: Ludus, stopped: Path, error: str) -> None:
    """The kernel refuses flock: refused, never unlocked in silence."""
    before = contents(stopped, without=(NAME,))
    blocked = ludus("resume", "@last", prelude=f"inject.fail_syscall('flock', {error!r}); {NEVER_STEP}")
    refused(blocked, 2, "cannot be locked", "file system with flock")
    assert contents(stopped, without=(NAME,)) == before
    fresh = ludus("train", *SMALL, prelude=f"inject.fail_syscall('flock', {error!r}); {NEVER_STEP}")
    refused(fresh, 2, "cannot be locked", "file system with flock")


# ---- folders that cannot be written --------------------------------------------------------------


def test_22_read_only(ludus: Ludus, stopped: Path, read_only: Callable[[Path], None], tmp_path: Path) -> None:
    """Found before the first step."""
    read_only(tmp_path / "runs")
    refused(ludus("train", *SMALL, prelude=NEVER_STEP), 2, "runs/", "Read-only file system")
    refused(ludus("resume", "@last", prelude=NEVER_STEP), 2, str(stopped.name), "Read-only file system")


def test_22_something_else_in_the_place_of_the_folder(ludus: Ludus, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below"):
        refused(ludus("train", *SMALL, "--runs-dir", place, prelude=NEVER_STEP), 2, place.split("/")[-1])
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("how", ["removed", "renamed", "unmounted"])
def test_23_run_folder_gone_while_training(start: Ludus, mount: Mount, tmp_path: Path, how: str) -> None:
    """As a full disk: warnings, then exit 5; nothing is made anew in its place."""
    disk = mount("disk", "size=20m")
    training = start("train", *ENDLESS, "--runs-dir", str(disk / "runs"))
    training.until(lambda: rows_past(disk, 256))
    if how == "removed":
        shutil.rmtree(disk / "runs", ignore_errors=True)
        shutil.rmtree(disk / "runs", ignore_errors=True)
    elif how == "renamed":
        (disk / "runs").rename(disk / "elsewhere")
    else:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    training.wait()
    refused(training, 5, "cannot save: No such file or directory", "see that the run folder is there")
    assert training.told.count("the next checkpoint is tried again") == 2
    assert not (disk / "runs").exists() or list((disk / "runs").rglob("*.json*")) == []


# ---- clocks and paths ----------------------------------------------------------------------------

YEARS = 10 * 365 * 86_400


def test_24_order_is_by_step_not_by_time(ludus: Ludus, stopped: Path) -> None:
    """The oldest checkpoint comes from the future, the newest from 1970."""
    found = list(checkpoint.checkpoints(stopped).values())
    for age, path in enumerate(found):
        stamp = 0.0 if path == found[-1] else time.time() + YEARS / (age + 1)
        for file in (*path.iterdir(), path):
            os.utime(file, (stamp, stamp))
    assert checkpoint.find(stopped, "last") == checkpoint.load_newest_good(stopped).path == found[-1]
    done = ludus("resume", "@last", "training.total_timesteps=768")
    assert done.code == 0 and "resumed at 640 steps" in done.told, done.told


@pytest.mark.parametrize("seconds", [-7_200, YEARS])
def test_24_the_clock_jumps_while_training(ludus: Ludus, tmp_path: Path, seconds: float) -> None:
    words = [*SMALL, "training.total_timesteps=1024", f"training.checkpoints.every_steps={STEPS}"]
    done = ludus("train", *words, prelude=f"inject.jump_clock({seconds})")
    assert done.code == 0, done.err
    run = only_run(tmp_path)
    rows = list(read_rows(run / "metrics.jsonl"))
    times = [float(row["seconds"]) for row in rows]
    assert times == sorted(times) and 0 < times[-1] < 60
    negative = [f"{key} {value}" for row in rows for key, value in row.items() if "/time/" in key and float(value) < 0]
    assert negative == []
    assert steps(run)[-1] == 1_024


ODD = {
    "space": "with space",
    "unicode": "ünïcødé ⚙ 訓練",
    "newline": "two\nlines",
    "escape": "red\x1b[31m",
    "quote": 'it\'s "quoted" $(id) `id`; rm -rf',
    "dash": "-rf",
    "long": "x" * 255,
    "brackets": "[0-9]*?{a,b}",
    "bytes": os.fsdecode(b"latin\xe9"),
}


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_25_odd_paths_work(ludus: Ludus, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    place = f"--runs-dir={folder}/{name[:255]}"
    done = ludus("train", *SMALL, "training.total_timesteps=64", place, cwd=folder)
    assert done.code == 0, done.err
    done = ludus("resume", "@last", "training.total_timesteps=128", place, cwd=folder)
    assert done.code == 0, done.err
    assert "\x1b" not in done.err and "two\nlines" not in done.err
    (run,) = [path for path in (folder / name).iterdir() if path.is_dir() and not path.is_symlink()]
    assert whole(run)[-1] == 128


def test_25_paths_that_cannot_be(ludus: Ludus, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    for place in ("loop", "x" * 256, "dangling"):
        refused(
            ludus("train", *SMALL, f"--runs-dir={place}", prelude=NEVER_STEP), 2, f"{place}: cannot make a run folder"
        )


# ---- resume --------------------------------------------------------------------------------------


def test_26_resume_a_run_that_has_finished(ludus: Ludus, tmp_path: Path) -> None:
    """Says so and touches nothing, not even a time stamp; a larger budget extends it."""
    assert ludus("train", *SMALL, "training.total_timesteps=128").code == 0
    run = only_run(tmp_path)

    def facts() -> dict[str, tuple[int, int]]:
        return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in (run, *run.rglob("*"))}

    before, told = facts(), contents(run)
    done = ludus("resume", "@last")
    assert done.code == 0 and "has already finished" in done.out and done.err == ""
    assert facts() == before and contents(run) == told
    assert ludus("resume", "@last", "training.total_timesteps=256").code == 0
    assert [row["env_steps"] for row in read_rows(run / "metrics.jsonl")] == [64, 128, 192, 256]


def test_27_rows_beyond_the_checkpoint_are_set_aside(start: Ludus, ludus: Ludus, tmp_path: Path) -> None:
    training = start("train", *SMALL, "training.total_timesteps=1_000_000_000", "training.checkpoints.every_steps=640")
    training.until(lambda: rows_past(tmp_path, 1_000))
    training.kill()
    run = only_run(tmp_path)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"epoch": 9999, "torn')
    before = list(read_rows(run / "metrics.jsonl"))
    saved = steps(run)[-1]
    lost = [row for row in before if float(row["env_steps"]) > saved]
    assert lost
    target = saved + 4 * STEPS
    done = ludus("resume", "@last", f"training.total_timesteps={target}")
    assert done.code == 0 and f"{len(lost)} later rows set aside" in done.told, done.told
    assert list(read_rows(run / SUPERSEDED)) == lost
    after = [float(row["env_steps"]) for row in read_rows(run / "metrics.jsonl")]
    assert after == list(range(STEPS, target + 1, STEPS))
    table = (run / "metrics.csv").read_text().splitlines()
    assert [float(line.split(",")[1]) for line in table[1:]] == after


def test_27_killed_while_rows_are_set_aside(ludus: Ludus, tmp_path: Path) -> None:
    """Before every change: no row is ever in neither file, and the next resume puts all in order."""
    origin, log = tmp_path / "origin", tmp_path / "log"
    origin.mkdir()
    rows = [{"epoch": n, "env_steps": 64 * n, "phase": "train"} for n in range(1, 9)]
    (origin / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (origin / "metrics.csv").write_text(
        "epoch,env_steps,phase\n" + "".join(f"{n},{64 * n},train\n" for n in range(1, 9))
    )
    script = "from pathlib import Path; from ludus.session.loading import rewind_metrics; "
    script += "inject.{}; rewind_metrics(Path({!r}), 5)"
    counted = str(shutil.copytree(origin, tmp_path / "counted"))
    ludus(prelude=script.format(f"count_changes({counted!r}, {str(log)!r})", counted))
    total = len(log.read_text().split())
    assert total >= 5 and len(list(read_rows(Path(counted) / "metrics.jsonl"))) == 5
    for number in range(1, total + 1):
        run = Path(shutil.copytree(origin, tmp_path / f"{number}"))
        assert ludus(prelude=script.format(f"die_before_change({str(run)!r}, {number})", str(run))).code == -9
        known = [row for name in names(run) if name.endswith("jsonl") for row in read_rows(run / name)]
        assert {row["epoch"] for row in known} == set(range(1, 9))
        rewind_metrics(run, 5)
        assert [row["epoch"] for row in read_rows(run / "metrics.jsonl")] == [1, 2, 3, 4, 5]
        assert {row["epoch"] for row in read_rows(run / SUPERSEDED)} == {6, 7, 8}
        assert (run / "metrics.csv").read_text().splitlines()[1:] == [f"{n},{64 * n},train" for n in range(1, 6)]
