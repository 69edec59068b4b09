"""`ludus list`: the runs there are. (A module named `list` would hide the builtin from the package.)"""

from __future__ import annotations

from pathlib import Path

from rich.filesize import decimal as size

from ludus.cli.options import Columns, Filter, Json, Limit, RunsDir, Sort, column_names
from ludus.cli.table import Column, print_table, state_style
from ludus.files import to_json
from ludus.reports import columns as show
from ludus.runs import query
from ludus.runs.index import Index

_WEIGHTS = {"tags": 9, "size": 8, "started": 7, "algorithm": 6, "environment": 5, "seed": 4, "solved": 3, "last": 2}
_STYLES = {
    "state": state_style,
    "solved": lambda text: "green" if text == "yes" else "dim",
    "reward": lambda _: "bold",
}


def list_runs(
    filter: Filter = None,
    sort: Sort = "started",
    limit: Limit = None,
    columns: Columns = None,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """List runs, newest first; filter and sort by any field (reward, state, tags, ...) or config path."""
    records = Index(runs_dir).records()
    keys = column_names(columns) or list(show.DEFAULT)
    for key in keys if columns else ():
        query.check_key(key, records, f"--columns {key}")
    found = query.order(query.select(records, [query.parse(text) for text in filter or []]), sort)
    shown = found[:limit]
    if json:
        print(to_json([record.values(keys) if columns else record.facts() for record in shown]), end="")
        return
    if not shown:
        print(f"no run in {runs_dir}/" + (f" fits; there are {len(records)}" if records else "; train one first"))
        return
    made = []
    for key in keys:
        right = any(show.is_number(key, record.get(key)) for record in shown)
        made.append(Column(key, right, 0 if columns else _WEIGHTS.get(key, 0), _STYLES.get(key, lambda _: "")))
    print_table(made, [[show.cell(record, key) for key in keys] for record in shown])
    rest = f" of {len(found)}" if len(shown) < len(found) else ""
    print(f"{len(shown)}{rest} runs, {size(sum(record.size for record in shown))}")
