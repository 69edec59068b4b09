"""What of a sweep names code or programs: a sweep file or folder may come from anybody, so the user has to agree to it.

Plugins, classes to import and `logging.alert_command` are obeyed if they were typed. Those that a sweep's folder
remembers are obeyed if this user started the sweep in that folder, with code that is still the same to the bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from ludus.archive.run_plugins import load_for_spec
from ludus.archive.user_folder import own_file, store
from ludus.config.aliases import canonical
from ludus.errors import ConfigError
from ludus.plugins import environment_classes, read_plugin
from ludus.sweeps.spec import SweepSpec
from ludus.sweeps.store import SPEC, SweepFolder
from ludus.terminal import agrees, can_answer, warn
from ludus.text import clean

ALLOWED = "allowed_sweeps"
PROGRAM = ("logging", "alert_command")


def code_of(spec: SweepSpec, overrides: Iterable[str]) -> list[str]:
    """Classes to import and programs that the base, some overrides and the searched values name."""
    searched = [f"{one.key}={value}" for one in spec.parameters for value in one.values or ("",)]
    words = [*overrides, *searched]
    return [*environment_classes(spec.base, words), *(word for word in words if _setting(word) == PROGRAM)]


def _setting(word: str) -> tuple[str, ...]:
    """The path of the setting that an override changes."""
    return canonical(tuple(word.partition("=")[0].lstrip("+~").split(".")))[0]


def refuse_code(spec: SweepSpec, base: str | None, typed: Sequence[str], where: str) -> None:
    """A sweep file starts nothing: what names code has to be typed."""
    written = [word for word in spec.overrides if word not in typed]
    known = environment_classes(base or "", typed)
    if found := [name for name in code_of(spec, written) if name not in known]:
        raise ConfigError(where, f"names code to run: {clean(found[0], 120)}", "type it yourself, if you trust it")


def remember(folder: SweepFolder, spec: SweepSpec) -> None:
    """The user has started this sweep: it may run what it names from now on."""
    if _named(spec) and (trouble := store(f"{ALLOWED}/{_digest(folder, spec)}.json", {"sweep": str(folder.path)})):
        warn(f"{folder.name}: going on with it will have to be allowed again: {trouble}")


def load_code(folder: SweepFolder, plugins: Sequence[Path] = ()) -> None:
    """Load what a sweep names, if the user has started it, names its plugins again, or agrees at the terminal."""
    spec = folder.spec()
    named = _named(spec)
    typed = set(named) <= {str(path) for path in plugins}
    if named and not typed and own_file(f"{ALLOWED}/{_digest(folder, spec)}.json") is None:
        shown = ", ".join(clean(name, 120) for name in named)
        if not can_answer():
            remedy = f"go on at a terminal and say yes, if you trust {folder.path / SPEC}"
            raise ConfigError(folder.name, f"names code that you have not allowed: {shown}", remedy)
        print(f"{folder.path / SPEC} wants to run: {shown}")
        if not agrees("Run this very code for this sweep, now and from now on? [y/N] "):
            raise ConfigError(folder.name, "needs code that you do not allow", "start a sweep of your own")
    if named:
        remember(folder, spec)
    load_for_spec(spec.base, list(spec.overrides), [Path(name) for name in spec.plugins])


def _named(spec: SweepSpec) -> list[str]:
    return [*spec.plugins, *code_of(spec, spec.overrides)]


def _digest(folder: SweepFolder, spec: SweepSpec) -> str:
    """Of the folder, of what is named, and of the content of plugins and modules."""
    facts: list[object] = [str(folder.path.resolve())]
    for name in _named(spec):
        try:
            facts.append([name, "" if "=" in name else read_plugin(name).sha256])
        except (OSError, ValueError):  # gone: loading it says so
            facts.append([name, "gone"])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
