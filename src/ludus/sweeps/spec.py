"""The spec of a sweep: what is trained, what is searched, how, and how many runs it may take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ludus.config.aliases import canonical
from ludus.config.model import Model
from ludus.errors import ConfigError
from ludus.sweeps.space import Parameter, as_override

Method = Literal["grid", "random", "bayes"]
Sampler = Literal["tpe", "cmaes", "gp"]
Pruner = Literal["none", "median", "halving", "hyperband", "wilcoxon"]
SEED = ("experiment", "seed")


class Metric(Model):
    """What the search improves."""

    name: str = "final"
    """`final`, `best` or `area` (mean over the budget) of the evaluations, or the last value of a metric."""
    goal: Literal["maximize", "minimize"] = "maximize"
    """Whether more or less of it is better."""


class Pruning(Model):
    """When a trial is stopped early; steps are counted in evaluations (in values of the metric)."""

    type: Pruner = "none"
    """Optuna's rule: `median`, `halving` (successive halving), `hyperband`, or `wilcoxon` over the seeds of a trial."""
    first: PositiveInt = 1
    """Evaluations before the first decision."""
    eta: int = Field(default=3, ge=2)
    """Of `halving` and `hyperband`: one of so many trials goes on."""
    startup: NonNegativeInt = 4
    """Of `median`: trials before the first decision."""


class Limits(Model):
    """What a run may take; a trial that takes more is stopped and does not count."""

    minutes: float | None = Field(default=None, gt=0)
    """Minutes of training of one run."""
    memory_mb: float | None = Field(default=None, gt=0)
    """Megabytes of one process."""


class Confirmation(Model):
    """The best trials once more, on seeds that the search has not seen."""

    trials: PositiveInt = 2
    """How many of the best."""
    seeds: tuple[NonNegativeInt, ...]
    """Fresh seeds, for the first trial (the settings as they were) and the best ones."""


class Stages(Model):
    """A search in three stages: a coarse grid, the sampler over everything, the sampler near the best."""

    coarse: NonNegativeInt
    """Trials of the coarse grid, after the base."""
    fine: NonNegativeInt
    """Trials near the best, at the end."""


class SweepSpec(Model):
    """A whole sweep, as its folder keeps it."""

    schema_version: Literal[1] = 1
    """Version of the file format."""
    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,23}$")
    """Name of the sweep: up to 24 letters, digits, `.`, `_` and `-`."""
    base: str
    """What every trial begins with: `Env:variant`, `+experiment=name` or a file."""
    overrides: tuple[str, ...] = ()
    """What is the same in every trial."""
    method: Method = "grid"
    """`grid` tries every combination, `random` draws them, `bayes` learns from earlier trials."""
    sampler: Sampler = "tpe"
    """Of `bayes`: Optuna's TPE, CMA-ES or Gaussian processes."""
    stages: Stages | None = None
    """Of `bayes`: whether it begins with a coarse grid and ends near the best."""
    metric: Metric = Metric()
    """What is improved."""
    parameters: tuple[Parameter, ...] = Field(min_length=1)
    """What is searched."""
    trials: PositiveInt | None = None
    """Most trials; a grid without it is tried in full."""
    seeds: tuple[NonNegativeInt, ...] = ()
    """Seeds of each trial; none: the one of its config."""
    jobs: PositiveInt | None = None
    """Runs at once; none: one per core."""
    pruning: Pruning = Pruning()
    """When trials are stopped early."""
    limits: Limits = Limits()
    """What a run may take."""
    confirmation: Confirmation | None = None
    """Whether the best are tried again."""
    begin_as_is: bool = False
    """Whether trial 0 is the base itself."""
    seed: NonNegativeInt = 0
    """Seed of the search."""
    plugins: tuple[str, ...] = ()
    """Plugins of every run."""

    @model_validator(mode="after")
    def _no_options(self) -> Self:
        """The words of a sweep are arguments of `ludus train`: one that begins with a dash would be an option of it."""
        if any(word.startswith("-") for word in (self.base, *self.overrides, *(one.key for one in self.parameters))):
            raise ValueError("options are no part of a sweep")
        return self

    @property
    def run_seeds(self) -> tuple[int | None, ...]:
        """The seeds of each trial; None stands for that of its config."""
        return self.seeds or (None,)

    def words(self, values: Mapping[str, Any]) -> list[str]:
        """Overrides of a trial with these values."""
        return [*self.overrides, *(as_override(key, value) for key, value in values.items())]

    def run_name(self, number: int, seed: int | None) -> str:
        """`experiment.name` of a run, by which its folder is found."""
        return f"{self.name}-t{number:04}" + ("" if seed is None else f"-s{seed}")

    def arguments(self, number: int, values: Mapping[str, Any], seed: int | None, runs_dir: Path) -> list[str]:
        """The arguments of `ludus` that train one run of a trial, or go on with it."""
        own = [f"experiment.name={self.run_name(number, seed)}", *([] if seed is None else [f"seed={seed}"])]
        tags = [f"--tag=sweep:{self.name}", f"--tag=trial:{number}"]
        options = ["-q", "--resume=auto", f"--runs-dir={runs_dir}", *(f"--plugin={name}" for name in self.plugins)]
        return ["train", self.base, *self.words(values), *own, *tags, *options]


def checked(spec: SweepSpec, where: str) -> SweepSpec:
    """The spec, if its parts fit together."""
    paths = [canonical(tuple(one.key.lstrip("+").split(".")))[0] for one in spec.parameters]
    twice = next((".".join(path) for i, path in enumerate(paths) if path in paths[:i]), None)
    if twice:
        raise ConfigError(where, f"{twice} is searched twice", "keep one of them")
    if SEED in paths and spec.seeds:
        raise ConfigError(where, "seeds are searched and given, too", "keep one of them")
    if spec.method != "grid" and spec.trials is None:
        raise ConfigError(where, f"method {spec.method} has no end", "write --trials 30, or run_cap: 30")
    if spec.stages is not None and (spec.method != "bayes" or spec.sampler == "cmaes"):
        raise ConfigError(where, "stages are for bayes with tpe or gp", "leave them out")
    if spec.pruning.type == "wilcoxon" and len(spec.seeds) < 3:
        raise ConfigError(where, "wilcoxon compares the seeds of a trial", "write --seeds 3 or more")
    return spec
