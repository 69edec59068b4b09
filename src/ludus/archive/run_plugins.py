"""The plugins of a run: recorded in its folder, and found again by every command that needs them.

A run folder may come from anybody. So a plugin that it names is run only if it is, to the bit, what this user named for
this folder or has agreed to since; the user's own config folder holds one file for each such plugin and run folder.
The copies in the run folder are for people: none is run unless the user names it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus import files
from ludus.archive import rebuild
from ludus.archive.store import RunFolder
from ludus.archive.user_folder import own_file, store
from ludus.errors import ConfigError, LudusError, of_system
from ludus.plugins import Plugin, is_file, load_environments, load_plugins, option, read_plugin
from ludus.terminal import agrees, can_answer, warn
from ludus.text import clean, near, safe_name

FOLDER = "plugins"
ALLOWED = "allowed_plugins"
_COPY = re.compile(rf"{FOLDER}/[A-Za-z0-9._-]+\.py")


@dataclass(frozen=True)
class Recorded:
    """What a run folder says about one of its plugins."""

    name: str
    sha256: str = ""
    copy: str = ""

    def copy_in(self, folder: Path) -> str:
        """The path of the copy in the run folder; empty if there is none with that content."""
        path = folder / self.copy
        try:
            known = bool(_COPY.fullmatch(self.copy)) and read_plugin(str(path)).sha256 == self.sha256
        except OSError:
            known = False
        return str(path) if known else ""


def load_for(folder: RunFolder, named: Sequence[str | Path] | None = None) -> list[Plugin]:
    """Run the plugins of a run: those the user names now, or else those it was made with, if they are allowed."""
    if named:
        return load_plugins(named)
    wanted = recorded(folder)
    found = [_allowed(folder.path, one, wanted) for one in wanted]
    for plugin in found:
        plugin.run()
    return found


def load_for_spec(spec: str, overrides: Sequence[str], named: Sequence[str | Path] | None = None) -> list[Plugin]:
    """Run the plugins that a user names, or those of a run whose config.yaml is the spec; import a class it names."""
    path = Path(spec)
    is_run = path.name == "config.yaml" and (path.parent / "meta.json").is_file()
    found = load_for(RunFolder(path.parent.resolve()), named) if is_run else load_plugins(named or [])
    return [*found, *load_environments(spec, overrides)]


def load_if_allowed(folder: RunFolder, named: Sequence[str | Path] | None = None) -> None:
    """The same for what can do without them: a plugin that is not allowed is only reported."""
    try:
        load_for(folder, named)
    except LudusError as error:
        if named:
            raise
        warn(f"done without its plugins: {error.line()}")


def record(folder: RunFolder, plugins: Sequence[Plugin]) -> list[dict[str, str]]:
    """Copy plugins into a run folder and return what meta.json says about them."""
    return [
        {"path": plugin.name, "sha256": plugin.sha256, "copy": _copy(folder.path, plugin.name, plugin.source)}
        if plugin.source is not None
        else {"module": plugin.name, "sha256": plugin.sha256}
        for plugin in plugins
    ]


def parts(meta: Mapping[str, object]) -> list[object]:
    """What meta.json says about plugins: at the start, and at each resume with other code."""
    resumed = meta.get("resumed")
    entries = [meta, *(resumed if isinstance(resumed, list) else [])]
    return [entry["plugins"] for entry in entries if isinstance(entry, Mapping) and "plugins" in entry] or [[]]


def described(*parts: object) -> str:
    """Plugins with the beginning of their sums: `cem.py 1f2e3d4c5b6a, highway_env`."""
    entries = [entry for part in parts for entry in _entries(part)]
    return ", ".join(dict.fromkeys(f"{Path(one.name).name} {one.sha256[:12]}".strip() for one in entries))


def options(folder: RunFolder) -> str:
    """The options that a command needs to find the plugins of a run: none, unless the user's folder is not writable."""
    wanted = recorded(folder)
    if all(_agreed(folder.path, plugin) for one in wanted if (plugin := _now(one)) is not None):
        return ""
    return "".join(f" {option(one.name)}" for one in wanted)


