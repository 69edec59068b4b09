"""Decides which programs a run may start.

`logging.alert_command` is the only setting that starts a program, and configs and run folders may come from anybody. So
it is run if it comes from the command line or the user's own settings; from any other file only after the user has
agreed to this command in this working directory, since `./alert.sh` is another program elsewhere, and with this
content. The user's config folder keeps a hash of all that for every command that was agreed to.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus import files
from ludus.archive.store import read_json
from ludus.archive.user_folder import own_file, store
from ludus.config.compose import Resolved
from ludus.config.read import plain, read_file
from ludus.errors import ConfigError, DataError
from ludus.secrets import masked
from ludus.terminal import agrees, can_answer
from ludus.text import clean

WHERE = "logging.alert_command"
SETTINGS, ALLOWED = "settings.yaml", "allowed_commands.json"
Command = tuple[str, ...]


def alert_command(resolved: Resolved) -> tuple[Command, str]:
    """The command that may be run; or an empty one, and a line that says how to allow the command."""
    wanted = resolved.config.logging.alert_command
    if not wanted:
        return _settings(), ""
    typed = resolved.origin.get(WHERE) in {masked(text) for text in resolved.overrides}
    if typed:
        return wanted, _remember(wanted)
    if wanted == _settings() or _digest(wanted) in _allowed():
        return wanted, ""
    given = shlex.quote(f"{WHERE}={json.dumps(list(wanted), ensure_ascii=False)}")
    how = f"to allow it, start on a terminal without -q and say yes, or add {given}"
    return (), f"{WHERE} is not run: {clean(shlex.join(wanted), 400)} comes from {_origin(resolved)}; {clean(how, 600)}"


def ask(resolved: Resolved) -> None:
    """On a terminal, ask whether a command from a file may be run, now and later."""
    wanted = resolved.config.logging.alert_command
    if not wanted or alert_command(resolved)[0] or not can_answer():
        return
    words = shlex.join(wanted)  # all of it: the user must see what he agrees to
    print(f"{_origin(resolved)}: wants to run this program at every alert: {clean(words, 10 * len(words))}")
    if agrees("Allow this very command in this folder, now and from now on? [y/N] ") and (trouble := _remember(wanted)):
        raise ConfigError(WHERE, trouble, "give the command on the command line")


def _origin(resolved: Resolved) -> str:
    return clean(resolved.origin.get(WHERE) or resolved.spec, 200)


def _digest(command: Sequence[str]) -> str:
    """Of the working directory, the words, and the content of files in that directory which they name."""
    facts = [str(Path.cwd()), *command, [_content(word) for word in command]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _content(word: str) -> str:
    path = Path(word).absolute()
    if not path.is_relative_to(Path.cwd()):
        return ""
    try:
        return files.sha256(path)
    except (OSError, ValueError):  # an argument that names no file
        return ""


def _settings() -> Command:
    """`alert_command` in the user's settings.yaml."""
    path = own_file(SETTINGS)
    if path is None:
        return ()
    data: dict[str, Any] = plain(read_file(path))
    command = data.pop("alert_command", [])
    if data:
        raise ConfigError(str(path), f"unknown key '{next(iter(data))}'", "alert_command is the only one")
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise ConfigError(f"{path}: alert_command", "is not a list of texts", "write [program, argument, ...]")
    return tuple(command)


def _allowed() -> dict[str, object]:
    path = own_file(ALLOWED)
    try:
        return {} if path is None else read_json(path)
    except DataError:  # damaged: the user is asked again
        return {}


def _remember(command: Command) -> str:
    """Store a command that the user agreed to; returns an error message, or ''."""
    known = _allowed()
    trouble = "" if _digest(command) in known else store(ALLOWED, {**known, _digest(command): list(command)})
    return f"{WHERE}: a resume will have to be given it again: {trouble}" if trouble else ""
