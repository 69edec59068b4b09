"""What a user is told when a command fails: one line that says what is wrong and what to do."""

from __future__ import annotations

import sys
from pathlib import Path

from ludus.cli import process
from ludus.cli.commands import COMMANDS, FAMILIAR
from ludus.errors import ConfigError, LudusError, ResourceError, of_system
from ludus.terminal import mute
from ludus.text import did_you_mean


def misuse(message: str, command: str | None) -> str:
    """What is wrong with a command line and what to write instead."""
    problem = " ".join(message.split()).rstrip(".")
    if command is not None and command not in COMMANDS:
        remedy = f"write {FAMILIAR[command]}" if command in FAMILIAR else did_you_mean(command, COMMANDS)
        return ConfigError("", f"No such command '{command[:60]}'", remedy).line()
    if problem == "Missing argument 'run'":
        return f"{problem}; write ludus {command} @last"
    says_more = problem.endswith(("?", ")"))  # it suggests something itself
    return problem if says_more else f"{problem}; see ludus {f'{command} ' if command else ''}--help"


def failure_of(error: BaseException) -> LudusError | None:
    """The error to print on one line; None for a bug, which keeps its traceback."""
    if isinstance(error, LudusError):
        return error
    if isinstance(error, process.OutputLost):
        mute(sys.stdout)
        return ResourceError("standard output", f"cannot be written: {error.strerror}", "send it where there is room")
    if isinstance(error, OSError):
        try:
            Path.cwd()
        except FileNotFoundError:
            return ConfigError("working directory", "it was removed", "change to one that exists")
        return of_system(error)
    if isinstance(error, SystemExit):  # our commands return their code, so this comes from user code
        return ConfigError("a plugin", f"ended the program with sys.exit({error.code!r})", "remove that call")
    torch_says = ("can't allocate memory", "out of memory")
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in torch_says):
        return ResourceError("memory", " ".join(str(error).split())[:200] or "there is none left", "ask for less")
    return None
