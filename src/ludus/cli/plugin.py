"""User code, loaded only from files that `--plugin` names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from ludus.errors import ConfigError, LudusError

Plugin = Annotated[list[Path] | None, Option(metavar="FILE", help="Python file that registers parts.")]


def load_plugins(paths: list[Path] | None) -> None:
    """Run Python files that register algorithms, memory cores, wrappers or other parts."""
    for path in paths or []:
        where = f"--plugin {path}"
        if path.suffix != ".py" or not path.is_file():
            raise ConfigError(where, "not a Python file", "name an existing .py file")
        name = f"ludus_plugin_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path.absolute())
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except LudusError:
            raise
        except SyntaxError as error:
            raise ConfigError(f"{path}:{error.lineno}", f"not Python: {error.msg}", "fix the plugin") from None
        except ImportError as error:
            problem = f"cannot import what it needs: {error}"
            raise ConfigError(where, problem, "install that, or fix the plugin") from error
        except (Exception, SystemExit) as error:  # its code may raise what it likes
            problem = f"raised {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            raise ConfigError(where, problem, "fix the plugin; --debug shows the traceback") from error
