"""User code: Python files and modules that register parts, run only because a user named them."""

from __future__ import annotations

import errno
import hashlib
import importlib
import importlib.util
import itertools
import os
import shlex
import site
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from pathlib import Path

from ludus import files
from ludus.errors import ConfigError, LudusError
from ludus.text import near

MODULE = "ludus_plugin_"
"""How the modules of plugin files are named."""
CODE = tuple(all_suffixes())
_LIMIT, _MOST = 1 << 24, 20_000


@dataclass(frozen=True)
class Plugin:
    """A Python file with the content that is run, or a module by its name; both as they were when they were read."""

    name: str
    """Absolute path of the file, or name of the module; `module:Class` for one environment."""
    sha256: str = ""
    """Of the content of the file, or of the code that the module's package has; empty for an installed module."""
    origin: str = ""
    """Where the module, or the package it is in, would be imported from; empty for a file."""
    source: bytes | None = field(default=None, repr=False)
    """Content of the file."""

    def run(self) -> None:
        """Run the file, unless this process has run that content of it already; or import the module."""
        _import(self.name) if self.source is None else _execute(Path(self.name), self.source)


def load_plugins(names: Sequence[str | Path]) -> list[Plugin]:
    """Run every file and import every module that a user named."""
    plugins = [_named(name) for name in names]
    for plugin in plugins:
        plugin.run()
    return plugins


def load_environments(spec: str, overrides: Sequence[str]) -> list[Plugin]:
    """Import the class of `module:Class:algorithm` or `environment.id=module:Class`, which a user typed."""
    return load_plugins(environment_classes(spec, overrides))


def environment_classes(spec: str, overrides: Sequence[str]) -> list[str]:
    """The classes that a spec and its overrides name: `module:Class`."""
    from ludus.config.aliases import canonical

    pairs = [override.partition("=") for override in overrides]
    ids = [
        value.strip("'\"") for key, _, value in pairs if canonical(tuple(key.split(".")))[0] == ("environment", "id")
    ]
    parts = [(name, *name.partition(":")) for name in (spec.rpartition(":")[0], *ids)]
    return [name for name, module, _, cls in parts if all(map(str.isidentifier, [cls, *module.split(".")]))]


def read_plugin(name: str) -> Plugin:
    """A plugin as it is now, without running it; OSError for a file that cannot be read."""
    if is_file(name):
        source = files.read(Path(name), _LIMIT)
        return Plugin(name, hashlib.sha256(source).hexdigest(), source=source)
    spec = _found(name) or PathFinder.find_spec(_package(name), _here())
    if spec is None:
        return Plugin(name)
    places = spec.submodule_search_locations or ([str(spec.origin)] if spec.has_location else [])
    return Plugin(name, _sum(places), str(spec.origin or list(places)))


def is_file(name: str) -> bool:
    """Whether a plugin is a file rather than a module."""
    return name.endswith(".py") or len(Path(name).parts) > 1


def option(name: str) -> str:
    """The option that names a plugin."""
    return f"--plugin {shlex.quote(near(Path(name)))}" if is_file(name) else f"--import {shlex.quote(name)}"


def _named(name: str | Path) -> Plugin:
    path = Path(name).absolute()
    if is_file(str(name)) and (path.suffix != ".py" or not path.is_file()):
        raise ConfigError(f"--plugin {name}", "not a Python file", "name an existing .py file")
    try:
        return read_plugin(str(path if is_file(str(name)) else name))
    except OSError as error:
        raise ConfigError(f"--plugin {name}", f"cannot be read: {error.strerror}", "see that you may read it") from None


def _execute(path: Path, source: bytes) -> None:
    """Run the content of a file as a module; what it says on disk by now does not matter."""
    name = f"{MODULE}{path.stem}"
    known = sys.modules.get(name)
    if known is not None and (known.__file__, getattr(known, "__source__", None)) == (str(path), source):
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["__source__"] = source
    sys.modules[name] = module
    try:
        _run(option(str(path)), lambda: exec(compile(source, path, "exec", dont_inherit=True), vars(module)))
    except BaseException:
        sys.modules.pop(name, None)
        raise


def _import(name: str) -> None:
    """Import a module that registers environments; `module:Class` registers the class under that name."""
    module, _, cls = name.partition(":")
    if _found(name) is None:  # for an installed module, the working directory may hold what nobody has named
        sys.path += [path for path in _here() if path not in sys.path]
    _run(f"--import {name}", lambda: importlib.import_module(module))
    if not cls:
        return
    from ludus.envs.suites import register

    if not callable(getattr(sys.modules[module], cls, None)):
        raise ConfigError(f"--import {name}", f"{module} has no class '{cls}'", "check the name")
    register(name, name)


def _package(name: str) -> str:
    """The top-level package of `package.module:Class`."""
    return name.partition(":")[0].partition(".")[0]


def _found(name: str) -> ModuleSpec | None:
    """What the interpreter finds of a module's package by itself."""
    try:
        return importlib.util.find_spec(_package(name))
    except (ImportError, ValueError):
        return None


def _sum(places: Sequence[str]) -> str:
    """The sum of all code in files and folders; empty for installed ones, which the user has chosen already."""
    installed = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
    if all(any(Path(place).is_relative_to(folder) for folder in installed) for place in places):
        return ""
    digest = hashlib.sha256()
    for place in map(Path, places):
        paths = list(itertools.islice(itertools.chain([place], place.rglob("*")), _MOST + 1))
        if len(paths) > _MOST:
            raise OSError(errno.EFBIG, f"{place} has more than {_MOST:,} files")
        for path in sorted(paths):
            if path.suffix in CODE and path.parent.name != "__pycache__" and path.is_file():
                digest.update(os.fsencode(path.relative_to(place.parent)) + b"\0" + files.sha256(path).encode())
    return digest.hexdigest()


def _here() -> list[str]:
    """The working directory, where modules are looked for after those that are installed."""
    try:
        return [str(Path.cwd())]
    except FileNotFoundError:
        return []


def _run(where: str, code: Callable[[], object]) -> None:
    """Run user code; what it raises is one line."""
    try:
        code()
    except SyntaxError as error:
        raise ConfigError(
            f"{near(Path(str(error.filename)))}:{error.lineno}", f"not Python: {error.msg}", "fix the plugin"
        ) from None
    except LudusError:
        raise
    except ModuleNotFoundError as error:
        raise ConfigError(where, f"there is no module '{error.name}'", _install(str(error.name))) from error
    except ImportError as error:
        raise ConfigError(where, f"cannot import what it needs: {error}", "install that, or fix the plugin") from error
    except (Exception, SystemExit) as error:  # its code may raise what it likes
        problem = f"raised {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        raise ConfigError(where, problem, "fix the plugin; --debug shows the traceback") from error


def _install(module: str) -> str:
    from ludus.envs.packages import PACKAGES

    return f"pip install {PACKAGES.get(module, (module.replace('_', '-'),))[0]}, or go where its file is"
