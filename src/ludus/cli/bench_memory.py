"""`ludus bench memory`: compare memory cores under one PPO."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ludus.cli.options import numbers, words


def memory(
    env: Annotated[
        str, typer.Option(metavar="NAME[,NAME...]", help="Presets, tasks, or any Env:variant.")
    ] = "classic-masked",
    cores: Annotated[str, typer.Option(metavar="NAME[,NAME...]", help="Default: all of them.")] = "",
    seeds: Annotated[str, typer.Option(metavar="N|N,N,...", help="How many, or which.")] = "5",
    match_params: Annotated[
        float, typer.Option(min=0, help="Parameters as a share of the LSTM's; 0 leaves every core as it is.")
    ] = 1.0,
    steps: Annotated[
        str, typer.Option(metavar="N[,N...]", help="Budget of a run, for all tasks or each; default: the config's.")
    ] = "",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; default: one per CPU.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Runs, tables and pictures; a second call goes on.")] = Path(
        "bench/memory"
    ),
    list_tasks: Annotated[bool, typer.Option("--list", help="Show presets, tasks and cores.")] = False,
) -> int:
    """Train every core on every task with several seeds, and write tables and curves."""
    from ludus.bench.memory.tasks import CORES, PRESETS, pick_cores, pick_tasks

    if list_tasks:
        for name, tasks in PRESETS.items():
            print(f"{name:<16} {', '.join(task.name for task in tasks)}")
        print(f"{'cores':<16} {', '.join(CORES)}")
        return 0
    from ludus.bench.memory import Plan, bench

    chosen = pick_tasks(words(env)), pick_cores(words(cores))
    budgets = [numbers("--steps", word, "100000 or --steps 65536,131072")[0] for word in words(steps)]
    plan = Plan(*chosen, _seeds(seeds), match_params or None, budgets)
    failures = bench(plan, out, jobs or os.cpu_count() or 1, lambda line: print(line, flush=True))
    if (out / "table.md").is_file():
        print(f"{out}/table.md, table.csv, table.tex, results.json and pictures are written")
    return 1 if failures else 0


def _seeds(text: str) -> list[int]:
    """`5` means the seeds 1 to 5, `1,2,3` these seeds."""
    found = numbers("--seeds", text, "5 or --seeds 1,2,3", least=0)
    return found if len(found) > 1 else list(range(1, found[0] + 1))
