"""`ludus verify RUN`: retrain a run and check that every number matches."""

from __future__ import annotations

from pathlib import Path

from ludus.cli.options import Json, Plugin, Run, RunsDir
from ludus.files import to_json


def verify(run: Run, json: Json = False, plugin: Plugin = None, runs_dir: RunsDir = Path("runs")) -> int:
    """Retrain a run from its config, and compare every metric and the final state."""
    from ludus.archive.run_plugins import load_for
    from ludus.archive.store import RunFolder
    from ludus.verify import verify as verify_run

    def say(line: str) -> None:
        if not json:
            print(line, flush=True)

    folder = RunFolder.load(runs_dir, run)
    plugins = load_for(folder, plugin)
    say(f"{folder.id}: training again and comparing")
    verdict = verify_run(folder, announce=say, plugins=plugins)
    difference = None if verdict.identical else verdict.difference or "the final weights"
    also = " and the final state" if verdict.weights else ""
    identical = f"identical: {verdict.rows:,} rows up to step {verdict.env_steps:,}{also}"
    say(identical if difference is None else f"differs: {difference}")
    if json:
        facts = {"rows": verdict.rows, "env_steps": verdict.env_steps, "weights": verdict.weights}
        about = {"run": folder.id, "identical": verdict.identical, "difference": difference}
        print(to_json(about | facts), end="")
    return 0 if verdict.identical else 3
