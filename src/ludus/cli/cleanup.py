"""`ludus cleanup`: remove checkpoints and videos of old runs."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

from rich.filesize import decimal as size
from typer import Option

from ludus.archive import query
from ludus.archive.cleanup import CleanupItem, apply, plan
from ludus.archive.index import Index
from ludus.cli.options import Filter, Json, RunsDir
from ludus.cli.table import Column, print_table, say
from ludus.files import to_json
from ludus.reports.columns import cell
from ludus.text import clean


def cleanup(
    keep_best: Annotated[int, Option(min=0, metavar="N", help="The N best runs of each environment stay.")] = 10,
    keep_recent: Annotated[float, Option(min=0, metavar="DAYS", help="Runs younger than this stay.")] = 30,
    filter: Filter = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Remove; without it only the plan is shown.")] = False,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> int:
    """Free space: remove checkpoints, videos, event files and replay data of runs that are not kept.

    Configs, metrics, logs and reports always stay. Running runs and those tagged `keep` are never touched.
    """
    records = Index(runs_dir).records()
    among = query.select(records, [query.parse(text) for text in filter or []])
    items = plan(records, among, keep_best=keep_best, keep_recent=keep_recent)
    if not json:
        _print(items, "removes" if yes else "would remove")
    freed, problems = apply(items) if yes else (0, [])
    if json:
        facts = {"removed": yes, "freed": freed, "problems": problems}
        print(to_json(facts | {"runs": [_plain(item) for item in items]}), end="")
    elif not yes:
        going = any(item.folders for item in items)
        print("nothing was removed; add --yes to do it" if going else "there is nothing to remove")
    else:
        for problem in problems:
            say(f"left alone: {clean(problem, 300)}")
        print(f"freed {size(freed)}")
    if problems:
        print("error: not everything could be removed; see above", file=sys.stderr)
    return 5 if problems else 0


def _plain(item: CleanupItem) -> dict[str, object]:
    folders = [folder.name for folder in item.folders]
    return {"run": item.record.id, "size": item.size, "folders": folders, "kept": item.keep or None}


def _print(items: list[CleanupItem], verb: str) -> None:
    """The runs that lose something, and `12 stay: 10 best, 1 recent, 1 running`."""
    rows = [
        [item.record.id, *(cell(item.record, key) for key in ("reward", "started")), size(item.size),
         ", ".join(folder.name for folder in item.folders)]
        for item in items if item.folders
    ]  # fmt: skip
    if rows:
        heads = ("id", "reward", "started", "size", verb)
        print_table([Column(head, right=head in ("reward", "size")) for head in heads], rows)
    kinds = {"is running": "running", "is tagged": "tagged keep", "number": "best", "younger": "recent"}
    reasons = [item.keep for item in items if item.keep]
    named = Counter(next((kind for start, kind in kinds.items() if why.startswith(start)), "empty") for why in reasons)
    counts = ", ".join(f"{count} {kind}" for kind, count in named.items())
    kept = f"{len(reasons)} stay: {counts}" if reasons else "none stay as they are"
    print(f"{len(rows)} of {len(items)} runs, {size(sum(item.size for item in items))}; {kept}")
