"""`ludus list`: the runs there are. (A module named `list` would hide the builtin from the package.)"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ludus.cli.options import Filter, Json, RunsDir, words
from ludus.errors import ConfigError

if TYPE_CHECKING:
    from ludus.runs.record import Record

_WEIGHTS = {"tags": 9, "size": 8, "started": 7, "algorithm": 6, "environment": 5, "seed": 4, "solved": 3, "last": 2}


def list_runs(
    filter: Filter = None,
    sort: Annotated[
        str, typer.Option("--sort", "-s", metavar="FIELD[:asc|desc]", help="Any field or config path.")
    ] = "started",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="Only the first N.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B,...", help="Fields or config paths to show.")] = None,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """List runs, newest first; filter and sort by any field (reward, state, tags, ...) or config path."""
    from ludus.files import to_json
    from ludus.reports import columns as show
    from ludus.runs import query
    from ludus.runs.index import Index

    records = Index(runs_dir).records()
    keys = split_columns(columns) or list(show.DEFAULT)
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
    _print(shown, keys, chosen=columns is not None)
    rest = f" of {len(found)}" if len(shown) < len(found) else ""
    print(f"{len(shown)}{rest} runs, {show.size(sum(record.size for record in shown))}")


def split_columns(text: str | None) -> list[str]:
    """The names in `--columns`."""
    names = words(text or "")
    if text is not None and not names:
        raise ConfigError(f"--columns {text}", "names no column", "write --columns id,reward,algorithm.lr")
    return names


def _print(records: list[Record], keys: list[str], *, chosen: bool) -> None:
    from ludus.cli.table import Column, print_table, state_style
    from ludus.reports import columns as show

    styles = {
        "state": state_style,
        "solved": lambda text: "green" if text == "yes" else "dim",
        "reward": lambda _: "bold",
    }
    made = []
    for key in keys:
        right = any(show.is_number(key, record.get(key)) for record in records)
        made.append(Column(key, right, 0 if chosen else _WEIGHTS.get(key, 0), styles.get(key, lambda _: "")))
    print_table(made, [[show.cell(record, key) for key in keys] for record in records])
