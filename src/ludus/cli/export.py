"""`ludus export`: runs as csv, json, markdown or LaTeX; a policy as ONNX or TorchScript."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from ludus import files
from ludus.archive import query
from ludus.archive.index import Index
from ludus.cli.options import Columns, Filter, GroupBy, Metrics, Plugin, Runs, RunsDir, Sort, column_names, words
from ludus.errors import ConfigError, of_system
from ludus.reports.compare import compare
from ludus.reports.export import check_format, export_comparison
from ludus.reports.export import export as render
from ludus.reports.run_metrics import DEFAULT

FORMAT = "csv|json|markdown|latex|onnx|torchscript"
OUTPUT = "Default: the terminal; of a policy, its run folder."


def export(
    runs: Runs = None,
    format: Annotated[str, Option("--format", metavar=FORMAT, help="Of a table, or of the policy of one run.")] = "csv",
    output: Annotated[Path | None, Option("--output", "-o", metavar="FILE", help=OUTPUT)] = None,
    columns: Columns = None,
    group_by: Annotated[str | None, GroupBy] = None,
    metrics: Metrics = "final,best",
    fragment: Annotated[bool, Option("--fragment", help="LaTeX: only the tabular, for \\\\input.")] = False,
    filter: Filter = None,
    sort: Sort = "started:asc",
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Export runs (default: all); json contains everything. With --group-by: groups with IQM and interval instead."""
    if format in ("onnx", "torchscript"):
        print(_policy(runs or ["@last"], format, output, plugin, runs_dir))
        return
    format = {"md": "markdown", "tex": "latex"}.get(format, format)
    check_format(format, also=("onnx", "torchscript"))
    records = query.order(Index(runs_dir).pick([*(runs or []), *(filter or [])]), sort)
    if group_by is not None:
        found = compare(records, metrics=words(metrics) or DEFAULT, group_by=group_by)
        text = export_comparison(found, format, fragment=fragment)
    else:
        text = render(records, format, column_names(columns), fragment=fragment)
    if output is None:
        print(text, end="")
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(output, text)
    except OSError as error:
        raise of_system(error, str(output)) from None
    print(f"{output}: {len(records)} runs")


def _policy(runs: list[str], kind: str, output: Path | None, plugin: list[Path] | None, runs_dir: Path) -> Path:
    """Export the policy of one run, by default of its best checkpoint, and return the path."""
    from ludus.archive.store import RunFolder
    from ludus.exported import export_policy
    from ludus.policy import load_policy

    if len(runs) > 1:
        raise ConfigError(f"--format {kind}", f"{len(runs)} runs are named", "a policy is exported from one run")
    default = RunFolder.load(runs_dir, runs[0]).path / {"onnx": "policy.onnx", "torchscript": "policy.pt"}[kind]
    try:
        return export_policy(load_policy(runs[0], plugins=plugin or (), runs_dir=runs_dir), kind, output or default)
    except OSError as error:
        raise of_system(error, str(output or default)) from None
