"""report.html and report.md from the templates in assets/.

report.html is self-contained. Every value that a template prints is shortened and escaped unless it is our own Markup,
and a content security policy allows no script but ours.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich.filesize import decimal as size

from ludus import __version__
from ludus.metrics.names import EVAL_RETURN, RETURN
from ludus.reports.columns import config_text
from ludus.reports.export import markdown_text
from ludus.reports.report import RunReport, provenance
from ludus.reports.svg import ChartLine, chart
from ludus.runs import history
from ludus.text import clean, duration, number, points, rate, sparkline

ASSETS = Path(__file__).parent / "assets"
MOST_CHARTS, MOST_POINTS, SPARK = 60, 400, 32


def html(report: RunReport) -> str:
    """The page for browsers."""
    script, style = ((ASSETS / f"report.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    training = _line(report, RETURN, "training", 1)
    evaluated = _line(report, EVAL_RETURN, "evaluation", 0, dots=True, spread="val/roll/ep_rew/std")
    over = "environment steps" if report.noun == "steps" else "updates"
    hero = chart([training, evaluated], title=f"return over {over}", wide=True, threshold=report.run.threshold)
    return _environment(escape).get_template("report.html.j2").render(
        **_common(report), script=Markup(script), style=Markup(style), digest=Markup(digest), hero=Markup(hero),
        lines=[line for line in (evaluated, training) if line.steps], charts=_charts(report),
        changed={change.path for change in report.changes},
    )  # fmt: skip


def markdown(report: RunReport) -> str:
    """The page for terminals, diffs and pull requests."""
    template = _environment(markdown_text).get_template("report.md.j2")
    return template.render(**_common(report), curves=_curves(report))


def _environment(escaped: Callable[[str], str]) -> Environment:
    """A template environment in which no value is printed without being escaped."""

    def cut(value: object, limit: int = 200) -> Markup:
        """At most `limit` characters on one line without control characters, escaped; a dash for None."""
        return value if isinstance(value, Markup) else Markup(escaped(clean("-" if value is None else value, limit)))

    # autoescape knows Markup, which is all that `finalize` returns
    found = Environment(loader=FileSystemLoader(ASSETS), undefined=StrictUndefined, finalize=cut, autoescape=True,
                        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    found.filters |= {"cut": cut, "points": points, "number": number, "size": size, "config_text": config_text}
    found.filters["address"] = lambda path: Markup(quote(path.name))
    found.tests["section"] = lambda value: isinstance(value, Mapping) and bool(value) and "schedule" not in value
    return found


def _common(report: RunReport) -> dict[str, object]:
    """The variables of both templates."""
    run, gap = report.run, report.gap
    offline, seconds = report.x_axis == "updates", run.seconds or 0.0
    done = (run.updates if offline else run.env_steps) or 0
    budget = history.number(run.get("training.total_updates" if offline else "training.total_timesteps"))
    overrides, best_step = report.meta.get("overrides"), report.summary.get("best_step")
    return {
        "report": report,
        "run": run,
        "version": __version__,
        "title": run.spec or run.name or run.id,
        "asked": " ".join([run.spec, *map(str, overrides)]) if isinstance(overrides, list) else run.spec,
        "gap": None if gap is None else f"{'+' if gap >= 0 else ''}{points(gap)}",
        "best_at": f"at {best_step:,} {report.noun}" if isinstance(best_step, int) else "",
        "share": f"{done / budget:.0%} of {budget:,.0f}" if budget > 0 else "",
        "took": duration(seconds) if run.seconds is not None else None,
        "speed": rate(done / seconds) if seconds > 0 else None,
        "evaluations": _evaluations(report),
        "provenance": provenance(report),
    }


def _evaluations(report: RunReport) -> list[tuple[list[str], bool]]:
    """Steps, mean, std, best, worst, length and episodes of each evaluation, and whether its mean is the best."""
    best = max((history.number(row[EVAL_RETURN]) for row in report.evaluations), default=math.nan)
    found = []
    for row in report.evaluations:
        returns = [points(history.number(row.get(f"val/roll/ep_rew/{k}"))) for k in ("mean", "std", "best", "worst")]
        length = number(history.number(row.get("val/roll/ep_len/mean")), 1)
        steps, episodes = (history.number(row.get(key)) for key in (report.x_axis, "val/roll/episodes"))
        cells = [f"{steps:,.0f}", *returns, length, f"{episodes:.0f}"]
        found.append((cells, history.number(row[EVAL_RETURN]) == best))
    return found


def _charts(report: RunReport) -> list[tuple[str, str, str, Markup]]:
    """Metric, description, last value and picture of every metric of the console that changes."""
    shown = [
        key
        for key in history.metric_names(report.rows)
        if key not in (RETURN, EVAL_RETURN) and (report.rules[key].show_in_table or report.rules[key].highlight)
    ]
    lines = [_line(report, key, key, 2) for key in sorted(shown, key=report.rules.rank)]
    found = []
    for line in [line for line in lines if len(set(line.values)) > 1][:MOST_CHARTS]:
        rule = report.rules[line.name]
        last = number(line.values[-1], rule.precision, trim=rule.trim)
        found.append((line.name, rule.description, last, Markup(chart([line], title=line.name))))
    return found


def _line(report: RunReport, key: str, name: str, colour: int, *, dots: bool = False, spread: str = "") -> ChartLine:
    rows = [row for row in report.rows if key in row]
    found = [tuple(history.number(row.get(part)) for part in (report.x_axis, key, spread)) for row in rows]
    good = [point for point in found if math.isfinite(point[0]) and math.isfinite(point[1])]
    last = MOST_POINTS - 1
    thin = good if len(good) <= MOST_POINTS else [good[i * (len(good) - 1) // last] for i in range(MOST_POINTS)]
    steps, values, around = ([point[i] for point in thin] for i in range(3))
    return ChartLine(name, steps, values, colour, dots, [0.0 if math.isnan(d) else d for d in around] if spread else ())


def _curves(report: RunReport) -> list[tuple[str, str, list[str]]]:
    """Name, sparkline and first, last, smallest and largest value of the returns and the highlighted metrics."""
    found = []
    for key in sorted(history.metric_names(report.rows), key=report.rules.rank):
        rule = report.rules[key]
        if key in (RETURN, EVAL_RETURN) or rule.highlight:
            values = [history.number(row[key]) for row in report.rows if key in row]
            finite = [value for value in values if math.isfinite(value)] or [math.nan]
            ends = [number(value, rule.precision) for value in (values[0], values[-1], min(finite), max(finite))]
            found.append((key, sparkline(values, SPARK), ends))
    return found
