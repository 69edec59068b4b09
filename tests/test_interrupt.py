"""A signal is heard at the end of a cycle, and a resumed run goes on in the middle of its epoch, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golden.fingerprints import cases
from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.config.schema import ExperimentConfig
from ludus.experiment import build
from ludus.metrics.sinks import Sink
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.verify import TIMING

LEARNS = ("a2c", "dqn rainbow", "dqn phases", "sac overlap", "q_learning")
WORLDS = ("dreamer", "dreamer v2", "dreamer v1", "dreamer image", "planet", "tdmpc", "tdmpc v1")


class Rows(Sink):
    """Keeps rows without timings."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, row: dict[str, Any]) -> None:
        self.rows.append({name: value for name, value in row.items() if not name.startswith(TIMING)})


class Signal(Callback):
    """Comes while the hook runs that completes so many environment steps."""

    def __init__(self, moment: int) -> None:
        self.moment, self.seen = moment, 0

    def on_report(self, run, hook, report):
        self.seen += report.env_steps
        if self.seen >= self.moment:
            run.interrupt("SIGTERM")


def trained(cfg: ExperimentConfig, folder: Path, moment: int | None = None) -> tuple[Any, list[dict[str, Any]]]:
    """A run with checkpoints in a folder, where it goes on if there is one; its rows."""
    folder.mkdir(exist_ok=True)
    rows = Rows()
    run = build(cfg, sinks=[rows], will_checkpoint=True)
    run.buffers.attach(folder / "buffers")
    plan = cfg.training.checkpoints.model_copy(update={"every_steps": 100, "at_evaluation": "never"})
    run.callbacks += [] if moment is None else [Signal(moment)]
    run.callbacks.append(Checkpoints(folder, plan, warn=pytest.fail))
    if checkpoint.checkpoints(folder):
        run.load_state_dict(checkpoint.load(checkpoint.find(folder, "last")))
    run.run()
    run.close()
    return run, rows.rows


def final(folder: Path) -> str:
    return fingerprint(checkpoint.load(checkpoint.find(folder, "last")))


@pytest.mark.parametrize("name", [*LEARNS, *WORLDS])
def test_signals_within_epochs_are_heard_at_once_and_change_nothing(name: str, tmp_path: Path) -> None:
    """An epoch has 64 steps, and a cycle of most algorithms 8."""
    cfg, whole, broken = cases()[name], tmp_path / "whole", tmp_path / "broken"
    _, expected = trained(cfg, whole)
    stopped, rows = trained(cfg, broken, moment=80)
    assert stopped.stopped_early and stopped.progress.env_steps < 100
    if name in WORLDS:
        assert (stopped.progress.env_steps, len(rows)) == (80, 1), "no row of half an epoch"
        assert "epoch" in checkpoint.load(checkpoint.find(broken, "last"))
    again, more = trained(cfg, broken, moment=24)
    assert again.progress.env_steps > stopped.progress.env_steps
    _, rest = trained(cfg, broken)
    assert [*rows, *more, *rest] == expected
    assert final(broken) == final(whole)


def test_a_checkpoint_at_the_end_of_an_epoch_holds_nothing_of_the_epoch(tmp_path: Path) -> None:
    trained(cases()["dqn"], tmp_path)
    assert "epoch" not in checkpoint.load(checkpoint.find(tmp_path, "last"))


def test_a_checkpoint_that_is_due_within_the_epoch_is_still_due_after_a_signal(tmp_path: Path) -> None:
    """Every 100 steps; epochs of the uninterrupted run end at 64, 128 and 168."""
    trained(cases()["dqn"], tmp_path, moment=112)
    assert [*checkpoint.checkpoints(tmp_path)][-1] == "step=112"
    trained(cases()["dqn"], tmp_path)
    assert "step=128" in checkpoint.checkpoints(tmp_path)
