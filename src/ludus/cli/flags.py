"""Settings as options: `--num-envs 4`, `--track`, `--no-norm-adv` and `--algorithm.lr 1e-3` are overrides.

One rule over the alias table and the schema: an option that the command does not have is the setting of that name. It
takes a value, unless the setting is true or false: then the bare option means true and `--no-...` means false.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ludus.config.aliases import ABSENT, ALIASES, BARE, SWITCHES, canonical
from ludus.errors import ConfigError
from ludus.text import did_you_mean

TRUTHS = ("true", "false", "0", "1", "yes", "no", "on", "off")
HYDRA = ("--multirun", "-m")


def selected_command(args: Sequence[str]) -> str | None:
    """The first word that is no option."""
    return next((arg for arg in args if not arg.startswith("-")), None)


def settings_as_overrides(args: list[str], app: Any) -> list[str]:
    """`--num-envs 4` as `num_envs=4`, for a command that takes overrides."""
    done = 0
    while (word := selected_command(args[done:])) is not None and word in getattr(app, "commands", {}):
        done, app = args.index(word, done) + 1, app.commands[word]
    return [*args[:done], *as_overrides(args[done:], app)]


def as_overrides(args: Sequence[str], command: Any) -> list[str]:
    """The arguments of a command with every setting written as an override, if it takes overrides."""
    known = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
    if os.environ.get("WANDB_SWEEP_ID"):
        from ludus.sweeps.agent import without_repeats

        args = without_repeats(args)
    args = [word for arg in args for word in _familiar(arg, known)]
    takes = any("OVERRIDES" in str(parameter.metavar) for parameter in command.params)
    return list(_translated(args, known)) if takes else args


def _familiar(word: str, known: dict[str, Any]) -> list[str]:
    """`--run-id RUN` and `--headless` of other tools in the words of a command that has neither."""
    option, _, value = word.partition("=")
    if option in ("--run-id", "--run_id") and option not in known and "run" in known:
        return [value] if value else []
    return ["--render", "none"] if word == "--headless" and "--render" in known else [word]


def _translated(args: Sequence[str], known: dict[str, Any]) -> Iterator[str]:
    position = 0
    while position < len(args):
        word = args[position]
        position += 1
        name, equals, value = word.partition("=")
        if word == "--":
            yield from args[position - 1 :]
            return
        if word in HYDRA:
            raise ConfigError(word, "one command trains one config", "write --seed 1,2,3 for seeds, or ludus sweep")
        if not word.startswith("--") or name in known or name in ("--help", "--debug"):
            yield word
            if word.startswith("-") and word in known and not known[word].is_flag and position < len(args):
                yield args[position]
                position += 1
            continue
        key, negated = _setting(name, known)
        if negated:
            yield f"{key}=false"
        elif equals:
            yield f"{key}={_quoted(value)}"
        elif _is_switch(key) and (position == len(args) or args[position].lower() not in TRUTHS):
            yield f"{key}=true"
        elif position == len(args):
            raise ConfigError(name, "needs a value", f"write {name} VALUE")
        else:
            yield f"{key}={_truth(args[position]) if _is_switch(key) else _quoted(args[position])}"
            position += 1


def _setting(option: str, known: dict[str, Any]) -> tuple[str, bool]:
    """The key that an option sets, and whether it is `--no-...`."""
    key = option.removeprefix("--").replace("-", "_")
    if _is_key(key):
        return key, False
    if key.startswith("no_") and _is_key(key[3:]):
        return key[3:], True
    if key in ABSENT:
        raise ConfigError(option, "No such option", ABSENT[key])
    settings = [f"--{alias.replace('_', '-')}" for alias in ALIASES if "." not in alias]
    close = did_you_mean(option, [*known, *settings])
    remedy = close if close.startswith("did") else "see ludus train --help; any setting may be written key=value"
    raise ConfigError(option, "No such option", remedy)


def _is_key(key: str) -> bool:
    section = key.partition(".")[0]
    return canonical((key,))[0] != (key,) or (
        "." in key and section in (*BARE, "network", "buffers", "logging", "runtime")
    )


def _is_switch(key: str) -> bool:
    """Whether a setting is true or false; that of an algorithm if any algorithm has such a one."""
    from ludus.config.validate import fields, section
    from ludus.registry import ALGORITHMS

    if key in SWITCHES:
        return True
    path = canonical(tuple(key.split(".")))[0]
    if path[0] == "algorithm":
        models = [ALGORITHMS[name].Config for name in ALGORITHMS.names()]
    else:
        models = [model for model in [section(path[:-1])] if isinstance(model, type)]
    found = [info.annotation for model in models if (info := fields(model).get(path[-1])) is not None]
    return bool in found


def _truth(word: str) -> str:
    return "true" if word.lower() in ("true", "1", "yes", "on") else "false"


def _quoted(value: str) -> str:
    """A value in Hydra's grammar: one that is neither a word or number nor a list or mapping gets quotes."""
    if re.fullmatch(r"[\w.+-]+|[\[{].*", value, re.DOTALL):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def spec_of(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """`Env:algorithm` out of `--env X --algo Y` (the algorithm is PPO unless it is named), and the other overrides."""
    named, rest = {}, []
    for override in overrides:
        key, _, value = override.partition("=")
        path = canonical(tuple(key.split(".")))[0]
        if path in (("environment", "id"), ("algorithm", "name")):
            named[path[0]] = value.strip("'\"")
        else:
            rest.append(override)
    if "environment" in named:
        return f"{named['environment']}:{named.get('algorithm', 'ppo')}", rest
    if "algorithm" in named:
        remedy = f"write CartPole-v1:{named['algorithm']}, or --env CartPole-v1"
        raise ConfigError(named["algorithm"], "an algorithm without an environment", remedy)
    return None, list(overrides)


def one_spec(specs: list[str]) -> str:
    """What to write instead of several bare words."""
    from ludus.registry import ALGORITHMS

    for key, value in itertools.pairwise(specs):
        if canonical((key,))[0] != (key,) or ("." in key and key.replace(".", "").isidentifier()):
            return f"write {key}={value}"
    algorithms = [word for word in specs if word in ALGORITHMS]
    others = [word for word in specs if word not in algorithms]
    if len(algorithms) == len(others) == 1 and ":" not in others[0]:
        return f"write {others[0]}:{algorithms[0]}"
    return "overrides are written key=value"
