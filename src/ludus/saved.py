"""A run on disk, as Python sees it: `ludus.load_run` and `ludus.train` return one."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.archive.store import RunFolder
from ludus.errors import ConfigError
from ludus.text import points

if TYPE_CHECKING:
    from ludus.archive.record import Record
    from ludus.config.schema import ExperimentConfig
    from ludus.orchestration.evaluator import EvalResult
    from ludus.plugins import Plugin
    from ludus.policy import Policy
    from ludus.session.evaluate import PlayedEpisode

Overrides = Mapping[str, Any] | Sequence[str]
"""`{"algorithm.lr": 1e-3}`, or words as on the command line: `["algorithm.lr=1e-3"]`."""


class SavedRun:
    """One run folder: its config and metrics, and what can be done with it."""

    def __init__(self, folder: RunFolder, plugins: Sequence[str | Path] = ()) -> None:
        self._folder, self._plugins = folder, plugins

    @property
    def id(self) -> str:
        """Name of the run."""
        return self._folder.id

    @property
    def reference(self) -> str:
        """Its id and, if it was loaded by one such as `RUN/@best`, the checkpoint that stands for it."""
        return "/".join(filter(None, (self.id, self._folder.checkpoint)))

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._folder.path

    @property
    def config(self) -> ExperimentConfig:
        """The resolved config, typed and frozen."""
        from ludus.session.player import saved_config

        self._load_plugins()
        return saved_config(self._folder)

    @property
    def record(self) -> Record:
        """The facts that `ludus list` shows: state, best and last return, steps, seconds, tags, ..."""
        from ludus.archive.index import Index

        return Index(self.folder.parent).get(self.id)

    def metrics(self) -> Any:
        """All rows of metrics.jsonl: a pandas DataFrame, or without pandas a dict of columns (None where missing)."""
        from ludus.archive import history

        rows = list(history.rows(self.folder))
        names = dict.fromkeys(key for row in rows for key in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        try:
            import pandas
        except ImportError:
            return columns
        return pandas.DataFrame(columns)

    def evaluate(
        self,
        episodes: int = 100,
        *,
        checkpoint: str | None = None,
        deterministic: bool | None = None,
        seed: int | None = None,
        env: str | None = None,
    ) -> EvalResult:
        """Play episodes with a checkpoint (default: the best one), as `ludus evaluate` does."""
        from ludus.session.evaluate import evaluated
        from ludus.session.player import checkpoint_name

        if isinstance(episodes, bool) or not isinstance(episodes, Integral) or episodes < 1:
            raise ConfigError("evaluate", f"{episodes!r} episodes cannot be played", "ask for at least one")
        self._load_plugins()
        return evaluated(self._folder, checkpoint_name(self._folder, checkpoint), episodes, deterministic, seed, env)

    def trajectory(
        self,
        *,
        checkpoint: str | None = None,
        deterministic: bool | None = None,
        seed: int | None = None,
        env: str | None = None,
    ) -> PlayedEpisode:
        """Play one episode and return all its steps: observations, actions, rewards and how it ended."""
        from ludus.session.evaluate import trajectory
        from ludus.session.player import checkpoint_name

        self._load_plugins()
        return trajectory(self._folder, checkpoint_name(self._folder, checkpoint), deterministic, seed, env)

    def policy(
        self, *, checkpoint: str | None = None, deterministic: bool | None = None, seed: int | None = None
    ) -> Policy:
        """Its policy as a function: `action = policy(obs)`."""
        from ludus.policy import policy_of_run
        from ludus.session.player import checkpoint_name

        self._load_plugins()
        return policy_of_run(self._folder, checkpoint_name(self._folder, checkpoint), deterministic, seed)

    def resume(self, overrides: Overrides = (), *, quiet: bool = False) -> SavedRun:
        """Go on to the bit from `reference` or the newest checkpoint; a finished run needs a new budget or goal."""
        from ludus.session.resume import budget_field, resume

        words = [*override_words(overrides), *(["logging.console=false"] if quiet else [])]
        if resume(self.reference, words, runs_dir=self.folder.parent, plugins=self._load_plugins()) is None:
            problem, field = f"{self.id} has already finished", budget_field(self._folder)
            remedy = f'give it a larger budget, resume({{"training.{field}": ...}}), or another goal'
            raise ConfigError("resume", problem, remedy)
        return SavedRun(RunFolder(self.folder), self._plugins)

    def report(self) -> Path:
        """Write report.md and report.html again; the path of the HTML file."""
        from ludus.archive.run_plugins import load_if_allowed
        from ludus.reports.report import write_report

        load_if_allowed(self._folder, self._plugins)
        return write_report(self.folder)

    def curve(self, metric: str | None = None) -> tuple[list[float], list[float]]:
        """A metric over environment steps; the default is the evaluated return, or without evaluations the return."""
        from ludus.archive import history
        from ludus.metrics.names import EVAL_RETURN, RETURN

        if metric is not None:
            return history.curve(self.folder, metric)
        found = history.curve(self.folder, EVAL_RETURN)
        return found if found[0] else history.curve(self.folder, RETURN)

    def _load_plugins(self) -> list[Plugin]:
        """Run the plugins that its parts are in."""
        from ludus.archive.run_plugins import load_for

        return load_for(self._folder, self._plugins)

    def __repr__(self) -> str:
        return f"<Run {self.id}: {', '.join(self._facts())}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SavedRun) and other.folder.absolute() == self.folder.absolute()

    def __hash__(self) -> int:
        return hash(self.folder.absolute())

    def _facts(self) -> list[str]:
        record = self.record
        steps = [] if record.env_steps is None else [f"{record.env_steps:,} steps"]
        last = [] if record.last is None else [f"last return {points(record.last)}"]
        best = [] if record.reward is None else [f"best {points(record.reward)}"]
        return [record.state, *steps, *last, *best]

    def _repr_html_(self) -> str:
        """For notebooks: the facts and the learning curve."""
        facts = html.escape(" · ".join([f"{self.record.algorithm} on {self.record.environment}", *self._facts()]))
        return f"<div><b>{html.escape(self.id)}</b><br>{facts}<br>{_svg(*self.curve(), self.record.threshold)}</div>"


def override_words(overrides: Overrides) -> list[str]:
    """Overrides as the command line takes them."""
    if isinstance(overrides, str):
        raise ConfigError(overrides, "is one text", f'give a dict, {{"key": value}}, or a list, ["{overrides}"]')
    if not isinstance(overrides, Mapping | Sequence):
        problem = f"is of type {type(overrides).__name__}"
        raise ConfigError("overrides", problem, 'give a dict, {"key": value}, or a list, ["key=value"]')
    if not isinstance(overrides, Mapping):
        return [str(word) for word in overrides]
    flat: dict[str, object] = {}
    for key, value in overrides.items():
        flat |= _flat(str(key), value)
    return [
        f"{'++' if key.startswith('environment.kwargs.') else ''}{key}={_word(value)}" for key, value in flat.items()
    ]


def _flat(key: str, value: object) -> dict[str, object]:
    """Nested dicts as dotted keys; an empty dict is a value."""
    if not isinstance(value, Mapping) or not value:
        return {key: value}
    return {path: leaf for name, part in value.items() for path, leaf in _flat(f"{key}.{name}", part).items()}


def _word(value: object) -> str:
    """A value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key)}:{_word(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_word, value)) + "]"
    if isinstance(value, str | Path):
        return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + "\\'" * bool(m[2]), str(value)) + "'"
    to_python: Callable[[], object] | None = getattr(value, "tolist", None)  # numbers and arrays of numpy and torch
    if to_python is not None:
        return _word(to_python())
    if not isinstance(value, int | float):
        problem = f"{str(value)[:60]} is a {type(value).__name__}"
        raise ConfigError("overrides", problem, "give numbers, texts, lists, dicts, true, false or None")
    return repr(value)


