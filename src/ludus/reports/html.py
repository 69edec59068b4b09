"""report.html: one self-contained page. All text from the run is escaped, and only our own script may run."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ludus import __version__
from ludus.metrics.names import EVAL_RETURN, RETURN
from ludus.reports.columns import config_text, size
from ludus.reports.report import Report, provenance
from ludus.reports.svg import Series, chart
from ludus.runs import history
from ludus.text import clean, duration, number, points, rate

ASSETS = Path(__file__).parent / "assets"
FEW, MOST_CHARTS = 9, 60
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; media-src 'self' file:"


def html(report: Report) -> str:
    """The whole page."""
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sections = [
        _header(report),
        _section("Learning", _learning(report)),
        _section("Alerts", _alerts(report)),
        _section("Evaluations", _evaluations(report)),
        _section("Checkpoints", _checkpoints(report)),
        _section("Videos", _videos(report)),
        _section("Configuration", _config(report)),
        _section("Provenance", _provenance(report)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(digest=digest)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(report.run.id)}</title>\n"
        f"<style>{(ASSETS / 'report.css').read_text(encoding='utf-8')}</style>\n</head>\n<body>\n"
        f"{''.join(sections)}<footer>written by ludus {_text(__version__)} from {_text(report.run.id)}/</footer>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _header(report: Report) -> str:
    run, (verdict, mood) = report.run, report.verdict
    score = "not evaluated"
    if run.last is not None:
        spread = history.number(report.evaluations[-1].get("val/roll/ep_rew/std")) if report.evaluations else math.nan
        around = f' <span class="dim">± {points(spread)}</span>' if math.isfinite(spread) else ""
        score = f"{points(run.last)}{around}"
    goal = "no threshold is set"
    if run.threshold is not None:
        gap = report.gap
        behind = "" if gap is None else f", gap {'+' if gap >= 0 else ''}{points(gap)}"
        goal = f"threshold {points(run.threshold)}{behind}"
    return (
        f'<header><div><p class="kicker">{_text(run.environment)} · {_text(run.algorithm)} · seed {_text(run.seed)}</p>'
        f"<h1>{_text(run.spec or run.name or run.id)}</h1><p class='id'>{_text(run.id)}</p>{_tags(run.tags)}</div>"
        f'<div class="verdict {mood}"><span class="badge">{verdict}</span>'
        f'<p class="score">{score}</p><p class="dim">evaluated mean return, {goal}</p></div></header>\n'
        f'<div class="tiles">{"".join(_tile(*tile) for tile in _tiles(report))}</div>\n'
        + (f'<p class="reason">{_text(run.state)}: {_text(run.reason)}</p>\n' if run.reason else "")
    )


def _tiles(report: Report) -> list[tuple[str, str, str]]:
    run = report.run
    steps, updates, seconds = run.env_steps or 0, run.updates or 0, run.seconds or 0.0
    offline, noun = report.x_axis == "updates", report.noun
    done = updates if offline else steps
    budget = history.number(run.get("training.total_updates" if offline else "training.total_timesteps"))
    share = f"{done / budget:.0%} of {budget:,.0f}" if budget > 0 else ""
    best_step = report.summary.get("best_step")
    return [
        (
            "best",
            "-" if run.reward is None else points(run.reward),
            f"at {best_step:,} {noun}" if isinstance(best_step, int) else "",
        ),
        ("environment steps", f"{steps:,}", "" if offline else share),
        ("updates", f"{updates:,}", share if offline else ""),
        ("wall time", duration(seconds) if run.seconds is not None else "-", ""),
        (f"{noun} per second", rate(done / seconds) if seconds > 0 else "-", ""),
        ("alerts", str(len(report.alerts)), "see below" if report.alerts else "all quiet"),
    ]


def _learning(report: Report) -> str:
    lines = [
        _series(report, RETURN, "training", 1),
        _series(report, EVAL_RETURN, "evaluation", 0, dots=True, spread="val/roll/ep_rew/std"),
    ]
    hero = chart(
        lines,
        title=f"return over {'environment steps' if report.noun == 'steps' else 'updates'}",
        wide=True,
        threshold=report.run.threshold,
    )
    if not hero:
        return '<p class="dim">no metrics were written</p>'
    names = {"training": "training", "evaluation": "evaluation, ± one deviation"}
    shown = [line for line in reversed(lines) if line.steps]
    legend = "".join(f'<span class="key c{line.colour}">{names[line.name]}</span>' for line in shown)
    figure = f'<figure class="card"><figcaption><b>return</b>{legend}</figcaption>{hero}</figure>'
    small = _small_charts(report)
    more = f"<details><summary>{len(small) - FEW} more metrics</summary>{_grid(small[FEW:])}</details>"
    return f"{figure}{_grid(small[:FEW])}{more if len(small) > FEW else ''}"


def _grid(figures: Sequence[str]) -> str:
    return f'<div class="grid">{"".join(figures)}</div>' if figures else ""


def _small_charts(report: Report) -> list[str]:
    keys = [
        key for key in history.metric_names(report.rows) if key not in (RETURN, EVAL_RETURN) and _worth(report, key)
    ]
    drawn = []
    for key in sorted(keys, key=report.rules.rank)[:MOST_CHARTS]:
        rule, line = report.rules[key], _series(report, key, key, 2)
        last = number(line.values[-1], rule.precision, trim=rule.trim)
        about = f' title="{escape(rule.description)}"' if rule.description else ""
        caption = f"<figcaption><b>{_text(key)}</b><span>{last}</span></figcaption>"
        drawn.append(f'<figure class="card"{about}>{caption}{chart([line], title=key)}</figure>')
    return drawn


def _worth(report: Report, key: str) -> bool:
    """Shown on the console too, and not the same number all the time."""
    values = {row[key] for row in report.rows if key in row and math.isfinite(history.number(row[key]))}
    return len(values) > 1 and (report.rules[key].show_in_table or report.rules[key].highlight)


def _series(report: Report, key: str, name: str, colour: int, *, dots: bool = False, spread: str = "") -> Series:
    rows = [row for row in report.rows if key in row]
    points = [tuple(history.number(row.get(part)) for part in (report.x_axis, key, spread)) for row in rows]
    good = [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]
    thin = good if len(good) <= 400 else [good[i * (len(good) - 1) // 399] for i in range(400)]
    steps, values, around = ([point[i] for point in thin] for i in range(3))
    return Series(name, steps, values, colour, dots, [0.0 if math.isnan(d) else d for d in around] if spread else ())


def _alerts(report: Report) -> str:
    if not report.alerts:
        return '<p class="quiet">No metric left its bounds.</p>'
    items = []
    for alert in report.alerts:
        share = f"{alert.rows / max(len(report.rows), 1):.0%} of the rows"
        often = f"{share}, first at {alert.env_steps:,} {report.noun} ({number(alert.value)})"
        tip = f'<p class="tip">{_text(alert.tip)}</p>' if alert.tip else ""
        items.append(
            f"<li><p><b>{_text(alert.key)}</b> {_text(alert.problem)} <span class='dim'>{often}</span></p>{tip}</li>"
        )
    return f'<ul class="alerts">{"".join(items)}</ul>'


def _evaluations(report: Report) -> str:
    rows = report.evaluations
    if not rows:
        return '<p class="dim">The run was not evaluated.</p>'
    best = max(history.number(row[EVAL_RETURN]) for row in rows)
    names = ("mean", "std", "best", "worst")
    lines = []
    for row in reversed(rows):
        cells = [f"{history.number(row.get(report.x_axis)):,.0f}"]
        cells += [points(history.number(row.get(f"val/roll/ep_rew/{name}"))) for name in names]
        cells += [number(history.number(row.get("val/roll/ep_len/mean")), 1)]
        cells += [f"{history.number(row.get('val/roll/episodes')):.0f}"]
        top = history.number(row[EVAL_RETURN]) == best
        mark = '<span class="mark">best</span>' if top else ""
        lines.append(([*cells, mark], top))
    head = (report.x_axis.replace("_", " "), "mean", "std", "best", "worst", "length", "episodes", "")
    return _folded(head, lines, "evaluations")


def _checkpoints(report: Report) -> str:
    if not report.checkpoints:
        return '<p class="dim">None is left; the numbers above stay.</p>'
    lines = []
    for saved in reversed(report.checkpoints):
        mean = "-" if saved.mean is None else points(saved.mean)
        marks = "".join(f'<span class="mark">{mark}</span>' for mark in saved.marks)
        lines.append(([f"<code>{_text(saved.name)}</code>", mean, size(saved.size), marks], "best" in saved.marks))
    return _folded(("checkpoint", "evaluated mean", "size", ""), lines, "checkpoints")


def _videos(report: Report) -> str:
    return "".join(
        f'<figure class="card video"><video controls preload="metadata" src="videos/{quote(path.name)}"></video>'
        f"<figcaption>{_text(path.name)}</figcaption></figure>"
        for path in report.videos[-6:]
    )


def _config(report: Report) -> str:
    overrides = report.meta.get("overrides")
    asked = " ".join([report.run.spec, *map(str, overrides)]) if isinstance(overrides, list) else report.run.spec
    parts = [f"<p>Asked for: <code>{_text(asked or 'a config file', 600)}</code></p>"]
    if report.changes:
        lines = [
            (
                [
                    f"<code>{_text(change.path)}</code>",
                    _text(config_text(change.after)),
                    _text(config_text(change.before)),
                ],
                False,
            )
            for change in report.changes
        ]
        parts.append(_table(("differs from the default", "here", "default"), lines, left=3))
    changed = {change.path for change in report.changes}
    parts.append(f"<details><summary>All values</summary>{_tree(report.run.config, changed)}</details>")
    return "".join(parts)


def _tree(config: Mapping[str, Any], changed: set[str], prefix: str = "") -> str:
    """Nested lists; a section with a difference inside is open."""
    parts = []
    for key, value in config.items():
        path = f"{prefix}{key}"
        schedule = isinstance(value, Mapping) and "schedule" in value
        if isinstance(value, Mapping) and value and not schedule:
            parts.append(f"<li><span>{_text(key)}</span>{_tree(value, changed, f'{path}.')}</li>")
        else:
            mark = ' class="changed"' if path in changed else ""
            parts.append(f"<li{mark}><span>{_text(key)}</span> <code>{_text(config_text(value), 400)}</code></li>")
    return f'<ul class="tree">{"".join(parts)}</ul>'


def _provenance(report: Report) -> str:
    rows = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value, 600)}</dd>" for name, value in provenance(report).items())
    return f"<dl>{rows}</dl>"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>\n" if body else ""


def _tile(name: str, value: str, below: str) -> str:
    lines = (("dim", name), ("value", value), ("dim", below))
    return '<div class="tile">' + "".join(f'<p class="{kind}">{_text(line)}</p>' for kind, line in lines) + "</div>"


def _tags(tags: Iterable[str]) -> str:
    return "".join(f'<span class="tag">{_text(tag)}</span>' for tag in tags)


def _folded(head: Sequence[str], lines: Sequence[tuple[list[str], bool]], what: str) -> str:
    """The newest dozen; the rest behind a click."""
    shown = _table(head, lines[:12])
    if len(lines) <= 12:
        return shown
    return f"{shown}<details><summary>{len(lines) - 12} earlier {what}</summary>{_table(head, lines[12:])}</details>"


def _table(head: Sequence[str], lines: Sequence[tuple[list[str], bool]], left: int = 1) -> str:
    """Cells are html already; `left` columns are text."""
    align = ["" if i < left else ' class="num"' for i in range(len(head))]
    top = "".join(f"<th{side}>{name}</th>" for side, name in zip(align, head, strict=True))
    body = "".join(
        f"<tr{' class=best' if best else ''}>"
        + "".join(f"<td{side}>{cell}</td>" for side, cell in zip(align, cells, strict=True))
        + "</tr>"
        for cells, best in lines
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(value: Any, limit: int = 200) -> str:
    return escape(clean("-" if value is None else value, limit))
