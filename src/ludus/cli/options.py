"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ludus.errors import ConfigError

Run = Annotated[str, Argument(help="Run id, unique prefix, @last or @best.")]
Checkpointed = Annotated[str, Argument(help="Run id, unique prefix, @last or @best; add /@best, /@last or /step=N.")]
_RUNS = "Ids, prefixes, @last, @best, 'cart*', algorithm=ppo; default: all."
Runs = Annotated[list[str] | None, Argument(metavar="[RUN|GLOB|FILTER]...", help=_RUNS)]
Overrides = Annotated[list[str] | None, Argument(metavar="[OVERRIDES]", help="key=value")]
_CONDITION = "Only matching runs: = != > >= < <= or ~ (regex)."
Filter = Annotated[list[str] | None, Option("--filter", "-f", metavar="KEY=VALUE", help=_CONDITION)]
Sort = Annotated[str, Option("--sort", "-s", metavar="FIELD[:asc|desc]", help="Any field or config path.")]
Limit = Annotated[int | None, Option("--limit", "-n", min=1, metavar="N", help="Only the first N.")]
Columns = Annotated[str | None, Option(metavar="A,B,...", help="Fields or config paths to show.")]
GroupBy = Option("--group-by", "-g", metavar="config|spec|FIELD", help="What a group is; config: all but the seed.")
_METRICS = "final, best, loss, entropy, ... or the name of a metric."
Metrics = Annotated[str, Option("--metrics", "-m", metavar="A,B", help=_METRICS)]
_PLUGIN = "Python file or module that registers parts or environments; module:Class for one. A run remembers its own."
Plugin = Annotated[list[Path] | None, Option("--plugin", "--import", metavar="FILE|MODULE", help=_PLUGIN)]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
LastLines = Annotated[bool, Option("--json", help="Print the final numbers of each run as a line of JSON.")]
RunsDir = Annotated[Path, Option(metavar="DIR", help="Folder of all runs.")]
Deterministic = Annotated[bool | None, Option("--deterministic/--stochastic", help="Greedy or not.")]
Checkpoint = Annotated[str | None, Option(metavar="best|last|step=N", help="Default: best, or last.")]
EpisodeSeed = Annotated[int | None, Option("--seed", min=0, help="Of episodes and actions; default: the run's.")]
EnvId = Annotated[str | None, Option(metavar="ID", help="Environment for a run that learned without one.")]
Jobs = Annotated[int | None, Option("--jobs", "-j", min=1, metavar="N", help="Processes; default: one per CPU.")]


def words(text: str) -> list[str]:
    """The items of `a,b,c`."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(option: str, text: str, example: str, *, least: int = 1) -> list[int]:
    """The different whole numbers of `1,2,3` or `1..3`, each at least `least`."""
    found = [number for word in words(text) for number in _between(word)]
    if min(found, default=-1) < least or len(set(found)) < len(found):
        raise ConfigError(f"{option} {text}", "not a list of different whole numbers", f"write {option} {example}")
    return found


def _between(word: str) -> range:
    """The numbers of `7` or `1..3`; -1 for anything else, and where there are too many."""
    first, dots, last = word.replace("_", "").partition("..")
    ends = [int(end) if end.isdecimal() and len(end) < 20 else -1 for end in (first, last if dots else first)]
    return range(ends[0], ends[1] + 1) if -1 < ends[0] <= ends[1] < ends[0] + 10_000 else range(-1, 0)


def column_names(text: str | None) -> list[str]:
    """The names in `--columns`."""
    names = words(text or "")
    if text is not None and not names:
        raise ConfigError(f"--columns {text}", "names no column", "write --columns id,reward,algorithm.lr")
    return names
