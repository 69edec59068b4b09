"""`ludus show`: one run in full."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ludus.cli.options import Json, Run, RunsDir

if TYPE_CHECKING:
    from ludus.runs.record import Record

_FACTS = ("state", "reason", "environment", "algorithm", "seed", "env_steps", "updates", "seconds", "reward", "last",
          "threshold", "solved", "exact", "compiled", "started", "commit", "config_hash", "tags", "size")  # fmt: skip


def show(
    run: Run = "@last",
    config: Annotated[
        bool, typer.Option("--config", help="All config values; changed ones with their default.")
    ] = False,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Everything about one run: status, config, last metrics, evaluations, checkpoints, alerts."""
    from ludus.files import to_json
    from ludus.reports.export import complete
    from ludus.runs.index import Index

    record = Index(runs_dir).get(run)
    if json:
        print(to_json({**complete(record), **_more(record, config)}), end="")
        return
    _print_facts(record)
    _print_metrics(record)
    _print_checkpoints(record)
    if config:
        _print_config(record)


def _more(record: Record, config: bool) -> dict[str, object]:
    from dataclasses import asdict

    from ludus.reports.report import checkpoints_of, watch
    from ludus.runs import history

    alerts, _ = watch(record)
    found: dict[str, object] = {
        "last_metrics": history.last_row(record.folder),
        "checkpoints": [asdict(saved) for saved in checkpoints_of(record.folder, history.evaluations(record.folder))],
        "alerts": [asdict(alert) for alert in alerts],
    }
    if config:
        from ludus.reports.defaults import changes

        found["differences"] = {change.path: [change.before, change.after] for change in changes(record.config)}
    return found


def _print_facts(record: Record) -> None:
    from ludus.cli.table import painted, say, state_style
    from ludus.reports.columns import cell
    from ludus.reports.export import run_file
    from ludus.runs.differences import edits
    from ludus.text import clean

    say(painted(record.id, "bold"))
    overrides = (run_file(record, "meta.json") or {}).get("overrides")
    asked = " ".join([record.spec, *map(str, overrides if isinstance(overrides, list) else [])])
    say(f"  {'config':<12} {clean(asked or record.name, 400)}")
    for key in _FACTS:
        text = cell(record, key)
        if text != "-":
            say(f"  {key:<12} {painted(text, state_style(text) if key == 'state' else '')}")
    for edit in edits(record.folder, record.config):
        say(painted(f"  config.yaml was edited, but the run was trained otherwise: {clean(edit, 300)}", "yellow"))


def _print_metrics(record: Record) -> None:
    from ludus.cli.table import Column, painted, print_table, say
    from ludus.reports.report import watch
    from ludus.runs import history
    from ludus.text import clean, number, sparkline

    alerts, rows = watch(record)
    names = history.metric_names(rows)
    lines = []
    for name in names:
        values = [history.number(row[name]) for row in rows if name in row]
        curve = sparkline(values, 24) if len(set(values)) > 1 else ""
        lines.append([name, number(values[-1], 4, trim=True), curve])
    if lines:
        print()
        print_table([Column("metric"), Column("last", right=True), Column("")], sorted(lines))
    for alert in alerts:
        say(painted(f"alert: {clean(alert.line(), 400)}", "yellow"))


def _print_checkpoints(record: Record) -> None:
    from ludus.cli.table import Column, print_table
    from ludus.reports.columns import size
    from ludus.reports.report import checkpoints_of
    from ludus.runs import history
    from ludus.text import points

    rows = [
        [saved.name, "-" if saved.mean is None else points(saved.mean), size(saved.size), ", ".join(saved.marks)]
        for saved in checkpoints_of(record.folder, history.evaluations(record.folder))
    ]
    if rows:
        print()
        print_table(
            [Column("checkpoint"), Column("evaluated", right=True), Column("size", right=True), Column("")], rows
        )


def _print_config(record: Record) -> None:
    from ludus.cli.table import Column, print_table
    from ludus.reports.columns import config_text
    from ludus.reports.defaults import changes
    from ludus.runs.record import paths, value_at

    changed = {change.path: config_text(change.before) for change in changes(record.config)}
    rows = [[path, config_text(value_at(record.config, path)), changed.get(path, "")] for path in paths(record.config)]
    print()
    print_table([Column("config"), Column("value", style=lambda _: "bold"), Column("default, where it differs")], rows)
