"""No message names a command or an option that does not exist: every text in src/ludus is looked at."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.main import get_command

from ludus import cli
from ludus.cli import commands, flags
from ludus.errors import ConfigError

ROOT = Path(cli.__file__).parents[1]
VALUE = "\0"
"""Stands where an f-string puts a value."""
NAMED = re.compile(r"\bludus ([a-z_]+)(?: ([a-z]+))?([^;`()\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*[\w]")
FOREIGN = {
    **dict.fromkeys(("--get-regexp", "--show-scope", "--ignore-submodules", "--untracked-files", "--porcelain"), "git"),
    **dict.fromkeys(("--no-optional-locks",), "git"),
    "--no-deps": "pip",
    "--head": "ray start",
    "--num-cpus": "ray start",
    "--forward-signals": "wandb agent",
    "--no": "the beginning of --no-...",
    "--host": "wandb login",
    "--multirun": "Hydra, answered with what to write here",
    "--headless": "translated",
    "--run-id": "translated",
    "--run_id": "translated",
}
"""Options that are not ours -> whose they are."""


def texts() -> Iterator[tuple[str, str]]:
    """(place, text) of every string of the package, f-strings as a whole, and every other text file in it."""
    for path in sorted(ROOT.rglob("*")):
        place = str(path.relative_to(ROOT))
        if path.suffix in (".yaml", ".md"):
            yield place, path.read_text()
        elif path.suffix == ".py":
            tree = ast.parse(path.read_text())
            inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    parts = [part.value if isinstance(part, ast.Constant) else VALUE for part in node.values]
                    yield f"{place}:{node.lineno}", "".join(map(str, parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                    yield f"{place}:{node.lineno}", node.value


@cache
def command(name: str) -> Any:
    """A command of the tree with its options."""
    module, _, attribute = commands.COMMANDS[name][0].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    tree: Any = get_command(cli.build(name, found))
    made = tree.commands[name]
    assert hasattr(made, "commands") == isinstance(found, Typer)
    return made


def options(command: Any) -> set[str]:
    """All options of a command and of those below it."""
    below = [options(one) for one in getattr(command, "commands", {}).values()]
    own = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return {"--help", "--debug", *own}.union(*below)


def is_setting(option: str) -> bool:
    """Whether `ludus train` takes a setting of that name as an option."""
    try:
        flags._setting(option, {})
    except ConfigError:
        return False
    return True


def problems(text: str) -> list[str]:
    """Commands and options in a text that do not exist."""
    found = []
    for first, second, rest in NAMED.findall(text):
        if first not in commands.COMMANDS:
            found.append(f"ludus {first}")
            continue
        named = command(first)
        if hasattr(named, "commands") and second and second not in named.commands:
            found.append(f"ludus {first} {second}")
        takes = any("OVERRIDES" in str(option.metavar) for option in named.params)
        given = [option for option in OPTION.findall(f" {second} {rest}") if option not in options(named)]
        found += [f"ludus {first} {option}" for option in given if not (takes and is_setting(option))]
    known = set[str]().union(*(options(command(name)) for name in commands.COMMANDS)) | {"--version"}
    named_options = [option for option in OPTION.findall(text) if option not in known and option not in FOREIGN]
    return found + [option for option in named_options if not is_setting(option)]


def test_every_text_names_what_exists() -> None:
    wrong = [f"{place}: {problem}" for place, text in texts() for problem in problems(text)]
    tools = [
        line for line in wrong if line.startswith("playbooks/") and "ludus" not in line
    ]  # options of git and others
    assert [line for line in wrong if line not in tools] == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("use ludus optimise instead", "ludus optimise"),
        ("see `ludus env lsit`", "ludus env lsit"),
        ("run ludus resume \0 --warm", "ludus resume --warm"),
        ("record it with --vidio auto", "--vidio"),
    ],
)
def test_what_does_not_exist_is_found(text: str, named: str) -> None:
    assert named in problems(text)


def test_the_look_reaches_the_messages() -> None:
    found = [text for _, text in texts()]
    assert any("ludus resume" in text and VALUE in text for text in found)
    assert sum("ludus train" in text for text in found) > 15


def test_the_words_of_other_tools_lead_to_commands_that_exist() -> None:
    assert not set(commands.FAMILIAR) & set(commands.COMMANDS)
    assert all(not problems(answer) for answer in commands.FAMILIAR.values())
