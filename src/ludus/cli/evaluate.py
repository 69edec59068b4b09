"""`ludus evaluate`: how good a checkpoint is, over many episodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ludus.cli.options import Checkpoint, Checkpointed, Deterministic, EnvId, EpisodeSeed, Json, Plugin, RunsDir
from ludus.files import to_json

if TYPE_CHECKING:
    from ludus.orchestration.evaluator import EvalResult


def evaluate(
    run: Checkpointed = "@last",
    episodes: Annotated[int, Option("--episodes", "-n", min=1, help="Finished episodes.")] = 100,
    deterministic: Deterministic = None,
    checkpoint: Checkpoint = None,
    seed: EpisodeSeed = None,
    env: EnvId = None,
    json: Json = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Play many episodes with a checkpoint: mean, deviation, 95 % interval, lengths."""
    from ludus.archive.run_plugins import load_for
    from ludus.archive.store import RunFolder
    from ludus.session.evaluate import evaluated
    from ludus.session.player import checkpoint_name, run_config

    found = RunFolder.load(runs_dir, run)
    load_for(found, plugin)
    step = checkpoint_name(found, checkpoint)
    seed = run_config(found, env).experiment.seed if seed is None else seed
    result = evaluated(found, step, episodes, deterministic, seed, env)
    facts = {"run": found.id, "checkpoint": step, "seed": seed, **statistics(result)}
    if json:
        print(to_json(facts), end="")
    else:
        show(facts)


def show(facts: dict[str, Any]) -> None:
    """The statistics as text."""
    interval = ""
    if facts["episodes"] > 1:
        low, high = facts["ci95"]
        interval = f", 95 % bootstrap interval of the mean {low:,.2f} to {high:,.2f}"
    habit = "greedy" if facts["deterministic"] else "sampled"
    print(f"{facts['run']}/{facts['checkpoint']}")
    print(f"return   {facts['mean']:,.2f} ± {facts['std']:,.2f}{interval}")
    print("         IQM {iqm:,.2f}, median {median:,.2f}, {min:,.2f} to {max:,.2f}".format(**facts))
    print(f"length   {facts['length_mean']:,.1f} ± {facts['length_std']:,.1f}")
    print(f"episodes {facts['episodes']}, {habit} actions, seed {facts['seed']}, {facts['seconds']:.1f} s")


def statistics(result: EvalResult) -> dict[str, Any]:
    """Everything about the episodes, by name."""
    import numpy as np

    from ludus.reports.statistics import iqm, stratified_bootstrap

    return {
        "episodes": result.episodes,
        "deterministic": result.deterministic,
        "mean": result.mean,
        "std": result.std,
        "ci95": list(stratified_bootstrap([result.returns], np.mean)) if result.episodes > 1 else [None, None],
        "iqm": float(iqm(result.returns)),
        "median": float(np.median(result.returns)),
        "min": result.worst,
        "max": result.best,
        "length_mean": result.length_mean,
        "length_std": float(np.std(result.lengths)),
        "total_timesteps": result.total_timesteps,
        "total_vec_steps": result.total_vec_steps,
        "seconds": result.seconds,
        "returns": list(result.returns),
        "lengths": list(result.lengths),
    }
