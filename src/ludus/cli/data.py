"""`ludus data`: look into data sets of episodes."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Typer

from ludus.cli.options import Json
from ludus.files import to_json

app = Typer(rich_markup_mode=None)
ROWS = 40
"""Most numbers of an observation that are listed one by one."""


@app.callback()
def data() -> None:
    """Data sets of episodes: Minari's format, or the buffer that a run has stored."""


@app.command()
def info(
    path: Annotated[str, Argument(metavar="PATH", help="Folder of a data set, of a run or of a stored buffer.")],
    json: Json = False,
) -> None:
    """Check every episode and print spaces, episodes, steps, returns, statistics and the checksum."""
    from ludus.session.dataset import described

    facts = described(path)
    if json:
        print(to_json(facts), end="")
    else:
        show(facts)


def show(facts: dict[str, Any]) -> None:
    """The facts as text."""
    from ludus.cli.table import Column, print_table

    print(f"{facts['path']}: {facts['format']}" + (f", {facts['id']}" if facts.get("id") else ""))
    print(f"observations {facts['observation_space']}")
    print(f"actions      {facts['action_space']}")
    ends = f"{facts['terminated']} terminated, {facts['episodes'] - facts['terminated']} truncated"
    print(f"episodes     {facts['episodes']:,} ({ends}), {facts['steps']:,} steps")
    for name in ("return", "length"):
        print("{:<12} {mean:,.2f} ± {std:,.2f}, {min:,.2f} to {max:,.2f}".format(name, **facts[name]))
    for policy in facts.get("recorded", []):
        print(f"recorded     {policy['episodes']} episodes by {policy['policy']}, seed {policy.get('seed')}")
    print(f"sha256       {facts['sha256']}")
    rows, keys = facts["statistics"], ("min", "max", "mean", "std")
    print()
    head = [Column(""), *(Column(name, right=True) for name in ("least", "largest", "mean", "deviation"))]
    print_table(head, [[row["name"], *(f"{row[key]:.4g}" for key in keys)] for row in rows[:ROWS]])
    if len(rows) > ROWS:
        print(f"and {len(rows) - ROWS:,} more; --json prints all of them")
