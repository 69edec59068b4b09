"""The metrics that runs are compared by: their names, and the number of one run."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.archive import history
from ludus.archive.record import ALIASES, Record
from ludus.errors import ConfigError
from ludus.metrics.names import EVAL_RETURN, RETURN
from ludus.reports.columns import NUMBERS
from ludus.text import did_you_mean

DEFAULT = ("final", "best")
"""What runs are compared by unless somebody says otherwise; the first decides the order."""
FINAL, BEST = ("final", "last"), ("best", "reward")
"""The last and the best evaluated mean return of a run."""
SHORT = {"loss": "train/loss/total", "train_reward": RETURN, "entropy": "train/policy/entropy",
         "kl": "train/policy/kl", "fps": "train/time/fps_total"}  # fmt: skip
"""Short names of metrics."""


def metric_key(metric: str, records: Sequence[Record]) -> str:
    """The column of metrics.jsonl, or the field, that a name means: `final`, `loss`, `policy/kl` or a full name."""
    if metric in (*FINAL, *BEST):
        return EVAL_RETURN if any(record.reward is not None for record in records) else RETURN
    if ALIASES.get(metric, metric) in NUMBERS:
        return ALIASES.get(metric, metric)
    rows = [row for record in records for row in history.sampled(record.folder, 8)]
    known = history.metric_names(rows)
    wanted = SHORT.get(metric, metric)
    if wanted in known:
        return wanted
    ends = [name for name in known if name.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return ends[0]
    remedy = f"one of {', '.join(ends)}" if ends else did_you_mean(metric, [*DEFAULT, "reward", *SHORT, *known])
    raise ConfigError(f"--metrics {metric}", "no run has it" if not ends else "fits several metrics", remedy)


def score(record: Record, metric: str, key: str) -> float | None:
    """The number of one run: its final or best evaluation, a field, or the last value of a metric."""
    if key == EVAL_RETURN and metric in (*FINAL, *BEST):
        return record.last if metric in FINAL else record.reward
    if key in NUMBERS:
        value = record.get(key)
        return None if value is None else history.number(value)
    _, values = history.curve(record.folder, key)
    if not values:
        return None
    return max(values) if metric in BEST else values[-1]


def lower_is_better(key: str) -> bool:
    """Whether a smaller number is the better one: losses, times."""
    from ludus.watch.rules import SHIPPED, Rules  # imports pydantic, which `ludus --help` does not need

    return key == "seconds" or Rules.load(SHIPPED)[key].better == "down"


def steps_to_threshold(record: Record) -> float | None:
    """Steps before the first evaluation that reached the threshold, and its confirmation where there was one."""
    if record.threshold is None:
        return None
    last = dict(zip(*history.curve(record.folder, EVAL_RETURN), strict=True))  # of one step the last evaluation
    return next((step for step, value in last.items() if value >= record.threshold), None)