def allow(folder: Path, plugin: Plugin) -> str:
    """Remember that the user has named this plugin for this run folder; returns an error message, or ''."""
    told = {"run": str(folder.resolve()), "plugin": plugin.name, "sha256": plugin.sha256, "origin": plugin.origin}
    trouble = "" if _agreed(folder, plugin) else store(f"{ALLOWED}/{_digest(folder, plugin)}.json", told)
    return f"{near(folder)}: other commands will have to be given {option(plugin.name)}: {trouble}" if trouble else ""


def _allowed(folder: Path, one: Recorded, wanted: Sequence[Recorded]) -> Plugin:
    """A plugin that may be run; asks at a terminal, and refuses where nobody can answer."""
    plugin, name = _now(one), clean(near(Path(one.name)) if is_file(one.name) else one.name, 400)
    copy = [f"{option(path)}, the copy of that time, if you trust it"] if (path := one.copy_in(folder)) else []
    others = " ".join(option(other.name) for other in wanted if other is not one)
    if plugin is None:
        raise _refusal(folder, f"{name}, which is gone", ["--plugin FILE where it is now", *copy], others)
    changed = bool(plugin.sha256) and plugin.sha256 != one.sha256
    if _agreed(folder, plugin):
        if changed:
            warn(f"{name} has changed since {folder.name} was made")
        return plugin
    if can_answer():
        since = ", which has changed since" if changed else ""
        print(f"{clean(folder.name)} wants to run {name}{since}: {_shown(plugin)}")
        if agrees("Run this very code for this run, now and from now on? [y/N] "):
            allow(folder, plugin)
            return plugin
    if changed:
        raise _refusal(folder, f"{name}, which has changed since", [f"{option(one.name)} as it is now", *copy], others)
    problem = f"{name}, which you have not allowed for this run folder"
    raise _refusal(folder, problem, [f"{option(one.name)} if you trust it"], others)


def _refusal(folder: Path, problem: str, ways: Sequence[str], others: str) -> ConfigError:
    """The error that says what to type: what is typed replaces all plugins that the run has recorded."""
    remedy = f"add {', or '.join(ways)}" + (f"; and {others}" if others else "")
    return ConfigError(folder.name, f"was trained with {problem}", f"{remedy} (in Python: plugins=[...])")


def _now(one: Recorded) -> Plugin | None:
    """The plugin as it is now; None if it is gone."""
    try:
        return read_plugin(one.name)
    except (OSError, ValueError):  # also a path that no system takes
        return None


def _shown(plugin: Plugin) -> str:
    place = "" if plugin.source is not None else clean(plugin.origin or "not installed", 400)
    return " ".join(filter(None, (place, plugin.sha256 and f"sha256 {plugin.sha256}")))


def _agreed(folder: Path, plugin: Plugin) -> bool:
    return own_file(f"{ALLOWED}/{_digest(folder, plugin)}.json") is not None


def _digest(folder: Path, plugin: Plugin) -> str:
    """Of the folder, the plugin's name, its content, and the place of a module."""
    facts = [str(folder.resolve()), plugin.name, plugin.sha256, plugin.origin]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _copy(folder: Path, name: str, source: bytes) -> str:
    """Write a copy, unless there is one with that content; files of equal names are numbered."""
    stem, number = safe_name(Path(name).stem), 1
    try:
        (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
        while (path := folder / FOLDER / f"{stem}{f'_{number}' if number > 1 else ''}.py").exists():
            if path.is_file() and read_plugin(str(path)).source == source:
                return f"{FOLDER}/{path.name}"
            number += 1
        files.write_new(path, source)
    except OSError as error:
        raise of_system(error, str(folder / FOLDER)) from None
    return f"{FOLDER}/{path.name}"


def recorded(folder: RunFolder) -> list[Recorded]:
    """The plugins of the run's last start."""
    return list(_entries(parts(rebuild.meta(folder.path))[-1]))


def _entries(part: object) -> Iterator[Recorded]:
    """The plugins in a part of meta.json, which may contain anything."""
    for entry in part if isinstance(part, list) else []:
        facts = entry if isinstance(entry, dict) else {}
        texts = {key: value for key, value in facts.items() if isinstance(value, str)}
        if is_file(texts.get("path", "")):
            yield Recorded(texts["path"], texts.get("sha256", ""), texts.get("copy", ""))
        elif texts.get("module") and not is_file(texts["module"]):
            yield Recorded(texts["module"], texts.get("sha256", ""))
