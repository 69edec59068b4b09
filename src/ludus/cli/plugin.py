"""User code, loaded only from files that `--plugin` names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from ludus.errors import ConfigError, LudusError

Plugin = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Python file that registers parts.")]


def load_plugins(paths: list[Path] | None) -> None:
    """Run every file that `--plugin` names."""
    for path in paths or []:
        load_plugin(path)


def load_plugin(path: Path) -> None:
    """Run a Python file that registers algorithms, memory cores, wrappers or other parts."""
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"--plugin {path}", "not a Python file", "name an existing .py file")
    name = f"ludus_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno}", f"not Python: {error.msg}", "fix the plugin") from None
    except LudusError:
        raise
    except ImportError as error:
        problem = f"cannot import what it needs: {error}"
        raise ConfigError(f"--plugin {path}", problem, "install that, or fix the plugin") from error
    except (Exception, SystemExit) as error:  # its code may raise what it likes
        problem = f"raised {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        raise ConfigError(f"--plugin {path}", problem, "fix the plugin; --debug shows the traceback") from error
