"""report.md: the same as report.html for terminals, diffs and pull requests."""

from __future__ import annotations

from urllib.parse import quote

from ludus.metrics.names import EVAL_RETURN, RETURN
from ludus.reports.columns import config_text, size
from ludus.reports.export import Table, markdown_text, to_markdown
from ludus.reports.report import Report, provenance
from ludus.runs import history
from ludus.text import clean, duration, number, points, rate, sparkline

_WIDTH = 32


def markdown(report: Report) -> str:
    """The whole page."""
    run = report.run
    parts = [
        f"# {_text(run.spec or run.name or run.id)}: {report.verdict[0]}\n",
        _result(report),
        *_part("Curves", _curves(report)),
        *_part("Alerts", _alerts(report)),
        *_part("Evaluations", _evaluations(report)),
        *_part("Checkpoints", _checkpoints(report)),
        *_part("Configuration", _config(report)),
        *_part("Videos", "".join(f"- [{_text(path.name)}](videos/{quote(path.name)})\n" for path in report.videos)),
        *_part("Provenance", "".join(f"- {name}: {_text(value, 600)}\n" for name, value in provenance(report).items())),
    ]
    return "\n".join(parts)


def _part(title: str, body: str) -> list[str]:
    return [f"## {title}\n", body] if body else []


def _result(report: Report) -> str:
    run, gap = report.run, report.gap
    seconds, steps, updates = run.seconds or 0.0, run.env_steps or 0, run.updates or 0
    done, noun = (updates if report.x_axis == "updates" else steps), report.noun
    best_step = report.summary.get("best_step")
    facts = {
        "run": run.id,
        "environment": run.environment,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "evaluated mean return": "-" if run.last is None else points(run.last),
        "threshold": "-" if run.threshold is None else points(run.threshold),
        "gap": "-" if gap is None else f"{'+' if gap >= 0 else ''}{points(gap)}",
        "best": "-" if run.reward is None else points(run.reward) + (f" at {best_step:,} {noun}" if best_step else ""),
        "environment steps": f"{steps:,}",
        "updates": f"{updates:,}",
        "wall time": f"{duration(seconds)}, {rate(done / seconds)} {noun}/s" if seconds else "-",
        "ended": run.reason or run.state,
        "tags": ", ".join(run.tags) or "-",
    }
    rows = [[name, clean("-" if value is None else value)] for name, value in facts.items()]
    return to_markdown(Table(["", ""], rows, [False, False]))


def _curves(report: Report) -> str:
    rows = []
    for key in sorted(history.metric_names(report.rows), key=report.rules.rank):
        rule = report.rules[key]
        if key not in (RETURN, EVAL_RETURN) and not rule.highlight:
            continue
        values = [history.number(row[key]) for row in report.rows if key in row]
        finite = [value for value in values if abs(value) < float("inf")] or [float("nan")]
        ends = [number(value, rule.precision) for value in (values[0], values[-1], min(finite), max(finite))]
        rows.append([clean(key, 60), sparkline(values, _WIDTH), *ends])
    right = [False, False, True, True, True, True]
    return to_markdown(Table(["metric", "", "first", "last", "min", "max"], rows, right)) if rows else ""


def _alerts(report: Report) -> str:
    lines = [
        f"- **{_text(alert.key)}** {_text(alert.problem)} in {alert.rows:,} of {len(report.rows):,} rows, first at "
        f"{alert.env_steps:,} {report.noun}" + (f". Tip: {_text(alert.tip)}" if alert.tip else "")
        for alert in report.alerts
    ]
    return "\n".join(lines) + "\n" if lines else "None.\n"


def _evaluations(report: Report) -> str:
    names = ("mean", "std", "best", "worst")
    rows: list[list[str]] = []
    bold = set()
    top = max((history.number(row[EVAL_RETURN]) for row in report.evaluations), default=None)
    for row in report.evaluations[-30:]:
        if history.number(row[EVAL_RETURN]) == top:
            bold.add((len(rows), 1))
        cells = [points(history.number(row.get(f"val/roll/ep_rew/{name}"))) for name in names]
        length = number(history.number(row.get("val/roll/ep_len/mean")), 1)
        rows.append([f"{history.number(row.get(report.x_axis)):,.0f}", *cells, length])
    head = [report.x_axis.replace("_", " "), *names, "length"]
    return to_markdown(Table(head, rows, [True] * len(head), frozenset(bold))) if rows else ""


def _checkpoints(report: Report) -> str:
    rows = [
        [saved.name, "-" if saved.mean is None else points(saved.mean), size(saved.size), ", ".join(saved.marks)]
        for saved in report.checkpoints
    ]
    bold = frozenset((i, 0) for i, saved in enumerate(report.checkpoints) if "best" in saved.marks)
    return (
        to_markdown(Table(["checkpoint", "evaluated mean", "size", ""], rows, [False, True, True, False], bold))
        if rows
        else ""
    )


def _config(report: Report) -> str:
    rows = [
        [clean(change.path), clean(config_text(change.after)), clean(config_text(change.before))]
        for change in report.changes
    ]
    body = to_markdown(Table(["differs from the default", "here", "default"], rows, [False] * 3)) if rows else ""
    return f"{body}\nAll of it is in [config.yaml](config.yaml).\n"


def _text(value: object, limit: int = 200) -> str:
    return markdown_text(clean(value, limit))
