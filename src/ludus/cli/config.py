"""`ludus config`: show, check and document configurations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from ludus.cli.options import Json, Plugin
from ludus.cli.table import Column, print_table
from ludus.errors import LudusError
from ludus.files import to_json

app = Typer(rich_markup_mode=None)
Write = Annotated[bool, Option("--write", help="Write a file instead.")]
Output = Annotated[Path, Option(help="The file for --write.")]


@app.command()
def show(
    words: Annotated[list[str], Argument(metavar="SPEC [OVERRIDES]...", help="As for ludus train.")],
    origin: Annotated[bool, Option("--origin", help="Show each value with its file and line.")] = False,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Print the resolved config as YAML."""
    from ludus.archive.run_plugins import load_for_spec
    from ludus.cli.job import pick_spec, split
    from ludus.config.compose import config_hash, load, to_yaml
    from ludus.config.validate import MISSING, select
    from ludus.reports.columns import config_text

    spec, overrides = split(words)
    spec = pick_spec(spec, None, None)
    load_for_spec(spec, overrides, plugin)
    resolved = load(spec, overrides)
    data, digest = resolved.data, config_hash(resolved.config)
    if json:
        about = {"spec": spec, "hash": digest, "remarks": resolved.remarks, "origin": dict(resolved.origin)}
        print(to_json({**about, "config": data}), end="")
        return
    for remark in resolved.remarks:
        print(f"# {remark}")
    if not origin:
        print(to_yaml(resolved.config), end="")
        return
    values = {path: select(data, tuple(path.split("."))) for path in resolved.origin}
    rows = [
        [path, "-" if values[path] is MISSING else config_text(values[path]), resolved.origin[path]]
        for path in sorted(values)
    ]
    print_table([Column("config"), Column("value"), Column("from")], rows)
    print(f"config hash {digest}; everything else is a default")


@app.command()
def validate(
    specs: Annotated[list[str] | None, Argument(metavar="[SPEC]... | all", help="Default: all.")] = None,
    plugin: Plugin = None,
    json: Json = False,
) -> int:
    """Check configs and print their hashes; exit 2 if one is bad."""
    from ludus.archive.run_plugins import load_for_spec
    from ludus.config.compose import config_hash, environment_file, find_experiments, find_targets, load
    from ludus.envs.facts import facts_of
    from ludus.plugins import load_plugins

    named = specs not in (None, [], ["all"])
    if not specs or not named:
        specs = [*(target.spec for target in find_targets()), *find_experiments()]
    found: list[dict[str, str | None]] = []
    for spec in specs:
        try:
            load_for_spec(spec, [], plugin) if named else load_plugins(plugin or [])  # files name no code to import
            resolved = load(spec)
            config = resolved.config
            if config.environment.num_envs != "auto":
                config.algorithm.config.check(config.environment.num_envs)
            if not resolved.preset:
                facts_of(environment_file(spec))
            found.append({"spec": spec, "hash": config_hash(config), "error": None})
            if not json:
                print(f"ok  {found[-1]['hash']}  {spec}")
        except LudusError as error:
            found.append({"spec": spec, "hash": None, "error": error.line()})
            if not json:
                print(f"error: {error.line()}", file=sys.stderr)
    good = sum(one["error"] is None for one in found)
    print(to_json(found) if json else f"{good} of {len(specs)} configs are valid\n", end="")
    return 0 if good == len(specs) else 2


@app.command()
def schema(write: Write = False, output: Output = Path("configs/schema.json")) -> None:
    """Print the JSON schema of a config, for editors."""
    from ludus.config.reference import json_schema

    _deliver(to_json(json_schema()), output if write else None)


@app.command()
def reference(write: Write = False, output: Output = Path("docs/reference/config.md")) -> None:
    """Print every field with its type, default and meaning, as markdown."""
    from ludus.config.reference import markdown

    _deliver(markdown(), output if write else None)


def _deliver(text: str, path: Path | None) -> None:
    if path is None:
        print(text, end="")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")
