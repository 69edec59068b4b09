"""Faults 9 and 10: no room for checkpoints, metrics, TensorBoard or videos, for a while or for good."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from faults.conftest import Ludus, Mount
from faults.inject import fill_file_system
from faults.support import SMALL, STEPS, contents, litter, names, only_run, refused, status, steps, whole

WRITE = "ludus.orchestration.callbacks.checkpoints:Checkpoints._write"
ENDLESS = [*SMALL, "training.total_timesteps=1_000_000_000", f"training.checkpoints.every_steps={4 * STEPS}"]


def saved(folder: Path, beyond: int = 0) -> list[Path]:
    """Checkpoints beyond a step."""
    found = (folder / "runs").glob("*_*/checkpoints/step=*")
    return [path for path in found if int(path.name.removeprefix("step=")) > beyond]


def test_09_disk_full_for_a_while(start: Ludus, tmp_path: Path) -> None:
    """Training goes on with a warning, the old checkpoint stays, the next interval tries again."""
    prelude = f"inject.on_call('{WRITE}', inject.small_files(50_000), at=3)"
    prelude += f"; inject.on_call('{WRITE}', inject.small_files(None), at=5)"  # the third failure would be the last
    training = start("train", *ENDLESS, prelude=prelude)
    training.until(lambda: saved(tmp_path, 28 * STEPS))
    training.signal(15)
    assert training.wait() == 75, training.err
    assert training.told.count("training goes on, the next checkpoint is tried again") == 2
    run = only_run(tmp_path)
    assert litter(run) == [] and whole(run) == steps(run)


def test_09_disk_full_for_good(start: Ludus, tmp_path: Path) -> None:
    training = start("train", *ENDLESS)
    training.until(lambda: saved(tmp_path, 8 * STEPS))
    resource.prlimit(training.pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    training.wait()
    refused(training, 5, "cannot save: File too large; free some space")
    run = only_run(tmp_path)
    assert training.told.count("tried again") == 2
    assert litter(run) == [] and whole(run) == steps(run) != []
    assert status(run)["state"] == "failed"


@pytest.mark.parametrize("number", [None, signal.SIGTERM], ids=["at the end", "when stopped"])
def test_09_disk_full_at_the_last_save(ludus: Ludus, tmp_path: Path, number: int | None) -> None:
    """A run whose last state is lost has neither finished nor been saved: exit 5, and resume goes on."""
    words = [*SMALL, f"training.total_timesteps={8 * STEPS}", "training.checkpoints.every_steps=128"]
    prelude = "inject.on_call('ludus.data.collector:Collector.collect', inject.fill_disk_after(384), at=7)"
    if number is not None:
        prelude += f"; inject.signal_on_call('ludus.data.collector:Collector.collect', {int(number)}, at=8)"
    refused(ludus("train", *words, prelude=prelude), 5, "cannot save: File too large")
    run = only_run(tmp_path)
    assert status(run)["state"] == "failed" and whole(run) == [128, 256, 384]
    done = ludus("resume", "@last")
    assert done.code == 0, done.err
    assert status(run)["state"] == "finished" and whole(run)[-1] == 512


def test_09_a_full_disk_is_told_even_without_a_console(start: Ludus, tmp_path: Path) -> None:
    """Whoever turned the table off still wants to know."""
    training = start("train", *ENDLESS, "logging.console=false")
    training.until(lambda: saved(tmp_path))
    resource.prlimit(training.pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    training.wait()
    assert training.code == 5 and training.err.count("the next checkpoint is tried again") == 2, training.err


@pytest.mark.parametrize("freed", [True, False])
def test_09_small_file_system(start: Ludus, mount: Mount, tmp_path: Path, freed: bool) -> None:
    disk = mount("disk", "size=8m")
    prelude = f"inject.on_call('{WRITE}', lambda: inject.fill_file_system('filler'), at=4)"
    if freed:
        prelude += f"; inject.on_call('{WRITE}', lambda: os.remove('filler'), at=6)"
    training = start("train", *ENDLESS, "logging.csv=false", cwd=disk, prelude=prelude)
    if freed:
        training.until(lambda: saved(disk, 36 * STEPS))
        training.signal(15)
        assert training.wait() == 75, training.err
    else:
        training.wait()
        refused(training, 5, "cannot save: No space left on device; free some space")
    assert training.told.count("the next checkpoint is tried again") == 2
    run = only_run(disk)
    assert litter(run) == [] and whole(run) == steps(run) != []


@pytest.mark.parametrize("lost", [0, 5])
def test_09_resume_on_a_full_disk(ludus: Ludus, mount: Mount, stopped: Path, tmp_path: Path, lost: int) -> None:
    """Exit 5, and all that was there is still there, rows from beyond the checkpoint included."""
    disk = mount("disk", "size=8m")
    with (stopped / "metrics.jsonl").open("a") as file:
        for number in range(lost):
            file.write(json.dumps({"epoch": 11 + number, "env_steps": 704 + 64 * number}) + "\n")
    shutil.copytree(tmp_path / "runs", disk / "runs", symlinks=True)
    fill_file_system(disk / "filler")
    before = contents(disk / "runs", without=(".lock", "status.json", "run.log", "metrics.csv"))
    process = ludus("resume", "@last", "training.total_timesteps=1024", cwd=disk)
    refused(process, 5)
    after = contents(disk / "runs", without=(".lock", "status.json", "run.log", "metrics.csv"))
    assert {name: after.get(name) for name in before} == before
    (disk / "filler").unlink()
    done = ludus("resume", "@last", "training.total_timesteps=1024", cwd=disk)
    assert done.code == 0, done.err


def test_10_disk_full_while_logging(start: Ludus, tmp_path: Path) -> None:
    """Metrics and TensorBoard hit the wall; training does not, and the gap is counted."""
    plan = ["training.checkpoints.every_steps=null", "training.checkpoints.at_evaluation=never"]
    training = start("train", *ENDLESS[:-1], *plan, "logging.tensorboard=true")
    training.until(lambda: list(tmp_path.glob("runs/*_*/checkpoints/step=0")))
    resource.prlimit(training.pid, resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
    run = only_run(tmp_path)
    training.until(lambda: "Csv cannot write" in training.err)  # the smallest file
    time.sleep(0.5)
    resource.prlimit(training.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    training.until(lambda: "lost_rows" in (run / "metrics.jsonl").read_text())
    training.signal(15)
    assert training.wait() == 75, training.err
    for sink in ("Jsonl", "Csv", "TensorBoard"):
        assert training.err.count(f"{sink} cannot write") == 1
    assert training.err.count("Traceback") <= 1  # of TensorBoard's own thread
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
    (gap,) = [row["lost_rows"] for row in rows if "lost_rows" in row]
    assert gap > 1 and rows[-1]["epoch"] == len(rows) + gap


def test_10_disk_full_while_recording(start: Ludus, tmp_path: Path) -> None:
    """One warning, no half of a video; later ones are recorded again."""
    plan = ["training.checkpoints.every_steps=null", "training.checkpoints.at_evaluation=never"]
    video = ["training.evaluation.every_steps=640", "training.evaluation.video.every_evaluations=1"]
    training = start("train", *ENDLESS[:-1], *plan, *video, "training.evaluation.episodes=1")
    training.until(lambda: list(tmp_path.glob("runs/*_*/videos/*.mp4")))
    resource.prlimit(training.pid, resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
    training.until(lambda: "not recorded" in training.told)
    before = names(only_run(tmp_path) / "videos")
    resource.prlimit(training.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    training.until(lambda: len(names(only_run(tmp_path) / "videos")) > len(before) + 1)
    training.signal(15)
    assert training.wait() == 75, training.err
    assert training.told.count("not recorded") == 1 and "Traceback" not in training.err
    assert all(path.stat().st_size for path in (only_run(tmp_path) / "videos").iterdir())
