"""Faults 1-8, 11, 12, 17 and 18: crashes while saving, damaged checkpoints, other formats and configs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from faults import inject
from faults.conftest import Ludus, Mount
from faults.strace import Disk, Tracer
from faults.support import SMALL, STEPS, contents, forge, litter, names, only_run, outcome, refused, steps, whole
from ludus.archive import checkpoint
from ludus.errors import DataError

KILLS, SWEEP = 200, 20


def numbers(run: Path) -> tuple[int, tuple[str, ...]]:
    """The newest state's number, checked in every part, and what was skipped on the way to it."""
    loaded = checkpoint.load_newest_good(run)
    number = loaded.state["n"]
    assert (loaded.state["w"] == float(number)).all() and (loaded.state["moments"] == number).all()
    return number, loaded.skipped


def test_01_kill_9_while_writing(start: Ludus, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, inject.state(1), name="step=0")
    newest, interrupted = 1, 0
    writer = start(prelude=f"inject.save_forever({str(tmp_path)!r}, 2)")
    writer.until(lambda: writer.out)
    began = time.monotonic()
    writer.until(lambda: (tmp_path / "checkpoints" / "step=2").exists())  # three saves, the first one slow
    longest = time.monotonic() - began
    writer.kill()
    for kill in range(KILLS):
        writer = start(prelude=f"inject.save_forever({str(tmp_path)!r}, {newest + 1})")
        writer.until(lambda writer=writer: writer.out)  # type: ignore[misc]
        time.sleep(longest * (kill % SWEEP) / SWEEP)
        writer.kill()
        interrupted += bool(litter(tmp_path))
        found, skipped = numbers(tmp_path)
        assert found >= newest and skipped == (), f"kill {kill}: {found} after {newest}, skipped {skipped}"
        newest = found
        if kill % SWEEP == SWEEP - 1 and newest < kill // 2:
            longest *= 2  # the machine has become slower: let some saves finish
        for old in list(checkpoint.checkpoints(tmp_path).values())[:-3]:
            shutil.rmtree(old)
    assert interrupted >= KILLS // 10 and newest > KILLS // 5, f"{interrupted} kills hit the writer, {newest} saves"
    inject.save(str(tmp_path), newest + 1, newest)
    assert litter(tmp_path) == []


@pytest.mark.parametrize("step", [5, 4], ids=["new", "replaced"])
def test_02_kill_9_before_every_change_of_a_save(ludus: Ludus, tmp_path: Path, step: int) -> None:
    """Between data, manifest, rename and links: whatever was cut off, the folder alone says what is there."""
    origin, log = tmp_path / "origin", tmp_path / "log"
    for n in (3, 4):
        origin.mkdir(exist_ok=True)
        inject.save(str(origin), n, n)
    (origin / "checkpoints" / "best").symlink_to("step=3")
    save = f"inject.save({{!r}}, 5, {step}, best=True)"
    counted = Path(shutil.copytree(origin, tmp_path / "counted", symlinks=True))
    ludus(prelude=f"inject.count_changes({str(counted)!r}, {str(log)!r}); {save.format(str(counted))}")
    events = log.read_text().split()
    assert len(events) >= 10 and events.count("os.rename") >= 3
    for number in range(1, len(events) + 1):
        run = Path(shutil.copytree(origin, tmp_path / str(number), symlinks=True))
        killed = ludus(prelude=f"inject.die_before_change({str(run)!r}, {number}); {save.format(str(run))}")
        assert killed.code == -9
        found, skipped = numbers(run)
        assert found in (4, 5) and skipped == ()
        assert checkpoint.load(checkpoint.find(run, "last"))["n"] == found  # whatever the link says
        assert checkpoint.load(checkpoint.find(run, "best"))["n"] in (3, 4, 5)
        inject.save(str(run), 6, 6)
        assert litter(run) == [] and numbers(run) == (6, ())
        assert (run / "checkpoints" / "last").readlink() == Path("step=6")


@pytest.mark.parametrize("step", [5, 4], ids=["new", "replaced"])
def test_03_power_cut_while_saving(start: Ludus, tmp_path: Path, step: int) -> None:
    """The order of system calls: nothing appears under its name before all of it is on the disk."""
    run, go = tmp_path / "run", tmp_path / "go"
    run.mkdir()
    inject.save(str(run), 4, 4)
    writer = start(prelude=f"inject.wait_for({str(go)!r}); inject.save({str(run)!r}, 5, {step}, best=True)")
    tracer = Tracer(writer.pid, tmp_path / "trace")
    go.touch()
    assert writer.wait() == 0
    disk = Disk().replay(tracer.calls(), run)
    checkpoints = run / "checkpoints"
    assert str(checkpoints / f"step={step}") in disk.renamed and str(checkpoints / "last") in disk.renamed
    assert disk.faults == []
    assert str(checkpoints) not in disk.entries, "the last rename is not on the disk"


