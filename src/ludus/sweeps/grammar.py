"""A search space as text, in Hydra's grammar for several runs and a few functions more.

`a,b` and `choice(a,b)`, `range(1,5)`, `interval(0,1)` and `tag(log, interval(1e-4,1e-2))` are Hydra's;
`uniform(0,1)`, `loguniform(1e-4,1e-2)`, `int(1,8)`, `logint(8,512)` and `normal(0,1)` are ours.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ludus.config.read import scalar
from ludus.errors import ConfigError
from ludus.sweeps.space import EXPONENT, MOST_POINTS, Kind, Parameter
from ludus.text import clean, did_you_mean

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

FUNCTIONS: dict[str, Kind] = {
    "uniform": "uniform",
    "loguniform": "log_uniform",
    "log_uniform": "log_uniform",
    "int": "int",
    "randint": "int",
    "logint": "log_int",
    "normal": "normal",
    "lognormal": "log_normal",
}
_HYDRAS = ("choice", "range", "interval", "tag", "shuffle", "sort", "glob", "float", "str", "bool", "json_str")
_CALL = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)


def parameter_of(text: str) -> Parameter | None:
    """The parameter that an override with several values means; None for an override with one value."""
    key, equals, value = text.partition("=")
    call = _CALL.fullmatch(value.strip())
    if not equals or key.startswith("~"):
        return None
    if call and call[1].lower() in FUNCTIONS:
        return _between(key, FUNCTIONS[call[1].lower()], call[2], text)
    if call and call[1] not in _HYDRAS:
        remedy = did_you_mean(call[1], [*FUNCTIONS, "choice", "range", "interval"])
        raise ConfigError(clean(text, 80), f"'{call[1]}' is no distribution", remedy)
    return _hydras(text)


def checked(parameter: Parameter, where: str) -> Parameter:
    """The parameter, if its numbers make sense."""
    problem = _problem_of_choice(parameter) if parameter.kind == "choice" else _problem_of_range(parameter)
    if problem:
        raise ConfigError(where, problem, "correct it")
    return parameter


def _problem_of_choice(one: Parameter) -> str:
    """What is wrong with values and their probabilities."""
    if not one.values:
        return "has no values"
    if len(set(map(repr, one.values))) < len(one.values):
        return "has the same value twice"
    if one.probabilities and abs(sum(one.probabilities) - 1) > 1e-6:
        return f"its probabilities add up to {sum(one.probabilities):g}"
    if one.probabilities and len(one.probabilities) != len(one.values):
        return f"{len(one.values)} values have {len(one.probabilities)} probabilities"
    return ""


def _problem_of_range(one: Parameter) -> str:
    """What is wrong with the two numbers of a distribution, and with what values are rounded to."""
    kind, low, high = one.kind, one.low, one.high
    if not all(map(math.isfinite, (low, high, one.step or 0.0))):
        return "its numbers have to be finite"
    if one.step is not None and one.step <= 0:
        return f"values cannot be rounded to multiples of {one.step:g}"
    if kind in ("normal", "log_normal"):
        if high <= 0:
            return f"a deviation of {high:g} is not positive"
        return "" if kind == "normal" or low + 5 * high <= EXPONENT else "its largest values are no numbers any more"
    if low >= high:
        return f"the smallest value, {low:g}, is not below the largest, {high:g}"
    if kind.startswith("log") and low <= 0:
        return f"a logarithmic range cannot begin at {low:g}"
    return "whole numbers go up to 2^53" if "int" in kind and max(-low, high) > 2**53 else ""


def _between(key: str, kind: Kind, text: str, where: str) -> Parameter:
    where = clean(where, 80)
    numbers = [scalar(part.strip()) for part in text.split(",")]
    if len(numbers) not in (2, 3) or not all(type(one) in (int, float) for one in numbers):
        raise ConfigError(where, "needs two numbers", "write loguniform(1e-4,1e-2), or a third number to round to")
    low, high, *step = (float(str(one)) for one in numbers)
    if kind in ("int", "log_int") and not (low.is_integer() and high.is_integer() and not step):
        raise ConfigError(where, "whole numbers have whole bounds", f"write {kind.replace('_', '')}(1,8)")
    return checked(Parameter(key=key, kind=kind, low=low, high=high, step=step[0] if step else None), where)


def _hydras(text: str) -> Parameter | None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    where = clean(text, 80)
    try:
        override = OverridesParser.create().parse_override(text)
        if not override.is_sweep_override():
            return None
        return checked(_of_override(override, where), where)
    except (HydraException, RecursionError) as error:
        problem = f"not an override: {str(error).splitlines()[0] if str(error) else 'nested too deeply'}"
        raise ConfigError(where, problem, "write key=value, key=a,b or key=loguniform(1e-4,1e-2)") from None


def _of_override(override: Override, where: str) -> Parameter:
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep

    key, sweep = override.key_or_group, override.value()
    key = {"FORCE_ADD": "++", "ADD": "+"}.get(str(override.type and override.type.name), "") + key
    if isinstance(sweep, IntervalSweep):
        tags = sweep.tags
        whole = "int" in tags or (isinstance(sweep.start, int) and isinstance(sweep.end, int))
        kinds: dict[tuple[bool, bool], Kind] = {
            (False, False): "uniform", (True, False): "log_uniform", (False, True): "int", (True, True): "log_int"
        }  # fmt: skip
        if not isinstance(sweep.start, int | float) or not isinstance(sweep.end, int | float):
            raise ConfigError(where, "an interval needs two numbers", "write interval(0.1,0.3)")
        return Parameter(key=key, kind=kinds["log" in tags, whole], low=sweep.start, high=sweep.end)
    if isinstance(sweep, RangeSweep):
        if not sweep.step or not abs((sweep.stop or 0) - (sweep.start or 0)) <= MOST_POINTS * abs(sweep.step):
            problem = f"needs a step that is not 0, and at most {MOST_POINTS:,} values"
            raise ConfigError(where, problem, "write range(1,5), or int(1,1000000) and --trials 30")
        values: list[Any] = list(sweep.range())
    else:
        values = list(override.sweep_iterator())
    return Parameter(key=key, kind="choice", values=tuple(map(_plain, values)))


def _plain(value: Any) -> Any:
    from hydra.core.override_parser.types import QuotedString

    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return scalar(value) if isinstance(value, str) else value
