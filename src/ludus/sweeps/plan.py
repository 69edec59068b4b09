"""What a sweep will do, checked before its first run starts: how many trials, and whether every config is valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ludus.config.compose import Resolved, load
from ludus.errors import ConfigError
from ludus.sweeps.objective import OF_EVALUATIONS
from ludus.sweeps.space import Latent, grid, values_of
from ludus.sweeps.spec import SweepSpec
from ludus.sweeps.stages import coarse_points

if TYPE_CHECKING:
    from ludus.sweeps.search import Judged

MOST_CHECKED = 1_000
"""Points of a grid that are all checked; of a larger one every value."""


class Plan:
    """The trials of a sweep."""

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        self.grid = grid(spec.parameters) if spec.method == "grid" else None
        self.first = int(spec.begin_as_is)
        """Number of the first trial that is searched."""

    @property
    def trials(self) -> int:
        """How many trials there will be."""
        most = self.spec.trials
        if self.grid is None:
            assert most is not None
            return most
        whole = len(self.grid) + self.first
        return whole if most is None else min(most, whole)

    @property
    def runs(self) -> int:
        """How many runs, if none is stopped early."""
        again = self.spec.confirmation
        confirming = 0 if again is None else len(again.seeds) * (again.trials + 1)
        return self.trials * len(self.spec.run_seeds) + confirming

    def is_base(self, number: int) -> bool:
        """Whether a trial is the base itself."""
        return number < self.first

    @cached_property
    def coarse(self) -> list[dict[str, Latent]]:
        """The trials that the coarse grid of a search in stages has, after the base."""
        stages = self.spec.stages
        return [] if stages is None else coarse_points(self.spec.parameters, stages.coarse, self.spec.seed)

    def is_fine(self, number: int) -> bool:
        """Whether a trial is searched near the best."""
        return self.spec.stages is not None and number >= self.trials - self.spec.stages.fine

    def resolve(self, latent: Mapping[str, Latent]) -> Resolved:
        """The config of a trial."""
        return load(self.spec.base, self.spec.words(values_of(self.spec.parameters, latent)))

    def check(self, latent: Mapping[str, Latent]) -> None:
        """Refuse a trial whose config is not valid."""
        config = self.resolve(latent).config
        if config.environment.num_envs != "auto":
            config.algorithm.config.check(config.environment.num_envs)

    def check_all(self) -> None:
        """Refuse the sweep if the config of a trial is not valid; of a range its ends are tried."""
        self.check({})
        self._check_metric()
        if self.grid is not None and len(self.grid) <= MOST_CHECKED:
            for latent in self.grid[: self.trials]:
                self.check(latent)
            return
        for one in self.spec.parameters:
            for extreme in one.extremes():
                self._check_alone(one.key, extreme)

    def _check_metric(self) -> None:
        """Refuse runs that end before the evaluation they are to be judged by."""
        training, metric = self.base.config.training, self.spec.metric.name
        plan, budget = training.evaluation, training.budget
        every = plan.every_updates if training.offline else plan.every_steps
        never = not plan.wanted or (every and not plan.every_epochs and every > budget.total)
        if metric in OF_EVALUATIONS and training.phases is None and never:
            problem = f"a run of {budget.total:,} {budget.noun} is never evaluated"
            unit = "every_updates" if training.offline else "every_steps"
            remedy = f"write training.evaluation.{unit}={max(1, budget.total // 10)}, or name another metric"
            raise ConfigError(f"metric {metric}", problem, remedy)

    def _check_alone(self, key: str, latent: Latent) -> None:
        """One value in the base; what only does not fit its other values is found when a trial is chosen."""
        self.resolve({key: latent})

    @cached_property
    def base(self) -> Resolved:
        """The base's config."""
        return self.resolve({})

    def budget(self, values: Mapping[str, Any]) -> int:
        """Steps of a run with these values."""
        plain = all(not key.lstrip("+").endswith(("timesteps", "env_steps", "total_updates")) for key in values)
        return (self.base if plain else load(self.spec.base, self.spec.words(values))).config.training.budget.total

    @property
    def evaluations(self) -> int | None:
        """Evaluations of a whole run, if the config says so."""
        training = self.base.config.training
        every = training.evaluation.every_steps
        return max(1, training.budget.total // every) if every else None

    def confirmed(self, known: Sequence[Judged]) -> list[int]:
        """The trials that are tried again on fresh seeds: the base and the best, once all have ended."""
        again = self.spec.confirmation
        if again is None or len(known) < self.trials or any(one.state == "open" for one in known):
            return []
        return [*([0] if self.first else []), *self.ranking(known)[: again.trials]]

    def ranking(self, known: Sequence[Judged]) -> list[int]:
        """The completed trials, the best first; the base is not among them."""
        sign = -1 if self.spec.metric.goal == "maximize" else 1
        done = [one for one in known if one.state == "complete" and not self.is_base(one.trial.number)]
        return [one.trial.number for one in sorted(done, key=lambda one: sign * (one.value or 0.0))]
