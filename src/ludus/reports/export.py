"""Exports runs and comparisons as CSV, JSON, markdown or LaTeX, each correctly escaped."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludus.archive import history, query
from ludus.archive.record import FIELDS, Record, paths
from ludus.archive.store import read_or_empty
from ludus.errors import ConfigError
from ludus.files import to_json
from ludus.reports import columns
from ludus.reports.compare import Comparison
from ludus.reports.scores import Scores
from ludus.text import clean, did_you_mean, number

FORMATS = ("csv", "json", "markdown", "latex")
PAPER = ("spec", "environment", "algorithm", "seed", "env_steps", "seconds", "reward", "last", "solved")
"""Default columns of markdown and LaTeX."""
_FORMULA = ("=", "+", "-", "@")
_LONGEST = 10_000
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}",
    "-": "-{}", "[": "{[}", "]": "{]}", "*": "{*}", "±": r"$\pm$", "…": r"\dots{}", "→": r"$\to$",
}  # fmt: skip
_BOLD = r"\textbf{{{}}}"
_DOCUMENT = r"""\documentclass{{article}}
\usepackage[margin=2cm,landscape]{{geometry}}
\usepackage{{textcomp}}
\usepackage{{booktabs}}
\begin{{document}}
\noindent
{table}
\end{{document}}
"""


@dataclass(frozen=True)
class TextTable:
    """A table of text."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]
    """Whether each column is right-aligned."""
    bold: frozenset[tuple[int, int]] = frozenset()
    """Bold cells (row, column)."""


def export(records: Sequence[Record], kind: str, keys: Sequence[str] | None = None, *, fragment: bool = False) -> str:
    """The runs as `csv`, `json` (without `keys`: everything known about them), `markdown` or `latex`."""
    check_format(kind)
    for key in keys or ():
        query.check_key(key, records, f"--columns {key}")
    if kind == "json":
        return to_json([record.values(keys) if keys else complete(record) for record in records])
    if kind == "csv":
        known = dict.fromkeys(path for record in records for path in paths(record.config))
        keys = keys or [*FIELDS, *known]
        return _csv([keys, *([_raw(record.get(key)) for key in keys] for record in records)])
    return render(_runs_table(records, keys or PAPER), kind, fragment=fragment)


def export_comparison(comparison: Comparison, kind: str, *, fragment: bool = False) -> str:
    """The groups of a comparison, one row each."""
    check_format(kind)
    if kind == "json":
        return to_json(comparison.data())
    return render(comparison_table(comparison), kind, fragment=fragment)


def check_format(kind: str, also: Sequence[str] = ()) -> None:
    """Refuse an unknown format; the error names those in `also`, too."""
    if kind not in FORMATS:
        raise ConfigError(f"--format {kind}", "is not known", did_you_mean(kind, [*FORMATS, *also]))


