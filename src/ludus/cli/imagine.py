"""`ludus imagine RUN`: see what the world model of a run dreams, beside what really happened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from ludus.cli.options import Checkpoint, Checkpointed, EnvId, Json, Plugin, RunsDir
from ludus.cli.table import Column, print_table
from ludus.errors import ConfigError
from ludus.files import to_json, write_json

MOST_EPISODES = 16
_HORIZON = "Steps to predict without seeing any; default: 45, or as long as the episodes are."


def imagine(
    run: Checkpointed = "@last",
    episodes: Annotated[int, Option(min=1, max=MOST_EPISODES, help="Episodes to play.")] = 4,
    context: Annotated[int, Option(min=1, help="Observations that the model sees first.")] = 5,
    horizon: Annotated[int | None, Option(min=1, help=_HORIZON)] = None,
    seed: Annotated[int | None, Option(min=0, help="Of the episodes; default: the run's.")] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Default: the run's imagination/CHECKPOINT.")] = None,
    checkpoint: Checkpoint = None,
    env: EnvId = None,
    json: Json = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Play episodes, predict them with the world model of the run, and draw both; prints how far it can be trusted."""
    from ludus.archive.run_plugins import load_for
    from ludus.archive.store import RunFolder
    from ludus.imagination import facts
    from ludus.reports.dreams import draw
    from ludus.reports.imagination import FILE
    from ludus.session.finish import runs_dir_option
    from ludus.session.imagine import imagined
    from ludus.session.player import checkpoint_name, run_config

    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}", "is not a folder", "name one")
    found = RunFolder.load(runs_dir, run)
    found.refuse_links()
    load_for(found, plugin)
    step = checkpoint_name(found, checkpoint)
    seed = run_config(found, env).experiment.seed if seed is None else seed
    result = imagined(found, step, episodes, context, horizon, seed, env)
    told: dict[str, Any] = {"run": found.id, "checkpoint": step, "seed": seed, **facts(result)}
    if not json:
        show(told)
    folder = found.imagination / step if out is None else out
    files = draw(result, folder)
    told["files"] = [path.name for path in files]
    write_json(folder / FILE, told)
    if json:
        print(to_json({**told, "folder": str(folder)}), end="")
        return
    for path in (*files, folder / FILE):
        print(f"wrote    {path}")
    if out is None:
        print(f"next     ludus report {found.id}{runs_dir_option(found)}   shows them on its page")


def show(told: dict[str, Any]) -> None:
    """The numbers as text."""
    from ludus.reports.imagination import note, tables

    rows = told["rows"]
    print(f"{told['run']}/{told['checkpoint']}")
    print(f"{told['episodes']} episodes, seed {told['seed']}: {rows['observed']:,} observations, of which "
          f"{rows['imagined']:,} imagined up to {told['horizon']} steps ahead")  # fmt: skip
    if line := note(told):
        print(line)
    for head, cells in tables(told):
        print()
        print_table([Column(name, right=i > 0) for i, name in enumerate(head)], cells)
    print()
