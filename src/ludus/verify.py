"""Proof that a run can be repeated: train it again and compare every number."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.config.compose import parse
from ludus.config.read import read_file
from ludus.errors import DataError
from ludus.experiment import build
from ludus.metrics.sinks import Row, Sink
from ludus.metrics.sinks.jsonl import read_rows
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.orchestrator import Orchestrator
from ludus.reports.differences import refuse_what_was_edited
from ludus.runs import checkpoint, rebuild
from ludus.runs.fingerprint import fingerprint
from ludus.runs.record import mapping
from ludus.runs.store import RunFolder
from ludus.seeding import Streams
from ludus.session import begin_from, edited_since
from ludus.session.parts import close

TIMING = ("seconds", "train/time/", "val/time/", "train/system/")


@dataclass(frozen=True)
class Verdict:
    """Identical, or the first row and metric that differ."""

    rows: int
    env_steps: int
    difference: str | None = None
    weights: bool | None = None
    """Whether the final state is equal too; None where there was nothing to compare with."""

    @property
    def identical(self) -> bool:
        """Nothing differs."""
        return self.difference is None and self.weights is not False


def verify(run: RunFolder, announce: Callable[[str], None] = lambda _: None) -> Verdict:
    """Train again from the run's own config and compare with its metrics and its last checkpoint.

    `announce` takes what may explain a difference: an update that was compiled and cannot be here.
    """
    expected = list(read_rows(run.path / "metrics.jsonl"))
    if not expected:
        raise DataError(str(run.path / "metrics.jsonl"), "holds no rows", "verify a run that has trained")
    config = parse(read_file(run.config_path), str(run.config_path))
    trained = checkpoint.trained(checkpoint.about(run.path))
    refuse_what_was_edited(edited_since(trained, config, run.path), run.config_path)
    again = build(config, announce=announce, will_checkpoint=True)
    saved = checkpoint.checkpoints(run.path)
    if saved:  # there are ways to run an update, and they round differently
        state = checkpoint.load(saved[list(saved)[-1]])
        for part in ("compiler", "precision"):
            again.stateful[part].load_state_dict(state[part])
    start = mapping(rebuild.meta(run.path).get("start"))
    if start:
        begin_from(again, start, run.path.parent)
    judge = _Judge(expected, again)
    again.recorder.sinks.append(judge)
    with tempfile.TemporaryDirectory() as scratch:
        collector: Any = again.stateful.get("collector")
        streams = Streams(config.experiment.seed)
        buffers: Any = again.stateful["buffers"]
        buffers.attach(Path(scratch) / "buffers")
        again.callbacks.append(
            Checkpoints(Path(scratch), config.training.checkpoints, collector, streams, warn=lambda _: None)
        )
        again.run()
        close(again)
        return judge.verdict(_same_state(run, Path(scratch)) if judge.difference is None else None)


def _same_state(run: RunFolder, scratch: Path) -> bool | None:
    ours, theirs = checkpoint.checkpoints(run.path), checkpoint.checkpoints(scratch)
    common = [name for name in ours if name in theirs]
    if not common:
        return None
    return fingerprint(checkpoint.load(ours[common[-1]])) == fingerprint(checkpoint.load(theirs[common[-1]]))


class _Judge(Sink):
    """Compares rows as they come and ends the run at the first difference or after the last expected row."""

    def __init__(self, expected: list[dict[str, float | str]], run: Orchestrator) -> None:
        self.expected, self.run = expected, run
        self.seen = 0
        self.difference: str | None = None

    def write(self, row: Row) -> None:
        """One row of the repetition."""
        if self.seen < len(self.expected) and self.difference is None:
            self.difference = first_difference(self.expected[self.seen], row)
            self.seen += 1
        if self.difference is not None:
            self.run.stop("differs")
        elif self.seen == len(self.expected):
            self.run.stop("verified")

    def close(self) -> None:
        """Nothing to close."""

    def verdict(self, weights: bool | None) -> Verdict:
        """What was found."""
        missing = len(self.expected) - self.seen
        difference = self.difference or (f"{missing} rows were not repeated" if missing else None)
        return Verdict(self.seen, int(float(self.expected[self.seen - 1]["env_steps"])), difference, weights)


def first_difference(expected: Mapping[str, float | str], found: Mapping[str, float | str]) -> str | None:
    """The first metric of a row that is not the same, timings left out."""
    for key in dict.fromkeys([*expected, *found]):
        before, now = expected.get(key), found.get(key)
        same = before == now or (before != before and now != now)
        if not same and not key.startswith(TIMING):
            return f"step {expected.get('env_steps'):,}: {key} was {before}, is {now}"
    return None