def render(table: TextTable, kind: str, *, fragment: bool = False) -> str:
    """A table as CSV, markdown or LaTeX: a whole document, or only the tabular with `fragment`."""
    if kind == "csv":
        return _csv([table.head, *table.rows])
    if kind == "markdown":
        rule = ["---:" if right else "---" for right in table.right]
        lines = [[markdown_text(name) for name in table.head], rule, *_body(table, markdown_text, "**{}**")]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    head, *body = (
        " & ".join(row) + r" \\" for row in ([*map(latex_text, table.head)], *_body(table, latex_text, _BOLD))
    )
    shape = "".join("r" if right else "l" for right in table.right)
    parts = [rf"\begin{{tabular}}{{{shape}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    tabular = "\n".join(["% needs \\usepackage{booktabs,textcomp}", *parts])
    return f"{tabular}\n" if fragment else _DOCUMENT.format(table=tabular)


def complete(record: Record) -> dict[str, object]:
    """Everything about a run: fields, config, meta, status, summary and evaluations."""
    files = {name: read_or_empty(record.folder / f"{name}.json") or None for name in ("meta", "status", "metrics")}
    evaluations = [
        {key: value for key, value in row.items() if key == "env_steps" or key.startswith("val/")}
        for row in history.evaluations(record.folder)
    ]
    facts = {**record.facts(), "folder": str(record.folder), "config": record.config}
    return {**facts, **files, "evaluations": evaluations}


def _body(table: TextTable, escaped: Callable[[str], str], bold: str) -> list[list[str]]:
    rows = [[escaped(cell) for cell in row] for row in table.rows]
    for i, j in table.bold:
        rows[i][j] = bold.format(rows[i][j])
    return rows


def latex_text(text: str) -> str:
    """Text escaped for LaTeX; letters that the standard fonts lack lose their accents or become `?`."""
    return "".join(_LATEX.get(char) or _ascii(char) for char in text)


def markdown_text(text: str) -> str:
    """Text escaped for markdown and HTML."""
    escaped = re.sub(r"[\\`*\[\]<|~&]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
    return " ".join(escaped.split()) or " "


def comparison_table(comparison: Comparison) -> TextTable:
    """One row per metric and group: n, mean, median, IQM with interval, range, and steps to the threshold.

    The best IQM of each metric is bold, ties too; a single run only where no group has more.
    """
    several = len(comparison.metrics) > 1
    head = ["metric"] * several + [comparison.common or "group", "n", "mean", "median", "IQM", "95 % interval"]
    head += ["min", "max", "steps to threshold", "reached", "time"]
    rows: list[list[str]] = []
    bold: set[tuple[int, int]] = set()
    for metric in comparison.metrics:
        leaders = _leaders(comparison, metric)
        for group in comparison.groups:
            if group.label in leaders:
                bold.add((len(rows), head.index("IQM")))
            steps = "-" if group.steps_to_threshold is None else f"{group.steps_to_threshold:,.0f}"
            speed = [steps, f"{group.reached}/{len(group.runs)}", columns.text("seconds", group.seconds)]
            row = [group.label, str(len(group.runs)), *_score_cells(group.scores.get(metric)), *speed]
            rows.append([metric, *row] if several else row)
    right = [*[False] * (1 + several), *[True] * 10]
    return TextTable(head, rows, right, frozenset(bold))


def _leaders(comparison: Comparison, metric: str) -> set[str]:
    """The groups with the best IQM as it is written; none if there is nothing to beat."""
    scored = {group.label: group.scores[metric] for group in comparison.groups if metric in group.scores}
    rivals = {label: scores for label, scores in scored.items() if len(scores.values) > 1} or scored
    if len(scored) < 2:
        return set()
    best = (min if comparison.lower_is_better[metric] else max)(scores.iqm for scores in rivals.values())
    return {label for label, scores in rivals.items() if _score_cells(scores)[2] == number(best, _precision(scores))}


def _precision(scores: Scores) -> int:
    return 1 if max(abs(scores.best), abs(scores.worst)) >= 10 else 4


def _score_cells(scores: Scores | None) -> list[str]:
    if scores is None:
        return ["-"] * 6
    names = ("mean", "median", "iqm", "low", "high", "worst", "best")
    mean, median, iqm, low, high, worst, best = (number(getattr(scores, name), _precision(scores)) for name in names)
    return [mean, median, iqm, "-" if low == "nan" else f"{low} to {high}", worst, best]


def _runs_table(records: Sequence[Record], keys: Sequence[str]) -> TextTable:
    rows = [[columns.cell(record, key) for key in keys] for record in records]
    right = [any(columns.is_number(key, record.get(key)) for record in records) for key in keys]
    best = max((record.reward for record in records if record.reward is not None), default=None)
    same = len({record.environment for record in records}) == 1 and len(records) > 1
    winners = [i for i, record in enumerate(records) if same and record.reward == best is not None]
    bold = frozenset((i, j) for i in winners for j, key in enumerate(keys) if key == "reward")
    return TextTable(list(keys), rows, right, bold)


def _csv(lines: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([[_no_formula(cell) for cell in line] for line in lines])
    return buffer.getvalue()


def _raw(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else repr(value) if type(value) is float else query.shown(value)


def _no_formula(cell: str) -> str:
    """Quotes text that a spreadsheet would run as a formula; numbers, also negative ones, stay as they are."""
    flat = cell if cell.isprintable() else clean(cell, _LONGEST)
    try:
        float(flat)
    except ValueError:
        return "'" + flat if flat.lstrip().startswith(_FORMULA) else flat
    return flat


def _ascii(char: str) -> str:
    if char.isspace():
        return " "
    if char.isascii():
        return char if char.isprintable() else "?"
    plain = unicodedata.normalize("NFKD", char).encode("ascii", "ignore").decode()
    return "".join(_LATEX.get(part, part) for part in plain) or "?"
