"""What `ludus train` says after its last run: the seeds together, and the final numbers as JSON."""

from __future__ import annotations

import json as format
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus.terminal import quiet
from ludus.text import points


def tell(folders: Sequence[Path], *, json: bool) -> None:
    """Sum several seeds up; with `json`, end with one line for each run."""
    from ludus.archive.store import read_or_empty

    found = [{"run": folder.name, **read_or_empty(folder / "metrics.json")} for folder in folders]
    if len(found) > 1 and not quiet():
        for line in over_seeds(found, folders):
            print(line)
    for one in found if json else ():
        print(format.dumps(one), flush=True)


def over_seeds(found: Sequence[dict[str, Any]], folders: Sequence[Path]) -> list[str]:
    """Mean and deviation over the seeds, and the command that compares them."""
    import numpy as np

    from ludus.archive.store import RunFolder
    from ludus.reports.statistics import stratified_bootstrap
    from ludus.session.finish import runs_dir_option

    last = [float(one["mean"]) for one in found if one.get("mean") is not None]
    told = f"{len(found)} seeds"
    if last:
        told += f": last evaluation {points(float(np.mean(last)))} ± {points(float(np.std(last)))}"
    if len(last) > 2:
        low, high = stratified_bootstrap([last], np.mean)
        told += f" (95 % interval of the mean {points(low)} to {points(high)})"
    if any(one.get("threshold") is not None for one in found):
        told += f", solved by {sum(bool(one.get('solved')) for one in found)} of {len(found)}"
    command = f"ludus compare {' '.join(folder.name for folder in folders)}{runs_dir_option(RunFolder(folders[0]))}"
    return ["", told, f"next     {command}"]
