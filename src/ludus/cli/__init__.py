"""The `ludus` command: one file per subcommand, which is imported only when that subcommand runs."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO, cast

from typer import Abort, Exit, Option, Typer, TyperException
from typer.main import get_command

from ludus import __version__
from ludus.cli import flags, process
from ludus.errors import ConfigError, LudusError, ResourceError, of_system
from ludus.terminal import mute
from ludus.text import did_you_mean

Command = Typer | Callable[..., int | None]
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("ludus.cli.train:train", "Train an experiment."),
    "sweep": ("ludus.cli.sweep:sweep", "Search over settings; every trial is an ordinary run."),
    "tune": ("ludus.cli.tune:tune", "Search for better settings, and try them on fresh seeds."),
    "resume": ("ludus.cli.resume:resume", "Continue a run, bit for bit."),
    "verify": ("ludus.cli.verify:verify", "Retrain a run and check that every number matches."),
    "play": ("ludus.cli.play:play", "Watch a trained policy, or record it."),
    "evaluate": ("ludus.cli.evaluate:evaluate", "Measure a checkpoint over many episodes."),
    "record": ("ludus.cli.record:record", "Record demonstrations as a data set."),
    "data": ("ludus.cli.data:app", "Look into data sets."),
    "imagine": ("ludus.cli.imagine:imagine", "See what a world model predicts, beside what happened."),
    "list": ("ludus.cli.listing:list_runs", "List runs; filter and sort by anything."),
    "show": ("ludus.cli.show:show", "Show one run in full."),
    "compare": ("ludus.cli.compare:compare", "Compare runs over their seeds, with plots."),
    "export": (
        "ludus.cli.export:export",
        "Export runs as csv, json, markdown or LaTeX, a policy as ONNX.",
    ),
    "publish": ("ludus.cli.publish:publish", "Publish a run on the Hugging Face Hub."),
    "pull": ("ludus.cli.pull:pull", "Bring a published run here, safely."),
    "report": ("ludus.cli.report:report", "Write the report of a run."),
    "tag": ("ludus.cli.tag:tag", "Label runs."),
    "cleanup": ("ludus.cli.cleanup:cleanup", "Remove checkpoints that are no longer needed; shows the plan first."),
    "index": ("ludus.cli.index:app", "The index of runs."),
    "model": ("ludus.cli.model:model", "Show the network of an experiment."),
    "env": ("ludus.cli.env:app", "List, show and check environments."),
    "smoke": ("ludus.cli.smoke:smoke", "Run every shipped config briefly."),
    "bench": ("ludus.cli.bench:app", "Measure speed on this machine."),
    "doctor": ("ludus.cli.doctor:doctor", "What is installed here, and what is wrong."),
    "mcp": ("ludus.cli.mcp:mcp", "Serve runs to a coding agent."),
    "migrate": ("ludus.cli.migrate:migrate", "Check the version of a config file or run folder."),
    "inspect": ("ludus.cli.inspector:inspect", "Step through episodes and watch runs in the browser."),
    "wandb": ("ludus.cli.wandb:app", "The dashboard of a W&B project."),
    "task": ("ludus.cli.task:app", "Playbooks for recurring tasks."),
    "config": ("ludus.cli.config:app", "Show, check and document configurations."),
}
"""Name -> (function or app, line in `ludus --help`). A new command is one file and one line here."""
WELCOME = "-welcome"
"""Stands for a command line without words, at a terminal."""
FAMILIAR = {
    "enjoy": "ludus play @last",
    "watch": "ludus play @last",
    "run": "ludus train CartPole-v1:ppo",
    "learn": "ludus train CartPole-v1:ppo",
    "eval": "ludus evaluate @last",
    "test": "ludus evaluate @last",
    "validate": "ludus config validate",
    "envs": "ludus env list",
    "runs": "ludus list",
}
"""Commands of other tools -> what to write here."""


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
    sys.exit(code)


def _code(args: list[str]) -> int:
    """Run a command and return its exit code; print the error if it failed."""
    try:
        code = run(args)
        if sys.stdout is not None:  # an environment may have replaced it
            sys.stdout.flush()
    except TyperException as error:
        return process.fail(_misuse(error.format_message(), _selected(args)), 2)
    except (KeyboardInterrupt, Abort):
        return 130
    except (LudusError, OSError, MemoryError, RuntimeError, SystemExit) as error:
        failure = _failure(error)
        if failure is None:
            raise
        return process.fail(failure.line(), failure.exit_code, error if "--debug" in args else None)
    return code


def _misuse(message: str, command: str | None) -> str:
    """What is wrong with a command line and what to write instead."""
    problem = " ".join(message.split()).rstrip(".")
    if command is not None and command not in COMMANDS:
        remedy = f"write {FAMILIAR[command]}" if command in FAMILIAR else did_you_mean(command, COMMANDS)
        return ConfigError("", f"No such command '{command[:60]}'", remedy).line()
    if problem == "Missing argument 'run'":
        return f"{problem}; write ludus {command} @last"
    says_more = problem.endswith(("?", ")"))  # it suggests something itself
    return problem if says_more else f"{problem}; see ludus {f'{command} ' if command else ''}--help"


def _failure(error: BaseException) -> LudusError | None:
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


def run(args: list[str]) -> int:
    """Build the application around the selected command, and run it."""
    selected = _selected(args)
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
    result = app(settings_as_overrides(args, app), prog_name="ludus", standalone_mode=False)
    return result if isinstance(result, int) else 0


def settings_as_overrides(args: list[str], app: Any) -> list[str]:
    """`--num-envs 4` as `num_envs=4`, for a command that takes overrides."""
    done = 0
    while (word := _selected(args[done:])) is not None and word in getattr(app, "commands", {}):
        done, app = args.index(word, done) + 1, app.commands[word]
    return [*args[:done], *flags.as_overrides(args[done:], app)]


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


def _selected(args: Sequence[str]) -> str | None:
    return next((arg for arg in args if not arg.startswith("-")), None)
