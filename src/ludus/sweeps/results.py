"""What came of a sweep: one row per trial, and the best one as a command."""

from __future__ import annotations

import shlex
import statistics
from dataclasses import dataclass
from typing import Any

from ludus.reports.columns import config_text
from ludus.sweeps.ledger import Ledger
from ludus.sweeps.search import Judged
from ludus.text import points

UNCHANGED: Any = object()
"""Stands for the value that the base has."""


@dataclass(frozen=True)
class Row:
    """One trial."""

    number: int
    state: str
    """complete, pruned, failed, running or open."""
    values: dict[str, Any]
    value: float | None
    """Mean over its seeds."""
    spread: float | None
    """Standard deviation over its seeds."""
    seeds: int
    """Runs that are finished."""
    why: str
    """Why it failed or was stopped."""

    def data(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        own = {key: value for key, value in self.values.items() if value is not UNCHANGED}
        facts = {"trial": self.number, "state": self.state, "value": self.value, "std": self.spread}
        return {**facts, "seeds": self.seeds, "settings": own, "why": self.why}

    def cells(self) -> list[str]:
        """Trial, state, number over seeds, and the settings."""
        shown = "-" if self.value is None else points(self.value)
        around = f" ± {points(self.spread)}" if self.spread is not None else ""
        settings = ["as is" if value is UNCHANGED else config_text(value) for value in self.values.values()]
        return [str(self.number), self.state, f"{shown}{around}", str(self.seeds), *settings, self.why]


def rows(ledger: Ledger) -> list[Row]:
    """Every trial, in order."""
    return [_row(ledger, one) for one in ledger.judged()]


def _row(ledger: Ledger, one: Judged) -> Row:
    trial, seeds = one.trial, ledger.spec.run_seeds
    found = [ledger.results[key].value for seed in seeds if (key := (trial.number, seed)) in ledger.results]
    value = one.value if one.state == "complete" else statistics.fmean(found) if found else None
    spread = statistics.stdev(found) if len(found) > 1 else None
    keys = [parameter.key for parameter in ledger.spec.parameters]
    settings: dict[str, Any] = dict.fromkeys(keys, UNCHANGED) | ledger.values(trial)
    why = trial.reason or next(iter(trial.failures.values()), "")
    return Row(trial.number, one.state, settings, value, spread, len(found), why)


def titles(ledger: Ledger) -> list[str]:
    """The head of the table."""
    keys = [one.key.lstrip("+").removeprefix("algorithm.") for one in ledger.spec.parameters]
    return ["trial", "state", ledger.spec.metric.name, "seeds", *keys, ""]


def best(ledger: Ledger) -> Row | None:
    """The best trial so far."""
    order = ledger.plan.ranking(ledger.judged())
    return rows(ledger)[order[0]] if order else None


def command(ledger: Ledger, row: Row) -> str:
    """`ludus train ...` with the settings of a trial."""
    values = {key: value for key, value in row.values.items() if value is not UNCHANGED}
    return shlex.join(["ludus", "train", ledger.spec.base, *ledger.spec.words(values)])
