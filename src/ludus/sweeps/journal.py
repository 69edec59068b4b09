"""A copy of the search for optuna-dashboard, and Optuna's estimate of how much each setting matters.

The journal is a mirror: it is written anew and moved into place, so that it is whole or not there; the run folders
remain the truth.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import files
from ludus.errors import MissingExtra
from ludus.reports.columns import config_text
from ludus.sweeps.ledger import Ledger
from ludus.sweeps.search import Judged, Search
from ludus.sweeps.space import Parameter

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

NAME = "optuna.journal"


def write_journal(ledger: Ledger) -> Path | None:
    """Write the journal beside the spec; None without Optuna."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    except ImportError:
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = ledger.folder.path / NAME
    temporary = files.beside(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            backend = JournalFileBackend(str(temporary), lock_obj=JournalFileOpenLock(str(temporary)))
            study = optuna.create_study(
                storage=JournalStorage(backend), study_name=ledger.spec.name, direction=ledger.spec.metric.goal
            )
            study.add_trials([_shown(ledger, one) for one in ledger.judged()])
        temporary.replace(path)
    finally:
        for rest in path.parent.glob(f"{temporary.name}*"):
            rest.unlink(missing_ok=True)
    return path


def importances(ledger: Ledger) -> dict[str, float]:
    """How much of the differences each setting explains; empty if that cannot be said."""
    known = [one for one in ledger.judged() if one.trial.latent]
    complete = [one for one in known if one.state == "complete"]
    if len(complete) < 2 or len({one.value for one in complete}) < 2:
        return {}
    try:
        search = Search(ledger.spec)
    except MissingExtra:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = search.study([Judged(one.trial, one.state, one.value) for one in complete])
        return dict(search.optuna.importance.get_param_importances(study))


def _shown(ledger: Ledger, one: Judged) -> FrozenTrial:
    """A trial with its settings as people write them."""
    from optuna.trial import TrialState, create_trial

    states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    state = states.get(one.state, TrialState.RUNNING)
    if state == TrialState.PRUNED and not one.steps:
        state = TrialState.FAIL
    parameters = [parameter for parameter in ledger.spec.parameters if parameter.key in one.trial.latent]
    values = ledger.values(one.trial)
    return create_trial(
        state=state,
        value=one.value if state == TrialState.COMPLETE else None,
        params={one.key: _label(one, values[one.key]) for one in parameters},
        distributions={one.key: _distribution(one) for one in parameters},
        intermediate_values=dict(one.steps),
        user_attrs={"why": one.trial.reason} if one.trial.reason else {},
    )


def _label(parameter: Parameter, value: Any) -> Any:
    if parameter.kind != "choice":
        return value
    return value if isinstance(value, int | float | str | bool) or value is None else config_text(value)


def _distribution(parameter: Parameter) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if parameter.kind == "choice":
        return CategoricalDistribution([_label(parameter, value) for value in parameter.values])
    if parameter.kind in ("normal", "log_normal"):
        return FloatDistribution(-1e12, 1e12)
    if parameter.step is not None:
        return FloatDistribution(parameter.low - parameter.step, parameter.high + parameter.step)
    return parameter.distribution()
