"""`ludus env`: which environments there are, what is known about them, and whether they keep the vector contract."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option, Typer

from ludus.cli.options import Json, Plugin
from ludus.cli.table import Column, painted, print_table, say
from ludus.envs.facts import ConfiguredEnvironment, Facts, collect, environment_of, facts_of, registered, shipped
from ludus.envs.suites import OTHER, SUITES
from ludus.files import to_json
from ludus.plugins import load_plugins

app = Typer(rich_markup_mode=None)

Id = Annotated[str, Argument(metavar="ID", help="Environment id, or Env:variant with its wrappers.")]
_RESUME = {
    "api": "exact: it saves its own state",
    "adapter": "exact: its state is read and written by an adapter",
    "pickle": "exact: it is pickled",
    "replay": "exact: its episode is played again",
    "barrier": "exact: all environments are reset at every checkpoint",
    "none": "not exact: its state cannot be saved or repeated",
}
_STYLES = {"PASS": "green", "FAIL": "red", "NOTE": "yellow"}


@app.command("list")
def list_environments(
    search: Annotated[str | None, Argument(help="Part of a name or suite.")] = None,
    everything: Annotated[bool, Option("--all", help="Also those without a config here.")] = False,
    as_json: Json = False,
) -> None:
    """List environments by suite, with their variants; a suite that is not installed says how to get it."""
    entries = shipped()
    if everything:
        known = {entry.id for entry in entries}
        entries += [entry for entry in registered() if entry.id not in known]
    wanted = (search or "").lower().replace("/", "-")
    found = [e for e in entries if wanted in f"{e.name} {e.id} {e.suite.title}".lower().replace("/", "-")]
    if as_json:
        print(to_json({entry.name: _plain(entry) for entry in found}), end="")
    else:
        _print_by_suite(found)


def _plain(entry: ConfiguredEnvironment) -> Facts:
    suite = entry.suite
    extra = suite.extra if suite.needs and suite.extra else None
    facts = {"id": entry.id, "variants": entry.variants, "suite": suite.title}
    return facts | {"installed": suite.installed, "extra": extra}


def _print_by_suite(entries: list[ConfiguredEnvironment]) -> None:
    width = max((len(entry.name) for entry in entries), default=0)
    for title in dict.fromkeys(suite.title for suite in (*SUITES, OTHER)):
        mine = [entry for entry in entries if entry.suite.title == title]
        if mine:
            suite = mine[-1].suite
            missing = "" if suite.installed else f": not installed, {suite.remedy}"
            say(painted(title, "bold") + painted(missing, "yellow"))
        for entry in mine:
            say(f"  {entry.name:<{width}}  {', '.join(entry.variants)}".rstrip())


@app.command()
def info(id: Id, plugin: Plugin = None, as_json: Json = False) -> None:
    """Show spaces with labels and ranges, reward, time limit, threshold, backends and how a run with it resumes."""
    from ludus.bench.fps import backends
    from ludus.envs.make import describe, make_vector

    load_plugins(plugin or [])
    environment, file = environment_of(id)
    facts = collect(describe(environment), *facts_of(file))
    with make_vector(environment, num_envs=2) as env:
        facts |= {"backend": env.backend, "resume": env.choose_snapshot_method()}
    facts["backends"] = [name for name, problem in backends(environment).items() if not problem]
    facts["configs"] = file.variants if file else []
    print(to_json(facts) if as_json else "".join(f"{line}\n" for line in _lines(facts)), end="")


def _lines(facts: Facts) -> list[str]:
    modes = ", ".join(facts["render_modes"])
    limit, threshold = facts["max_episode_steps"], facts["reward_threshold"]
    rows = {
        "reward": facts["reward"],
        "episode": f"at most {limit:,} steps" if limit else "no time limit",
        "solved at": f"{threshold:g}" if threshold is not None else "no threshold",
        "rendering": f"{modes} at {facts['render_fps']:g} frames per second" if modes else "none",
        "suite": facts["suite"],
        "backend": f"{facts['backend']}; it can run on {', '.join(facts['backends'])}",
        "resume": _RESUME[facts["resume"]],
        "configs": ", ".join(facts["configs"]),
        "more": facts["source"],
    }
    head = [facts["id"], *([f"  {facts['description']}"] if facts["description"] else [])]
    spaces = [line for kind in ("action", "observation") for line in _space_lines(kind, facts[kind])]
    return [*head, *spaces, *(f"{name:<12} {text}" for name, text in rows.items() if text)]


def _space_lines(kind: str, space: Facts) -> list[str]:
    shape = "x".join(map(str, space["shape"]))
    size = f"{space['n']}" if "n" in space else f"{shape or 1} {space['dtype']}"
    low, high, labels = space.get("low"), space.get("high"), space["labels"]
    if low is not None and not isinstance(low, list):
        return [f"{kind:<12} {space['space']} of {size}, {_range(low, high)}"]
    width = max(map(len, labels), default=0)
    rows = []
    for i in range(max(len(labels), len(low or []))):
        label = labels[i] if labels else ""
        bounds = _range(low[i], high[i]) if low is not None and high is not None else ""
        rows.append(f"  {i:>3}  {label:<{width}}  {bounds}".rstrip())
    return [f"{kind:<12} {space['space']} of {size}", *rows]


def _range(low: float | None, high: float | None) -> str:
    return f"{'-inf' if low is None else f'{low:g}'} .. {'inf' if high is None else f'{high:g}'}"


@app.command()
def check(
    id: Id,
    backend: Annotated[list[str] | None, Option(metavar="NAME", help="Only this backend; repeatable.")] = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> int:
    """Gymnasium's own checks, then the vector contract on every backend the environment runs on."""
    from ludus.checks.check import check as check_environment

    load_plugins(plugin or [])
    rows = check_environment(environment_of(id)[0], backend)
    if as_json:
        print(to_json([row._asdict() for row in rows]), end="")
    else:
        result = Column("result", style=lambda status: _STYLES.get(status, ""))
        print_table([Column("backend"), Column("check"), result, Column("")], rows)
    return 4 if any(row.status == "FAIL" for row in rows) else 0
