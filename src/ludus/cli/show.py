"""`ludus show`: one run in full."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.filesize import decimal as size
from typer import Option

from ludus.archive import history
from ludus.archive.differences import changes, edits
from ludus.archive.history import Row
from ludus.archive.index import Index
from ludus.archive.record import Record, paths, value_at
from ludus.archive.run_plugins import load_if_allowed
from ludus.archive.store import RunFolder, read_or_empty
from ludus.cli.options import Json, Plugin, Run, RunsDir
from ludus.cli.table import Column, painted, print_table, say, state_style
from ludus.files import to_json
from ludus.reports.columns import cell, config_text
from ludus.reports.export import complete
from ludus.reports.report import Saved, checkpoints_of, watch
from ludus.text import clean, number, points, sparkline

_FACTS = ("state", "reason", "environment", "algorithm", "seed", "env_steps", "updates", "seconds", "reward", "last",
          "threshold", "solved", "exact", "compiled", "started", "commit", "config_hash", "plugins", "init_from",
          "tags", "size")  # fmt: skip


def show(
    run: Run = "@last",
    config: Annotated[bool, Option("--config", help="All config values; changed ones with their default.")] = False,
    json: Json = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Everything about one run: status, config, last metrics, evaluations, checkpoints, alerts."""
    record = Index(runs_dir).get(run)
    if config:
        load_if_allowed(RunFolder(record.folder), plugin)
    alerts, rows = watch(record)
    saved = checkpoints_of(record.folder, history.evaluations(record.folder))
    changed = {change.path: [change.before, change.after] for change in changes(record.config)} if config else {}
    if json:
        found = {**complete(record), "last_metrics": history.last_row(record.folder)}
        found |= {"checkpoints": list(map(asdict, saved)), "alerts": list(map(asdict, alerts))}
        print(to_json(found | ({"differences": changed} if config else {})), end="")
        return
    _print_facts(record)
    _print_metrics(rows)
    for alert in alerts:
        say(painted(f"alert: {clean(alert.line(), 400)}", "yellow"))
    _print_checkpoints(saved)
    if config:
        defaults = {path: config_text(before) for path, (before, _) in changed.items()}
        columns = [Column("config"), Column("value", style=lambda _: "bold"), Column("default, where it differs")]
        values = [(path, config_text(value_at(record.config, path))) for path in paths(record.config)]
        print()
        print_table(columns, [[path, value, defaults.get(path, "")] for path, value in values])


def _print_facts(record: Record) -> None:
    say(painted(record.id, "bold"))
    overrides = read_or_empty(record.folder / "meta.json").get("overrides")
    asked = " ".join([record.spec, *map(str, overrides if isinstance(overrides, list) else [])])
    say(f"  {'config':<12} {clean(asked or record.name, 400)}")
    for key in _FACTS:
        text = cell(record, key)
        if text != "-":
            say(f"  {key:<12} {painted(text, state_style(text) if key == 'state' else '')}")
    for edit in edits(record.folder, record.config):
        say(painted(f"  config.yaml was edited, but the run was trained otherwise: {clean(edit, 300)}", "yellow"))


def _print_metrics(rows: list[Row]) -> None:
    lines = []
    for name in sorted(history.metric_names(rows)):
        values = [history.number(row[name]) for row in rows if name in row]
        curve = sparkline(values, 24) if len(set(values)) > 1 else ""
        lines.append([name, number(values[-1], 4, trim=True), curve])
    if lines:
        print()
        print_table([Column("metric"), Column("last", right=True), Column("")], lines)


def _print_checkpoints(saved: list[Saved]) -> None:
    if saved:
        print()
        columns = [Column("checkpoint"), Column("evaluated", right=True), Column("size", right=True), Column("")]
        means = ["-" if one.mean is None else points(one.mean) for one in saved]
        rows = [[one.name, mean, size(one.size), ", ".join(one.marks)] for one, mean in zip(saved, means, strict=True)]
        print_table(columns, rows)
