"""`ludus` alone in a terminal: what to do next, by what the runs folder holds."""

from __future__ import annotations

from pathlib import Path

from ludus.archive.index import Index
from ludus.archive.record import Record
from ludus.cli.table import painted, say
from ludus.text import clean, points

Hint = tuple[str, str]
NEW = [
    ("ludus train CartPole-v1:ppo", "train something small: it takes seconds"),
    ("ludus train --list-envs", "what has tuned settings"),
    ("ludus doctor", "what is installed here, and what is wrong"),
]


def welcome(runs_dir: Path = Path("runs")) -> None:
    """Print the newest run and the commands that fit it."""
    records = Index(runs_dir).records()
    for line in told(records):
        say(line)
    hints = [*hints_for(records), ("ludus --help", "all commands")]
    width = max(len(command) for command, _ in hints)
    for command, why in hints:
        say(f"  {painted(f'{command:<{width}}', 'bold')}   {why}")


def told(records: list[Record]) -> list[str]:
    """How things stand, in one or two lines."""
    if not records:
        return ["Ludus: one reinforcement-learning lab. There are no runs here yet."]
    newest = records[0]
    reward = "" if newest.reward is None else f", best return {points(newest.reward)}"
    lost = [record for record in records if record.state == "lost"]
    lines = [f"{len(records)} runs; the newest is {clean(newest.id)}: {newest.state}{reward}"]
    return lines + ([f"{len(lost)} ended without a word: each can be resumed"] if lost else [])


def hints_for(records: list[Record]) -> list[Hint]:
    """Commands that make sense now."""
    if not records:
        return NEW
    newest = records[0]
    watch = [("ludus play @last", "watch it"), ("ludus evaluate @last", "measure it over 100 episodes")]
    more = [("ludus list", "all runs"), ("ludus publish @last --dry-run DIR", "what others would get of it")]
    if newest.state == "running":
        return [("ludus show @last", "how far it is"), *watch, more[0]]
    if newest.state in ("lost", "stopped"):
        return [("ludus resume @last", "go on where it stopped, to the bit"), *watch, more[0]]
    if newest.state == "failed":
        return [("ludus show @last", f"why it failed: {clean(newest.reason or 'see run.log', 80)}"), more[0]]
    return [*watch, ("ludus report @last", "everything on one page"), *more]
