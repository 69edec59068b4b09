"""`ludus verify RUN`: retrain a run and check that every number matches."""

from __future__ import annotations

from pathlib import Path

from ludus.cli.options import Plugin, Run, RunsDir


def verify(run: Run, plugin: Plugin = None, runs_dir: RunsDir = Path("runs")) -> int:
    """Retrain a run from its config, and compare every metric and the final state."""
    from ludus.archive.run_plugins import load_for
    from ludus.archive.store import RunFolder
    from ludus.verify import verify as verify_run

    folder = RunFolder.load(runs_dir, run)
    load_for(folder, plugin)
    print(f"{folder.id}: training again and comparing", flush=True)
    verdict = verify_run(folder, announce=lambda line: print(line, flush=True))
    if not verdict.identical:
        print(f"differs: {verdict.difference or 'the final weights'}")
        return 3
    also = " and the final state" if verdict.weights else ""
    print(f"identical: {verdict.rows:,} rows up to step {verdict.env_steps:,}{also}")
    return 0
