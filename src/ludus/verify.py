"""`ludus verify`: train a run again and compare every number."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus import preflight
from ludus.archive import checkpoint, rebuild
from ludus.archive.differences import refuse_what_was_edited
from ludus.archive.fingerprint import fingerprint
from ludus.archive.store import RunFolder
from ludus.config.compose import parse
from ludus.config.read import read_file
from ludus.config.schema import ExperimentConfig, WandbConfig
from ludus.config.training import Video
from ludus.errors import DataError
from ludus.experiment import build
from ludus.learning.ranks import ALONE, Ranks
from ludus.metrics.sinks import Row, Sink
from ludus.metrics.sinks.jsonl import read_rows
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.plugins import Plugin
from ludus.run import Run
from ludus.session.loading import begin_from, stored_state
from ludus.session.ranks import meet, ranks_of
from ludus.session.resume import edited_since

TIMING = ("seconds", "train/time/", "val/time/", "train/system/")


@dataclass(frozen=True)
class Verdict:
    """The result of a repetition: identical, or the first difference."""

    rows: int
    env_steps: int
    difference: str | None = None
    weights: bool | None = None
    """Whether the final states are equal; None if there is no checkpoint to compare."""

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return self.difference is None and self.weights is not False


def verify(
    folder: RunFolder, announce: Callable[[str], None] = lambda _: None, plugins: Sequence[Plugin] = ()
) -> Verdict:
    """Train again from the run's own config and compare with its metrics and its last checkpoint.

    `announce` is told what may explain a difference: an update that was compiled and cannot be compiled here.
    """
    expected = list(read_rows(folder.path / "metrics.jsonl"))
    if not expected:
        raise DataError(str(folder.path / "metrics.jsonl"), "holds no rows", "verify a run that has trained")
    config = parse(read_file(folder.config_path), str(folder.config_path))
    trained = checkpoint.trained(checkpoint.about(folder.path))
    refuse_what_was_edited(edited_since(trained, config, folder.path), folder.config_path)
    with tempfile.TemporaryDirectory() as scratch, ranks_of(silent(config), plugins) as ranks:
        return repeat(folder, silent(config), _Judge(expected), Path(scratch), announce, ranks)


def repeat(
    folder: RunFolder,
    config: ExperimentConfig,
    judge: _Judge,
    scratch: Path,
    announce: Callable[[str], None],
    ranks: Ranks = ALONE,
) -> Verdict:
    """Train as the run of `folder` did, with checkpoints in `scratch`, and judge every row."""
    load = stored_state(config)
    run = judge.run = build(config, sinks=[judge], will_checkpoint=True, ranks=ranks, say=announce)
    run.say = lambda _: None
    try:
        preflight.check(run, scratch)
        start = rebuild.meta(folder.path).get("start")
        if isinstance(start, dict):
            begin_from(run, start, folder.path.parent)
        run.buffers.attach(scratch / "buffers")
        run.callbacks.append(Checkpoints(scratch, config.training.checkpoints, warn=announce))
        load(run)
        saved = checkpoint.checkpoints(folder.path)
        if saved:  # compiled and eager updates round differently, and so do precisions
            state = checkpoint.load(saved[list(saved)[-1]])
            run.compiler.load_state_dict(state["compiler"])
            run.precision.load_state_dict(state["precision"])
        meet(run, scratch)
        run.run()
    finally:
        run.close()
    return judge.verdict(_same_state(folder, scratch) if judge.difference is None else None)


def silent(config: ExperimentConfig) -> ExperimentConfig:
    """The same training, without anything that reaches beyond its folder."""
    logging = config.logging.model_copy(
        update={"console": False, "tensorboard": False, "wandb": WandbConfig(), "stalled_seconds": None}
    )
    evaluation = config.training.evaluation.model_copy(update={"video": Video()})
    training = config.training.model_copy(update={"evaluation": evaluation})
    return config.model_copy(update={"logging": logging, "training": training})


def _same_state(run: RunFolder, scratch: Path) -> bool | None:
    ours, theirs = checkpoint.checkpoints(run.path), checkpoint.checkpoints(scratch)
    common = [name for name in ours if name in theirs]
    if not common:
        return None
    return fingerprint(checkpoint.load(ours[common[-1]])) == fingerprint(checkpoint.load(theirs[common[-1]]))


class _Judge(Sink):
    """Compares rows as they come and ends the run at the first difference or after the last expected row."""

    run: Run

    def __init__(self, expected: list[dict[str, float | str]]) -> None:
        self.expected = expected
        self.seen = 0
        self.difference: str | None = None

    def write(self, row: Row) -> None:
        """Compare one row of the repetition."""
        if self.seen < len(self.expected) and self.difference is None:
            self.difference = first_difference(self.expected[self.seen], row)
            self.seen += 1
        if self.difference is not None:
            self.run.stop("differs")
        elif self.seen == len(self.expected):
            self.run.stop("verified")

    def verdict(self, weights: bool | None) -> Verdict:
        """The result, with or without a comparison of the final states."""
        missing = len(self.expected) - self.seen
        difference = self.difference or (f"{missing} rows were not repeated" if missing else None)
        return Verdict(self.seen, int(float(self.expected[self.seen - 1]["env_steps"])), difference, weights)


def first_difference(expected: Mapping[str, float | str], found: Mapping[str, float | str]) -> str | None:
    """The first metric that differs between two rows, except timings."""
    for key in dict.fromkeys([*expected, *found]):
        before, now = expected.get(key), found.get(key)
        same = before == now or (before != before and now != now)
        if not same and not key.startswith(TIMING):
            return f"step {expected.get('env_steps'):,}: {key} was {before}, is {now}"
    return None