def _key(key: object) -> str:
    """A key of a mapping, which Hydra's grammar has no quotes for."""
    if not re.fullmatch(r"\w[\w.-]*", str(key)):
        raise ConfigError("overrides", f"{str(key)[:60]!r} is no name of a setting", "write it into a file")
    return str(key)


def _svg(steps: Sequence[float], values: Sequence[float], threshold: float | None) -> str:
    """A small learning curve; a dashed line is the threshold."""
    if len(steps) < 2:
        return ""
    shown = [*values, *([] if threshold is None else [threshold])]
    low, high = min(shown), max(shown)
    across, up = 400 / (max(steps) - min(steps) or 1), 110 / (high - low or 1)
    line = " ".join(
        f"{(x - min(steps)) * across:.1f},{115 - (y - low) * up:.1f}" for x, y in zip(steps, values, strict=True)
    )
    y = 0 if threshold is None else 115 - (threshold - low) * up
    goal = "" if threshold is None else f'<path d="M0 {y:.1f}H400" stroke="#999" stroke-dasharray="4 4"/>'
    ends = f"{points(low)} to {points(high)}, step {min(steps):,.0f} to {max(steps):,.0f}"
    drawn = f'{goal}<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="2"/>'
    return f'<svg width="400" height="120" viewBox="0 0 400 120">{drawn}</svg><br><small>{html.escape(ends)}</small>'
