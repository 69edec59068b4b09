"""Which programs a run may start.

`logging.alert_command` is the one setting that starts a program, and configs and run folders come from anybody. So it
is obeyed from the command line and from the user's own settings; from any other file only after the user has agreed to
that very command in that very working directory, for `./alert.sh` is another program elsewhere. What was agreed to lies
in the user's own config folder, by the hash of both.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import files
from ludus.config.read import plain, read_file
from ludus.errors import ConfigError, DataError
from ludus.runs.store import read_json
from ludus.secrets import masked
from ludus.text import clean

if TYPE_CHECKING:
    from ludus.config.compose import Resolved

WHERE = "logging.alert_command"
SETTINGS, ALLOWED = "settings.yaml", "allowed_commands.json"
Command = tuple[str, ...]


def alert_command(resolved: Resolved) -> tuple[Command, str]:
    """The command that may be run, or none and one line that says which was not, and how to allow it."""
    wanted = resolved.config.logging.alert_command
    if not wanted:
        return _settings(), ""
    if _typed(resolved):
        return wanted, _remember(wanted)
    if wanted == _settings() or _digest(wanted) in _allowed():
        return wanted, ""
    given = shlex.quote(f"{WHERE}={json.dumps(list(wanted), ensure_ascii=False)}")
    how = f"to allow it, start on a terminal without -q and say yes, or add {given}"
    return (), f"{WHERE} is not run: {_shown(wanted)} comes from {_origin(resolved)}; {clean(how, 600)}"


def ask(resolved: Resolved) -> None:
    """On a terminal: whether a command that came with a file may be run, this time and from now on."""
    wanted = resolved.config.logging.alert_command
    if not wanted or alert_command(resolved)[0] or not can_answer():
        return
    words = shlex.join(wanted)  # all of them: nobody agrees to what he cannot see
    print(f"{_origin(resolved)}: wants to run this program at every alert: {clean(words, 10 * len(words))}")
    try:
        answer = input("Allow this very command in this folder, now and from now on? [y/N] ").strip().lower()
    except EOFError:
        return
    if answer in ("y", "yes"):
        trouble = _remember(wanted)
        if trouble:
            raise ConfigError(WHERE, trouble, "give the command on the command line")


def can_answer() -> bool:
    """Whether a person sits there."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _typed(resolved: Resolved) -> bool:
    """Whether the command is an override of this very command line."""
    return resolved.origin.get(WHERE) in {masked(text) for text in resolved.overrides}


def _origin(resolved: Resolved) -> str:
    return clean(resolved.origin.get(WHERE) or resolved.spec, 200)


def _shown(command: Command) -> str:
    return clean(shlex.join(command), 400)


def _digest(command: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([str(Path.cwd()), *command]).encode()).hexdigest()


def _home() -> Path | None:
    """`$XDG_CONFIG_HOME/ludus`; none for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ludus"
    except RuntimeError:
        return None


def _own(name: str) -> Path | None:
    """A file of that folder if it is there; one that somebody else could have written is refused."""
    path = None if (home := _home()) is None else home / name
    try:
        facts = None if path is None else path.stat()
    except OSError:
        facts = None
    if facts is None:
        return None
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise ConfigError(str(path), "may be written by others", f"chmod go-w {path}, or remove it")
    return path


def _settings() -> Command:
    """`alert_command` of the user's settings.yaml."""
    path = _own(SETTINGS)
    if path is None:
        return ()
    data: dict[str, Any] = plain(read_file(path))
    command = data.pop("alert_command", [])
    if data:
        raise ConfigError(str(path), f"unknown key '{next(iter(data))}'", "alert_command is the only one")
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise ConfigError(f"{path}: alert_command", "is not a list of texts", "write [program, argument, ...]")
    return tuple(command)


def _allowed() -> dict[str, Any]:
    path = _own(ALLOWED)
    try:
        return {} if path is None else read_json(path)
    except DataError:  # cut by a crash of the machine: the user is asked again
        return {}


def _remember(command: Command) -> str:
    """Agree to a command for good; the reason if it cannot be written down."""
    home, known = _home(), _allowed()
    if _digest(command) in known:
        return ""
    try:
        if home is None:
            raise OSError(0, "this user has no home directory")
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_json(home / ALLOWED, {**known, _digest(command): list(command)})
    except OSError as error:
        return f"{WHERE}: a resume will have to be given it again: {error.strerror}"
    return ""
