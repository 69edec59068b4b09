"""`ludus sweep --dry-run`: what a sweep would do, how long it would take and how much disk."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ludus.cli.sweep_run import Where, at_once, workers
from ludus.cli.sweep_run import described as spread_of
from ludus.cli.table import Column, print_table
from ludus.files import to_json
from ludus.reports.columns import config_text
from ludus.sweeps.plan import Plan
from ludus.sweeps.space import Parameter, values_of
from ludus.text import duration

SHOWN = 12
"""Trials of a grid that are printed."""
MEASURED = 4_096
"""Environment steps of the run that is measured where there is no earlier one."""


class Cost(NamedTuple):
    """What one run takes."""

    seconds: float
    bytes: int
    source: str


def print_plan(plan: Plan, runs_dir: Path, where: Where, *, json: bool) -> int:
    """Print the plan of a sweep."""
    from rich.filesize import decimal

    spec, jobs = plan.spec, workers(plan, where) if where.engine == "modal" else at_once(plan, where)
    one = cost(plan, runs_dir)
    wall, disk = one.seconds * -(-plan.runs // jobs), one.bytes * plan.runs
    if json:
        facts = {"trials": plan.trials, "runs": plan.runs, "jobs": jobs, "seconds": wall, "bytes": disk}
        print(to_json({**facts, "spec": spec.model_dump(mode="json")}), end="")
        return 0
    print(f"{spec.base} {' '.join(spec.overrides)}".rstrip())
    print(f"method   {spec.method}" + (f", {spec.sampler}" if spec.method == "bayes" else ""))
    print(f"metric   {spec.metric.name}, {spec.metric.goal}")
    for parameter in spec.parameters:
        print(f"search   {parameter.key}: {described(parameter)}")
    if plan.grid is not None:
        keys = [parameter.key for parameter in spec.parameters]
        shown = [values_of(spec.parameters, latent) for latent in plan.grid[: plan.trials][:SHOWN]]
        rows = [[str(i), *(config_text(values[key]) for key in keys)] for i, values in enumerate(shown)]
        print_table([Column("trial", True), *(Column(key) for key in keys)], rows)
        if plan.trials > SHOWN:
            print(f"... and {plan.trials - SHOWN} more")
    seeds = len(spec.run_seeds)
    if spec.stages is not None:
        middle = plan.trials - plan.first - len(plan.coarse) - spec.stages.fine
        told = f"{len(plan.coarse)} of a coarse grid, {middle} of {spec.sampler}, {spec.stages.fine} near the best"
        print(f"stages   {told}")
    spread = spread_of(plan, where)
    print(f"trials   {plan.trials}, {seeds} seed{'s' * (seeds > 1)} each: {plan.runs} runs, {spread}")
    print(f"time     about {duration(wall)} if none is stopped early ({one.source})")
    print(f"disk     at most about {decimal(disk)} in {runs_dir}/")
    return 0


def described(parameter: Parameter) -> str:
    """What a parameter may be, in words."""
    if parameter.kind == "choice":
        return ", ".join(config_text(value) for value in parameter.values)
    rounded = f", in steps of {parameter.step:g}" if parameter.step else ""
    return f"{parameter.kind.replace('_', ' ')} {parameter.low:g} to {parameter.high:g}{rounded}"


def cost(plan: Plan, runs_dir: Path) -> Cost:
    """Seconds and bytes of one run: of an earlier one like it, or of a short one that is trained now."""
    from ludus.archive.index import Index
    from ludus.config.compose import load
    from ludus.experiment import build
    from ludus.preflight import disk_needed

    config = plan.base.config
    total = config.training.budget.total
    place = (config.algorithm.name, config.environment.id)
    alike = [
        record
        for record in Index(runs_dir).records()
        if (record.algorithm, record.environment) == place and record.seconds and (record.env_steps or 0) >= MEASURED
    ]
    short = min(total, MEASURED)
    words = [*plan.spec.overrides, f"training.total_timesteps={short}", "runtime.compile=never"]
    run = build(config if alike or config.training.offline else load(plan.spec.base, words).config)
    try:
        disk = disk_needed(run)
        if alike:
            rate = alike[0].seconds / alike[0].env_steps  # type: ignore[operator]
            return Cost(rate * total, disk, f"{alike[0].id} took {duration(alike[0].seconds or 0.0)}")
        if config.training.offline:
            return Cost(float("nan"), disk, "no earlier run of this kind tells")
        run.run()
        return Cost(run.seconds / short * total, disk, f"measured over {short:,} steps")
    finally:
        run.close()
