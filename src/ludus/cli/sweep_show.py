"""What there is of a sweep: its table, its best trial, and the actions on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.cli.sweep_run import Where, aside, go_on, place
from ludus.errors import ConfigError

if TYPE_CHECKING:
    from ludus.sweeps.ledger import Ledger
    from ludus.sweeps.store import SweepFolder

ACTIONS = ("show", "best", "list", "resume", "retry-failed", "stop", "join")


def act(
    action: str,
    words: list[str],
    runs_dir: Path,
    where: Where,
    page: Path | None,
    plugins: Sequence[Path] = (),
    *,
    json: bool,
) -> int:
    """Do something with a sweep that exists; `plugins` are those that the user names again."""
    from ludus.sweeps.store import SweepFolder, names
    from ludus.sweeps.trust import load_code

    if action == "list":
        for name in names(runs_dir):
            print(name)
        return 0
    if len(words) != 1:
        known = names(runs_dir)
        remedy = f"write ludus sweep {action} {known[-1] if known else 'NAME'}"
        raise ConfigError(f"ludus sweep {action}", "needs the name of one sweep", remedy)
    folder = SweepFolder.load(runs_dir, words[0])
    if action == "stop":
        print(f"process {folder.stop()} saves every run and ends; go on with ludus sweep resume {folder.name}")
        return 0
    load_code(folder, plugins)
    if action == "best":
        return best(folder, json=json)
    if action == "show":
        return show(folder, page=page, json=json, whole=True)
    if action == "join":
        return join(folder)
    return _resume(folder, where, again=action == "retry-failed", json=json)


def _resume(folder: SweepFolder, where: Where, *, again: bool, json: bool) -> int:
    """Go on with a sweep, and with what failed if it is tried `again`."""
    from ludus.sweeps.coordinator import retry_failed

    if again:
        lock = folder.lock()
        lock.acquire()
        try:
            with aside(json=json):
                print(f"{retry_failed(folder)} failed trials are tried again")
        finally:
            lock.release()
    return go_on(folder, where, json=json)


def join(folder: SweepFolder) -> int:
    """Carry out one trial, with the values that W&B's agent gives."""
    from ludus import cli
    from ludus.sweeps import agent
    from ludus.sweeps.wandb import claim

    if not agent.started():
        raise ConfigError("ludus sweep join", "is what W&B's agent calls", f"write ludus sweep resume {folder.name}")
    given = agent.written()
    trial = claim(folder, given)
    return cli.run(folder.spec().arguments(trial.number, given, None, folder.runs_dir.absolute()))


def show(folder: SweepFolder, *, json: bool, page: Path | None = None, whole: bool = False) -> int:
    """The table of trials, and the page and journal renewed."""
    from ludus.files import to_json
    from ludus.sweeps import results
    from ludus.sweeps.journal import write_journal
    from ludus.sweeps.ledger import Ledger
    from ludus.sweeps.page import write_page
    from ludus.terminal import quiet

    ledger = Ledger(folder)
    ledger.read_all()
    shown = page or folder.path / "sweep.html"
    write_page(ledger, shown)
    journal = write_journal(ledger)
    found = results.best(ledger)
    if json:
        trials = [row.data() for row in results.rows(ledger)]
        data = {"name": folder.name, "trials": trials, "best": found and found.data()}
        print(to_json({**data, "running": folder.running(), "page": str(shown)}), end="")
        return 0
    if quiet() and not whole:
        return 0
    _table(ledger)
    print(f"{folder.name}: {ledger.plan.trials} trials" + (", running" if folder.running() else ""))
    if found is not None:
        print(f"best     trial {found.number}: {results.command(ledger, found)}")
    print(f"page     {shown}")
    if journal is not None:
        print(f"journal  optuna-dashboard {journal}")
    print(f"next     ludus compare -f tags=sweep:{folder.name}{place(folder)}")
    return 0


def _table(ledger: Ledger) -> None:
    from ludus.cli.table import Column, print_table, state_style
    from ludus.sweeps import results

    styles = {"complete": "", "open": "dim", "pruned": "yellow"}
    columns = [Column(title, i in (0, 2, 3)) for i, title in enumerate(results.titles(ledger))]
    columns[1] = Column("state", style=lambda text: styles.get(text, state_style(text)))
    print_table(columns, [row.cells() for row in results.rows(ledger)])


def best(folder: SweepFolder, *, json: bool) -> int:
    """The best trial as a command."""
    from ludus.files import to_json
    from ludus.sweeps import results
    from ludus.sweeps.ledger import Ledger

    ledger = Ledger(folder)
    ledger.read_all()
    found = results.best(ledger)
    if found is None:
        raise ConfigError(folder.name, "no trial is complete", f"ludus sweep resume {folder.name}")
    print(to_json(found.data()) if json else results.command(ledger, found) + "\n", end="")
    return 0
