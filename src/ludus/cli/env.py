"""`ludus env`: which environments there are, what they are, and whether they keep the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ludus.cli.env_facts import Entry
    from ludus.config.schema import Environment

app = typer.Typer(rich_markup_mode=None)

Id = Annotated[str, typer.Argument(metavar="ID", help="Environment id, or Env:variant with its wrappers.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command("list")
def list_environments(
    search: Annotated[str | None, typer.Argument(help="Part of a name or suite.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those without a config here.")] = False,
    as_json: Json = False,
) -> None:
    """List environments by suite, with their variants; a suite that is not installed says how to get it."""
    from ludus.cli.env_facts import shipped

    entries = shipped()
    if everything:
        entries += _registered({entry.id for entry in entries})
    wanted = (search or "").lower().replace("/", "-")
    found = [e for e in entries if wanted in f"{e.name} {e.id} {e.family.name}".lower().replace("/", "-")]
    if as_json:
        import json

        print(json.dumps({entry.name: _plain(entry) for entry in found}, indent=2))
    else:
        _print(found)


def _plain(entry: Entry) -> dict[str, Any]:
    suite = entry.family
    told = {"suite": suite.name, "installed": suite.installed, "extra": suite.extra or None}
    return {"id": entry.id, "variants": entry.variants, **told}


def _registered(known: set[str]) -> list[Entry]:
    """Every other id of Gymnasium and of the suites that are installed."""
    import gymnasium

    from ludus.cli.env_facts import Entry
    from ludus.envs.catalog import load_all
    from ludus.envs.families import family

    load_all()
    return [Entry(id, id, [], family(id)) for id in sorted(gymnasium.registry) if id not in known]


def _print(entries: list[Entry]) -> None:
    from ludus.cli.table import painted, say
    from ludus.envs.families import order

    width = max((len(entry.name) for entry in entries), default=0)
    suites = {entry.family.name: entry.family for entry in entries}
    for suite in sorted(suites.values(), key=lambda suite: (order(suite.name), suite.name)):
        missing = "" if suite.installed else f": not installed, {suite.remedy}"
        say(painted(suite.name, "bold") + painted(missing, "yellow"))
        for entry in entries:
            if entry.family.name == suite.name:
                say(f"  {entry.name:<{width}}  {', '.join(entry.variants)}".rstrip())


@app.command()
def info(id: Id, as_json: Json = False) -> None:
    """Show spaces with labels and ranges, reward, time limit, threshold, backends and how a run with it resumes."""
    from ludus.cli.env_facts import collect, environment_of, facts_of, lines
    from ludus.envs.families import family
    from ludus.envs.make import describe

    environment, file = environment_of(id)
    facts = collect(describe(environment), *facts_of(file))
    facts["suite"] = family(environment.id).name
    facts |= _machinery(environment)
    facts["configs"] = file.variants if file else []
    if as_json:
        import json

        print(json.dumps(facts, indent=2))
    else:
        print("\n".join(lines(facts)))


def _machinery(environment: Environment) -> dict[str, Any]:
    """The backend that is picked, the others there are, and how its state is saved."""
    from ludus.bench.fps import backends
    from ludus.envs.make import make_vector

    with make_vector(environment, num_envs=2) as env:
        chosen = {"backend": env.backend, "resume": env.choose_snapshot_method()}
    return {**chosen, "backends": [name for name, problem in backends(environment).items() if not problem]}


@app.command()
def check(
    id: Id,
    backend: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this backend; repeatable.")] = None,
    as_json: Json = False,
) -> int:
    """Gymnasium's own checks, then the vector contract on every backend the environment runs on."""
    from ludus.checks.check import check as check_environment
    from ludus.checks.check import passed
    from ludus.cli.env_facts import environment_of
    from ludus.cli.table import Column, print_table

    rows = check_environment(environment_of(id)[0], backend)
    if as_json:
        import json

        print(json.dumps([row._asdict() for row in rows], indent=2))
    else:
        columns = [Column("backend"), Column("check"), Column("result", style=_style), Column("")]
        print_table(columns, [[row.backend, row.check, row.status, row.detail] for row in rows])
    return 0 if passed(rows) else 4


def _style(status: str) -> str:
    return {"PASS": "green", "FAIL": "red", "NOTE": "yellow"}.get(status, "")