def test_03_power_cut_while_a_run_folder_is_made(start: Ludus, tmp_path: Path) -> None:
    root, go = tmp_path / "runs", tmp_path / "go"
    script = f"inject.wait_for({str(go)!r}); from pathlib import Path; from ludus.archive.store import RunFolder; "
    script += f"run = RunFolder.create(Path({str(root)!r}), 'x', config_yaml='a: 1'); "
    script += "run.set_status('running', env_steps=1)"
    writer = start(prelude=script)
    tracer = Tracer(writer.pid, tmp_path / "trace")
    go.touch()
    assert writer.wait() == 0, writer.err
    disk = Disk().replay(tracer.calls(), root)
    assert len(disk.renamed) >= 4
    assert disk.faults == []


def test_04_temporary_files_on_another_file_system(ludus: Ludus, mount: Mount, tmp_path: Path) -> None:
    other = mount("tmp", "size=1m")
    assert other.stat().st_dev != tmp_path.stat().st_dev
    run, log = tmp_path / "run", tmp_path / "log"
    run.mkdir()
    watched = f"inject.count_changes({str(other)!r}, {str(log)!r}); inject.save({str(run)!r}, 1, 1)"
    assert ludus(prelude=watched, env={"TMPDIR": str(other)}).code == 0
    assert log.read_text() == "" and names(other) == []
    assert numbers(run) == (1, ())
    done = ludus("train", *SMALL, "training.total_timesteps=64", env={"TMPDIR": str(tmp_path / "missing")})
    assert done.code == 0, done.err


FILES = (checkpoint.TENSORS, checkpoint.STATE, checkpoint.MANIFEST)


@pytest.mark.parametrize("name", FILES)
def test_05_truncated_at_every_97th_byte(stopped: Path, name: str) -> None:
    *_, before, newest = checkpoint.checkpoints(stopped).values()
    file, data = newest / name, (newest / name).read_bytes()
    for cut in range(0, len(data), 97):
        os.truncate(file, cut) if cut == 0 else file.write_bytes(data[:cut])
        with pytest.raises(DataError) as caught:
            checkpoint.load(newest)
        assert str(file) in caught.value.line()
        if name != checkpoint.MANIFEST:
            assert f"expected {len(data)} bytes, found {cut}" in caught.value.line()
    loaded = checkpoint.load_newest_good(stopped)
    assert loaded.path == before and str(file) in loaded.skipped[0]


