"""The `ludus` command: one file per subcommand, which is imported only when that subcommand runs."""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn, TextIO, cast

from typer import Abort, Exit, Option, Typer, TyperException
from typer.main import get_command

from ludus import __version__
from ludus.cli import flags, process
from ludus.cli.commands import COMMANDS, WELCOME
from ludus.cli.failure import failure_of, misuse
from ludus.cli.flags import selected_command
from ludus.errors import LudusError

Command = Typer | Callable[..., int | None]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; a mistake of the user is one line on stderr."""
    args = list(sys.argv[1:] if argv is None else argv)
    process.open_standard_streams()
    if not args:
        args = [WELCOME] if sys.stdout.isatty() else ["--help"]
    before = process.waited_for()
    with contextlib.redirect_stdout(cast("TextIO", process.Output(sys.stdout))):
        code = _code(args)
    process.leave_behind(process.waited_for() - before, code)
    gc.freeze()  # the interpreter's last collection would walk over everything torch has made, for a third of a second
    sys.exit(code)


def _code(args: list[str]) -> int:
    """Run a command and return its exit code; print the error if it failed."""
    try:
        code = run(args)
        if sys.stdout is not None:  # an environment may have replaced it
            sys.stdout.flush()
    except TyperException as error:
        return process.fail(misuse(error.format_message(), selected_command(args)), 2)
    except (KeyboardInterrupt, Abort):
        return 130
    except (LudusError, OSError, MemoryError, RuntimeError, SystemExit) as error:
        failure = failure_of(error)
        if failure is None:
            raise
        return process.fail(failure.line(), failure.exit_code, error if "--debug" in args else None)
    return code


def run(args: list[str]) -> int:
    """Build the application around the selected command, and run it."""
    selected = selected_command(args)
    command: Command | None = None
    if args == [WELCOME]:
        from ludus.cli.welcome import welcome

        welcome()
        return 0
    if selected in COMMANDS:
        module, _, name = COMMANDS[selected][0].partition(":")
        command = getattr(importlib.import_module(module), name)
    if not (inspect.isfunction(command) and "debug" in inspect.signature(command).parameters):
        args = [arg for arg in args if arg != "--debug"]
    if isinstance(command, Typer) and args == [selected]:
        args = [*args, "--help"]
    app = get_command(build(selected, command))
    result = app(flags.settings_as_overrides(args, app), prog_name="ludus", standalone_mode=False)
    return result if isinstance(result, int) else 0


def build(selected: str | None, command: Command | None) -> Typer:
    """The command tree; commands that are not selected are only lines of the help."""
    app = Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback(help=_root.__doc__)(_root)
    for name, (_, line) in COMMANDS.items():
        if name != selected:
            app.command(name, help=line)(lambda: None)
        elif isinstance(command, Typer):
            app.add_typer(command, name=name, help=line)
        elif command is not None:
            app.command(name, context_settings=getattr(command, "context_settings", None))(command)
    return app


def _version(asked: bool) -> None:
    if asked:
        print(f"ludus {__version__}")
        raise Exit


def _root(
    version: Annotated[bool, Option("--version", help="Print the version.", is_eager=True, callback=_version)] = False,
    debug: Annotated[bool, Option("--debug", help="Full tracebacks; works after any command too.")] = False,
) -> None:
    """Ludus: one reinforcement-learning lab."""
