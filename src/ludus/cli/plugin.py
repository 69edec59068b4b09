"""User code, loaded only from files, modules and classes that the command line names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ludus.errors import ConfigError, LudusError
from ludus.text import near

Plugin = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        "--import",
        metavar="FILE|MODULE",
        help="Python file or installed module that registers parts or environments; module:Class for one environment.",
    ),
]


def load_plugins(paths: Sequence[Path] | None) -> None:
    """Run every file and import every module that `--plugin` or `--import` names."""
    for path in paths or []:
        load_plugin(path) if path.suffix == ".py" or len(path.parts) > 1 else load_module(str(path))


def load_plugin(path: Path) -> None:
    """Run a Python file that registers algorithms, memory cores, wrappers or other parts."""
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"--plugin {path}", "not a Python file", "name an existing .py file")
    name = f"ludus_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _run(f"--plugin {path}", lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]


def load_module(name: str) -> None:
    """Import a module that registers environments; `module:Class` registers the class under that name."""
    module, _, cls = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    _run(f"--import {name}", lambda: importlib.import_module(module))
    if not cls:
        return
    from ludus.envs.suites import register

    if not callable(getattr(sys.modules[module], cls, None)):
        raise ConfigError(f"--import {name}", f"{module} has no class '{cls}'", "check the name")
    register(name, name)


def import_environment(spec: str, overrides: Sequence[str]) -> None:
    """Import the class of `module:Class:algorithm` or `environment.id=module:Class`, which the user typed."""
    from ludus.config.aliases import canonical

    pairs = [override.partition("=") for override in overrides]
    ids = [
        value.strip("'\"") for key, _, value in pairs if canonical(tuple(key.split(".")))[0] == ("environment", "id")
    ]
    for name in (spec.rpartition(":")[0], *ids):
        module, _, cls = name.partition(":")
        if cls.isidentifier() and all(part.isidentifier() for part in module.split(".")):
            load_module(name)


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