@pytest.mark.parametrize("name", FILES)
def test_06_one_flipped_bit(stopped: Path, name: str) -> None:
    *_, before, newest = checkpoint.checkpoints(stopped).values()
    file, data = newest / name, bytearray((newest / name).read_bytes())
    for index in range(0, len(data), max(len(data) // 300, 1)):
        data[index] ^= 1 << index % 8
        file.write_bytes(data)
        loaded = checkpoint.load_newest_good(stopped)
        assert loaded.path == before and str(file) in loaded.skipped[0]
        data[index] ^= 1 << index % 8


def test_06_resume_goes_on_from_the_one_before_and_says_so(ludus: Ludus, stopped: Path) -> None:
    *_, before, newest = checkpoint.checkpoints(stopped).values()
    data = bytearray((newest / checkpoint.TENSORS).read_bytes())
    data[len(data) // 2] ^= 1
    (newest / checkpoint.TENSORS).write_bytes(data)
    done = ludus("resume", "@last", "training.total_timesteps=1024")
    assert done.code == 0, done.err
    assert f"skipped {newest}/{checkpoint.TENSORS}: expected sha256" in done.told
    assert f"resumed at {before.name.removeprefix('step=')} steps" in done.told


def test_07_a_checkpoint_that_lacks_a_part_is_refused(ludus: Ludus, stopped: Path) -> None:
    for path in checkpoint.checkpoints(stopped).values():
        forge(path, lambda data, _: data.update({checkpoint.STATE: b'{"run": {"entered": -1}}'}))
    before = contents(stopped, without=(".lock",))
    for command in ("resume", "play"):
        refused(ludus(command, "@last"), 3, "checkpoints")
    assert contents(stopped, without=(".lock",)) == before


def test_08_all_checkpoints_corrupt(ludus: Ludus, stopped: Path) -> None:
    for path in checkpoint.checkpoints(stopped).values():
        with (path / checkpoint.TENSORS).open("r+b") as file:
            file.truncate(1_000)
    before = contents(stopped / "checkpoints")
    rows = (stopped / "metrics.jsonl").read_bytes()
    line = refused(ludus("resume", "@last"), 3, "no checkpoint is good", "found 1000")
    assert all(f"step={step}/" in line for step in steps(stopped))
    assert contents(stopped / "checkpoints") == before and (stopped / "metrics.jsonl").read_bytes() == rows


def test_11_retention_racing_a_crash(ludus: Ludus, start: Ludus, tmp_path: Path) -> None:
    """Killed before every change between writing the new and deleting the old: never fewer than `keep` good ones."""
    origin, log = tmp_path / "origin", tmp_path / "log"
    origin.mkdir()
    inject.keep_writing(str(origin), 1, 3, 3)
    (origin / "checkpoints" / "best").symlink_to("step=1")
    inject.keep_writing(str(origin), 3, 6, 3)
    assert whole(origin) == [1, 3, 4, 5]
    write = "inject.keep_writing({!r}, 6, 8, 3)"
    counted = Path(shutil.copytree(origin, tmp_path / "counted", symlinks=True))
    ludus(prelude=f"inject.count_changes({str(counted)!r}, {str(log)!r}); {write.format(str(counted))}")
    assert whole(counted) == [1, 5, 6, 7]
    for number in range(1, len(log.read_text().split()) + 1):
        run = Path(shutil.copytree(origin, tmp_path / str(number), symlinks=True))
        killed = ludus(prelude=f"inject.die_before_change({str(run)!r}, {number}); {write.format(str(run))}")
        assert killed.code == -9
        good = []
        for path in checkpoint.checkpoints(run).values():
            try:
                good.append(checkpoint.load(path)["n"])
            except DataError:
                assert path.name in ("step=3", "step=4")  # the one that was being deleted
        assert len(good) >= 4 and good[0] == 1
        inject.keep_writing(str(run), 8, 9, 3)
        assert whole(run) == [1, *good[-2:], 8] and litter(run) == []


def test_11_a_damaged_checkpoint_is_not_one_of_those_kept(ludus: Ludus, stopped: Path) -> None:
    """Two damaged ones are later than where the run goes on; keeping one must not mean keeping one of them."""
    *_, third, second = checkpoint.checkpoints(stopped).values()
    for path in (third, second):
        (path / checkpoint.TENSORS).write_bytes(b"")
    prelude = "inject.signal_on_call('ludus.data.collector:Collector.collect', signal.SIGTERM)"
    done = ludus("resume", "@last", "training.checkpoints.keep=1", prelude=prelude)
    assert done.code == 75, done.err
    assert "set aside: step=576, step=640" in done.told
    assert whole(stopped) == [512, 576]


def test_12_twenty_preemptions(start: Ludus, tmp_path: Path) -> None:
    """Disk use stays bounded, and the end is that of an uninterrupted run."""
    words = [*SMALL, "training.total_timesteps=7680", f"training.checkpoints.every_steps={4 * STEPS}"]
    prelude = "inject.signal_on_call('ludus.data.collector:Collector.collect', signal.SIGTERM, at=5)"
    assert start("train", *words, prelude=prelude).wait() == 75
    run = only_run(tmp_path)
    sizes, entries = [], []
    for _ in range(19):
        resumed = start("resume", "@last", prelude=prelude)
        assert resumed.wait() == 75, resumed.err
        sizes.append(sum(path.stat().st_size for path in (run / "checkpoints").rglob("*") if path.is_file()))
        entries.append(len(list(run.rglob("*"))))
    assert max(sizes) <= 1.1 * sizes[0] and max(entries) <= entries[0] + 6, (sizes, entries)
    assert start("resume", "@last").wait() == 0
    expected = tmp_path / "whole"
    expected.mkdir()
    assert start("train", *words, cwd=expected).wait() == 0
    assert outcome(run) == outcome(only_run(expected))


# ---- other versions and configs ------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 4, "3", None, [3]])
def test_17_another_format_version(ludus: Ludus, stopped: Path, version: object) -> None:
    for path in checkpoint.checkpoints(stopped).values():
        forge(path, lambda _, manifest: manifest.update(version=version))
    refused(ludus("resume", "@last"), 3, f"format version {version}, this Ludus reads {checkpoint.VERSION}")


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("environment.id=Acrobot-v1", "environment.id: 'CartPole-v1' -> 'Acrobot-v1'"),
        ("environment.num_envs=8", "environment.num_envs: 4 -> 8"),
        ("network.actor.hidden_dims=[32]", "network.actor.hidden_dims: None -> [32]"),
        ("algorithm.lr=0.5", "algorithm.lr"),
        ("experiment.seed=7", "experiment.seed: 42 -> 7"),
    ],
)
def test_18_resume_with_another_config(ludus: Ludus, stopped: Path, override: str, shown: str) -> None:
    before = contents(stopped)
    line = refused(ludus("resume", "@last", override, "training.total_timesteps=2000"), 2, shown)
    assert "training.total_timesteps may change" in line and "warm_start" in line
    assert contents(stopped) == before


def test_18_a_config_edited_by_hand_is_no_partial_load(ludus: Ludus, stopped: Path) -> None:
    """The network in config.yaml no longer is the one of the checkpoint."""
    config = stopped / "config.yaml"
    config.write_text(config.read_text().replace("hidden_dims: null", "hidden_dims: [32]", 1))
    before = contents(stopped / "checkpoints")
    refused(ludus("resume", "@last"), 2, "config.yaml", "network.actor.hidden_dims: None -> [32]")
    assert contents(stopped / "checkpoints") == before
