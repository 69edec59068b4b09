"""The search itself: Optuna's samplers and pruners, asked about a study that is rebuilt from what is known.

Every question gets a fresh sampler, seeded by the sweep's seed and the trial's number, so that the answer depends on
the trials alone and a sweep that was killed goes on with the same next trial. CMA-ES keeps a state between trials
(Optuna pickles it into the study): it is asked everything again instead, in the order of the files.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ludus.errors import DataError, MissingExtra
from ludus.sweeps.space import Latent
from ludus.sweeps.spec import SweepSpec
from ludus.sweeps.stages import contains
from ludus.sweeps.store import Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

State = Literal["complete", "pruned", "failed", "open"]


@dataclass
class Judged:
    """A trial and what its runs say."""

    trial: Trial
    state: State = "open"
    value: float | None = None
    """Mean over its seeds."""
    steps: dict[int, float] = field(default_factory=dict)
    """What the pruner sees: evaluation (or seed) -> mean over the seeds that have it."""


class Search:
    """Chooses trials and says which to stop."""

    def __init__(self, spec: SweepSpec, evaluations: int | None = None) -> None:
        self.spec, self.evaluations = spec, evaluations
        """How many evaluations a whole run has, if that is known."""
        try:
            import optuna
        except ImportError:
            raise MissingExtra(f"method {spec.method} and early stops", "sweep") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.optuna = optuna
        self.distributions = {one.key: one.distribution() for one in spec.parameters}

    def ask(self, known: Sequence[Judged], around: Mapping[str, BaseDistribution] | None = None) -> dict[str, Latent]:
        """The next trial after these; one of the part `around` the best, if it is given."""
        if around is not None:
            inside = [one for one in known if one.trial.latent and contains(around, one.trial.latent)]
            return self._next(self.study(inside, around), len(known), around)
        study = self._replayed(known) if self.spec.sampler == "cmaes" and self.spec.method == "bayes" else None
        study = study or self.study(known)
        return self._next(study, len(known))

    def told(self, known: Sequence[Judged]) -> list[int]:
        """The trials whose results are new since the last trial was chosen."""
        before = {number for one in known for number in one.trial.told}
        return [one.trial.number for one in known if one.state != "open" and one.trial.number not in before]

    def should_stop(self, known: Sequence[Judged], number: int) -> tuple[bool, dict[str, float]]:
        """Whether the pruner would stop a trial now, and what it remembers of it."""
        study = self.study(known)
        trial = self.optuna.trial.Trial(study, study.trials[number]._trial_id)
        stop = trial.should_prune()
        return stop, dict(study.trials[number].system_attrs)

    def study(self, known: Sequence[Judged], space: Mapping[str, BaseDistribution] | None = None) -> Study:
        """What is known, as a study of Optuna in memory."""
        study = self._empty()
        study.add_trials([self._frozen(one, space) for one in known])
        return study

    def _empty(self) -> Study:
        direction = self.spec.metric.goal
        return self.optuna.create_study(direction=direction, study_name=self.spec.name, pruner=self._pruner())

    def _next(
        self, study: Study, number: int, space: Mapping[str, BaseDistribution] | None = None
    ) -> dict[str, Latent]:
        seed = int(np.random.SeedSequence([self.spec.seed, number]).generate_state(1)[0])
        study.sampler = self._sampler(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a sampler is new, or takes some parameters by themselves
            return dict(study.ask(dict(space or self.distributions)).params)

    def _replayed(self, known: Sequence[Judged]) -> Study:
        """A study that has been asked and told everything in the order in which it happened."""
        study, states = self._empty(), self.optuna.trial.TrialState
        for one in known:
            self._tell(study, known, one.trial.told)
            if not one.trial.latent:
                study.add_trial(self._frozen(one))
            elif self._next(study, one.trial.number) != one.trial.latent:
                problem = f"trial {one.trial.number} is not what this version of Optuna chooses"
                raise DataError(self.spec.name, problem, "install the version it began with, or start a new sweep")
        self._tell(study, known, self.told(known))
        assert all(trial.state != states.WAITING for trial in study.trials)
        return study

    def _tell(self, study: Study, known: Sequence[Judged], numbers: Sequence[int]) -> None:
        states = self.optuna.trial.TrialState
        for one in (known[number] for number in numbers if known[number].trial.latent):
            complete = one.state == "complete"
            study.tell(one.trial.number, one.value if complete else None, None if complete else states.FAIL)

    def _frozen(self, one: Judged, space: Mapping[str, BaseDistribution] | None = None) -> FrozenTrial:
        states = self.optuna.trial.TrialState
        state = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL, "open": states.RUNNING}
        own = state[one.state]
        if not one.trial.latent or (own == states.PRUNED and not one.steps):
            own = states.FAIL  # the base itself has no latents: a sampler would give up its common space
        return self.optuna.trial.create_trial(
            state=own,
            value=one.value if own == states.COMPLETE else None,
            params=dict(one.trial.latent),
            distributions=dict(space or self.distributions) if one.trial.latent else {},
            intermediate_values=dict(one.steps),
            system_attrs=dict(one.trial.attributes),
        )

    def _sampler(self, seed: int) -> BaseSampler:
        samplers = self.optuna.samplers
        if self.spec.method == "random":
            return samplers.RandomSampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.spec.sampler == "gp":
                return samplers.GPSampler(seed=seed)
            if self.spec.sampler == "cmaes":
                return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
            return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def _pruner(self) -> BasePruner:
        plan, pruners = self.spec.pruning, self.optuna.pruners
        longest: Any = self.evaluations or "auto"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            match plan.type:
                case "median":
                    return pruners.MedianPruner(n_startup_trials=plan.startup, n_warmup_steps=plan.first)
                case "halving":
                    return pruners.SuccessiveHalvingPruner(min_resource=plan.first, reduction_factor=plan.eta)
                case "hyperband":
                    return pruners.HyperbandPruner(plan.first, longest, plan.eta)
                case "wilcoxon":
                    return pruners.WilcoxonPruner()
            return pruners.NopPruner()
