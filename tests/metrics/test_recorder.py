"""One row an epoch, the right reduction per metric, and sinks that may fail."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ludus.metrics.recorder import Recorder
from ludus.metrics.sinks import Row, Sink

_AT: dict[str, Any] = {"epoch": 1, "env_steps": 256, "updates": 20, "phase": "main", "seconds": 0.5}


class Keep(Sink):
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.closed = False

    def write(self, row: Row) -> None:
        self.rows.append(row)

    def close(self) -> None:
        self.closed = True


class Broken(Keep):
    def write(self, row: Row) -> None:
        if len(self.rows) < 3:
            super().write(row)
            raise OSError(28, "No space left on device")
        super().write(row)


def test_an_epoch_has_the_metrics_of_its_own_steps_only() -> None:
    recorder = Recorder()
    recorder.record("train", {"loss/policy": 1.0, "loss/old": 5.0})
    recorder.begin_epoch()
    recorder.record("train", {"loss/policy": 3.0})
    assert recorder.epoch == {"train/loss/policy": 3.0}
    assert recorder.flush(**_AT)["train/loss/policy"] == 2.0  # the row goes on over both


def test_losses_are_averaged_and_rolls_and_times_are_last() -> None:
    keep = Keep()
    recorder = Recorder([keep])
    for value in (1.0, 3.0):
        recorder.record(
            "train", {"loss/policy": value, "roll/ep_rew/mean": value, "time/fps": value, "system/rss_mb": value}
        )
    recorder.record("val", {"roll/ep_rew/mean": 7.0})
    row = recorder.flush(**_AT)
    assert row == {
        **_AT,
        "train/loss/policy": 2.0,
        "train/roll/ep_rew/mean": 3.0,
        "train/time/fps": 3.0,
        "train/system/rss_mb": 3.0,
        "val/roll/ep_rew/mean": 7.0,
    }
    assert keep.rows == [row]


def test_a_flush_begins_the_next_epoch() -> None:
    recorder = Recorder()
    recorder.record("train", {"loss/policy": 1.0})
    recorder.flush(**_AT)
    recorder.record("train", {"loss/policy": 5.0})
    assert recorder.flush(**_AT)["train/loss/policy"] == 5.0
    assert recorder.flush(**_AT) == _AT


def test_a_full_disk_neither_ends_training_nor_floods(caplog: pytest.LogCaptureFixture) -> None:
    broken, keep = Broken(), Keep()
    recorder = Recorder([broken, keep])
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            recorder.flush(**_AT)
    assert [record.message for record in caplog.records] == [
        "metrics: Broken cannot write: [Errno 28] No space left on device; training goes on, rows are missing there"
    ]
    assert len(keep.rows) == 5
    recorder.close()
    assert broken.closed
    assert keep.closed


def test_a_file_reaches_every_sink_once_and_a_failing_one_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Takes(Keep):
        def __init__(self) -> None:
            super().__init__()
            self.files: list[tuple[Path, int]] = []

        def file(self, path: Path, env_steps: int) -> None:
            self.files.append((path, env_steps))

    class Fails(Keep):
        def file(self, path: Path, env_steps: int) -> None:
            raise OSError(28, "No space left on device")

    takes = Takes()
    Recorder([Keep(), Fails(), takes]).file(Path("videos/epoch=3.mp4"), env_steps=96)
    assert takes.files == [(Path("videos/epoch=3.mp4"), 96)]
    assert len(caplog.records) == 1


def test_a_bug_in_a_sink_is_not_swallowed() -> None:
    class Buggy(Keep):
        def write(self, row: Row) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Recorder([Buggy()]).flush(**_AT)
