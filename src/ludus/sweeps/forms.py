"""Sweep files: W&B's form (`method`, `parameters`, ...), and `base_config` + `sweep` + `parallel_jobs`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ludus.config.read import FileMapping, place, plain, read_file
from ludus.errors import ConfigError
from ludus.sweeps.grammar import checked as checked_parameter
from ludus.sweeps.grammar import parameter_of
from ludus.sweeps.space import EXPONENT, Kind, Parameter, as_override
from ludus.sweeps.spec import SweepSpec, checked
from ludus.sweeps.trust import refuse_code
from ludus.text import clean, did_you_mean, near, safe_name

WANDB = ("program", "method", "metric", "parameters", "early_terminate", "run_cap", "name", "description", "project",
         "entity", "command", "spec", "seeds", "sampler", "jobs")  # fmt: skip
LAB = ("base_config", "sweep", "parallel_jobs", "method", "metric", "trials", "seeds", "name", "description")
MOST_SEEDS = 10_000
"""Seeds of each trial."""
_PARAMETER = ("value", "values", "min", "max", "distribution", "q", "mu", "sigma", "probabilities", "parameters")
_STOP = ("type", "min_iter", "max_iter", "eta", "s", "strict", "startup")
_SPELLED = ("spec", "config_id")
"""Parameters with one value that name what is trained."""
_LOGARITHMS: dict[str, bool] = {"log_uniform": False, "inv_log_uniform": True, "q_log_uniform": False}
"""Distributions whose bounds are exponents, and whether they are those of 1/x."""
_RANGES: dict[str, Kind] = {
    "int_uniform": "int",
    "uniform": "uniform",
    "q_uniform": "uniform",
    "log_uniform_values": "log_uniform",
    "q_log_uniform_values": "log_uniform",
    "inv_log_uniform_values": "log_uniform",
    **dict.fromkeys(_LOGARITHMS, "log_uniform"),
}
_NORMALS: dict[str, Kind] = {
    "normal": "normal", "q_normal": "normal", "log_normal": "log_normal", "q_log_normal": "log_normal"
}  # fmt: skip
_CONSTANTS = ("constant", "categorical", "categorical_w_probabilities")


def from_file(path: Path, base: str | None, changes: Mapping[str, Any]) -> SweepSpec:
    """The spec of a file; `base` replaces what it trains, `changes` are fields that the command line sets."""
    block, file = read_file(path), near(path)
    known = LAB if "sweep" in block else WANDB
    for key in block:
        if key not in known:
            raise ConfigError(place(block, key, file), f"{key}: unknown key", did_you_mean(key, known))
    fields = _lab(block, file, path) if "sweep" in block else _wandb(block, file)
    fields = {"name": safe_name(str(block.get("name") or path.stem))[:24], **fields}
    fields |= {key: value for key, value in changes.items() if value is not None}
    fields["overrides"] = (*fields.pop("constants", ()), *changes.get("overrides", ()))
    fields["base"] = base or fields.get("base")
    if fields["base"] is None:
        raise ConfigError(
            file, "says not what to train", f"write spec: CartPole-v1:ppo, or ludus sweep {file} Env:variant"
        )
    spec = build(fields, file)
    refuse_code(spec, base, changes.get("overrides", ()), file)
    return spec


def build(fields: Mapping[str, Any], where: str) -> SweepSpec:
    """The validated spec; a bad field is one line."""
    try:
        return checked(SweepSpec.model_validate(dict(fields)), where)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(where, f"{field}: {clean(first['msg'], 160)}", "see docs/sweeps.md") from None


def _lab(block: FileMapping, file: str, path: Path) -> dict[str, Any]:
    searched = block["sweep"]
    if not isinstance(searched, Mapping) or not searched:
        raise ConfigError(place(block, "sweep", file), "sweep: names no setting", "write algorithm.lr: [1e-3, 3e-4]")
    found = []
    for key, value in _flat(searched):
        where = f"{place(block, 'sweep', file)}: sweep.{key}"
        if isinstance(value, str):  # the grammar of the command line
            parameter = parameter_of(f"{key}={value}")
            found.append(parameter or Parameter(key=key, kind="choice", values=(value,)))
        else:
            values = tuple(plain(value)) if isinstance(value, list) else (value,)
            found.append(checked_parameter(Parameter(key=key, kind="choice", values=values), where))
    names = {"parallel_jobs": "jobs", "method": "method", "trials": "trials", "seeds": "seeds", "metric": "metric"}
    fields = {name: plain(block[key]) for key, name in names.items() if key in block}
    if "seeds" in fields:
        fields["seeds"] = seeds_of(fields["seeds"], f"{file}: seeds")
    return {"base": _base_file(block.get("base_config"), path), "parameters": found, **fields}


def _flat(block: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """The settings of nested mappings, by dotted path."""
    found: list[tuple[str, Any]] = []
    for key, value in block.items():
        nested = isinstance(value, Mapping)
        found += _flat(value, f"{before}{key}.") if nested else [(f"{before}{key}", value)]
    return found


def _base_file(name: object, path: Path) -> str | None:
    """A spec, or a file beside the working directory, the sweep file or the folder above it."""
    if name is None:
        return None
    text = str(name)
    if not text.endswith((".yaml", ".yml", ".json")):
        return text
    places = [Path(text), path.parent / text, path.parent.parent / text]
    return str(next((place for place in places if place.is_file()), text))


def _wandb(block: FileMapping, file: str) -> dict[str, Any]:
    where = place(block, "parameters", file)
    given = block.get("parameters")
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(where, "parameters: names no setting", "write algorithm.lr: {values: [1e-3, 3e-4]}")
    parameters: list[Parameter] = []
    constants: list[str] = []
    fields: dict[str, Any] = {"base": _command(block)}
    for key, item in _nested(given, where):
        found = _parameter(key, item, f"{where}: parameters.{key}")
        if isinstance(found, Parameter):
            parameters.append(found)
        elif key in _SPELLED:
            fields["base"] = str(found[0])
        else:
            constants.append(as_override(key, found[0]))
    if not parameters:
        raise ConfigError(where, "parameters: every setting has one value", "give one of them values: [...]")
    names = {"method": "method", "run_cap": "trials", "spec": "base", "sampler": "sampler", "jobs": "jobs"}
    fields |= {name: plain(block[key]) for key, name in names.items() if key in block}
    fields["method"] = block.get("method", "grid")
    if fields["method"] not in ("grid", "random", "bayes"):
        problem = f"method: '{clean(fields['method'], 40)}' is not known"
        raise ConfigError(place(block, "method", file), problem, "write grid, random or bayes")
    if "metric" in block:
        fields["metric"] = _metric(block, file)
    if "early_terminate" in block:
        fields["pruning"] = _pruning(block, file)
    if "seeds" in block:
        fields["seeds"] = seeds_of(plain(block["seeds"]), place(block, "seeds", file))
    return {**fields, "parameters": parameters, "constants": constants}


def _command(block: Mapping[str, Any]) -> str | None:
    """The spec in `command`, as W&B's agent calls it: `[ludus, train, CartPole-v1:ppo]`."""
    command = block.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else str(command or "").split()
    after = words[words.index("train") + 1 :] if "train" in words else words
    return next((word for word in after if ":" in word and not word.startswith(("-", "$"))), None)


def _nested(block: Mapping[str, Any], where: str, before: str = "") -> list[tuple[str, Mapping[str, Any]]]:
    if not isinstance(block, Mapping):
        raise ConfigError(where, f"parameters.{before}parameters: is not a mapping", "write lr: {values: [1e-3, 3e-4]}")
    found: list[tuple[str, Mapping[str, Any]]] = []
    for key, item in block.items():
        path = f"{before}{key}"
        if not isinstance(item, Mapping):
            raise ConfigError(where, f"parameters.{path}: is not a mapping", "write values: [...], or value: ...")
        unknown = next((name for name in item if name not in _PARAMETER), None)
        if unknown is not None:
            raise ConfigError(where, f"parameters.{path}.{unknown}: unknown key", did_you_mean(unknown, _PARAMETER))
        if "parameters" in item:
            _refuse_others(item, ("parameters",), f"{where}: parameters.{path}")
            found += _nested(item["parameters"], where, f"{path}.")
        else:
            found.append((path, item))
    return found


def _parameter(key: str, item: Mapping[str, Any], where: str) -> Parameter | tuple[Any]:
    """The parameter; of a constant its value."""
    name = item.get("distribution")
    if name is not None and name not in (*_CONSTANTS, *_RANGES, *_NORMALS):
        remedy = did_you_mean(name, [*_CONSTANTS, *_RANGES, *_NORMALS])
        raise ConfigError(where, f"distribution '{clean(name, 40)}' is not known here", remedy)
    if "value" in item:
        _refuse_others(item, ("value", *_choosing(name, "constant")), where)
        return (plain(item["value"]),)
    if "values" in item:
        _refuse_others(item, ("values", "probabilities", *_choosing(name, *_CONSTANTS[1:])), where)
        if not isinstance(item["values"], list):
            raise ConfigError(where, "values: is not a list", "write values: [1, 2]")
        odds = item.get("probabilities", [])
        if not isinstance(odds, list) or not all(type(one) in (int, float) and 0 <= one <= 1 for one in odds):
            raise ConfigError(where, "probabilities: is not a list of numbers from 0 to 1", "write [0.3, 0.7]")
        choice = Parameter(key=key, kind="choice", values=tuple(plain(item["values"])), probabilities=tuple(odds))
        return checked_parameter(choice, where)
    step = ("q",) if (name or "").startswith("q_") else ()
    _refuse_others(item, ("distribution", *(("mu", "sigma") if name in _NORMALS else ("min", "max")), *step), where)
    if name in _NORMALS:
        mean, deviation = _numbers(item, ("mu", "sigma"), where, {"mu": 0.0, "sigma": 1.0})
        return _ranged(key, _NORMALS[name], mean, deviation, item.get("q", 1.0) if step else None, where)
    low, high = _numbers(item, ("min", "max"), where, {})
    whole = [type(item[bound]) is int for bound in ("min", "max")]
    if name is None and any(whole) != all(whole):
        raise ConfigError(
            where, "min and max are a whole and a broken number", "write both with or both without a point"
        )
    kind: Kind = _RANGES[name] if name else "int" if all(whole) else "uniform"
    if kind == "int" and not all(whole):
        raise ConfigError(where, "int_uniform has whole bounds", "write min: 1 and max: 8")
    if name in _LOGARITHMS:
        if max(abs(low), abs(high)) > EXPONENT:
            problem = f"min and max of {name} are powers of e, which end at {EXPONENT:g}"
            raise ConfigError(where, problem, f"write {name}_values for the values themselves")
        ends = (math.exp(-high), math.exp(-low)) if _LOGARITHMS[name] else (math.exp(low), math.exp(high))
        low, high = ends
    return _ranged(key, kind, low, high, item.get("q", 1.0) if step else None, where)


def _choosing(name: str | None, *fitting: str) -> tuple[str, ...]:
    """`distribution`, if what it names goes with what is given."""
    return ("distribution",) if name in fitting else ()


def _refuse_others(item: Mapping[str, Any], used: tuple[str, ...], where: str) -> None:
    """Nothing that is written is passed over."""
    other = next((key for key in item if key not in used), None)
    if other is not None:
        said = " and ".join(key for key in item if key in used)
        problem = f"{other}: is not used beside {said}" if said else f"{other}: means nothing alone"
        raise ConfigError(where, problem, f"remove {other}, or give what goes with it")


def _ranged(key: str, kind: Kind, low: float, high: float, step: Any, where: str) -> Parameter:
    if step is not None and not (type(step) in (int, float) and step > 0):
        raise ConfigError(where, "q: must be a number above 0", "write q: 1")
    return checked_parameter(Parameter(key=key, kind=kind, low=low, high=high, step=step), where)


def _numbers(item: Mapping[str, Any], names: tuple[str, str], where: str, defaults: dict[str, float]) -> list[float]:
    found = [item.get(name, defaults.get(name)) for name in names]
    for name, value in zip(names, found, strict=True):
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ConfigError(where, f"{name}: must be a number", "give values: [...], or min: and max:")
    return [float(value) for value in found]


def _metric(block: FileMapping, file: str) -> dict[str, Any]:
    where, metric = place(block, "metric", file), block["metric"]
    if not isinstance(metric, Mapping) or "name" not in metric:
        raise ConfigError(where, "metric: needs a name", "write metric: {name: final, goal: maximize}")
    known = ("name", "goal", "target", "impute", "impute_while_running")
    unknown = next((key for key in metric if key not in known), None)
    if unknown is not None:
        raise ConfigError(where, f"metric.{unknown}: unknown key", did_you_mean(unknown, known))
    return {"name": str(metric["name"]), "goal": metric.get("goal", "minimize")}  # W&B's default


def _pruning(block: FileMapping, file: str) -> dict[str, Any]:
    """W&B's `hyperband` stops at `min_iter * eta**k`, or at `max_iter / eta**k`: successive halving here."""
    where, stop = place(block, "early_terminate", file), block["early_terminate"]
    if not isinstance(stop, Mapping) or "type" not in stop:
        raise ConfigError(
            where, "early_terminate: needs a type", "write early_terminate: {type: hyperband, min_iter: 3}"
        )
    unknown = next((key for key in stop if key not in _STOP), None)
    if unknown is not None:
        raise ConfigError(where, f"early_terminate.{unknown}: unknown key", did_you_mean(unknown, _STOP))
    eta = stop.get("eta", 3)
    first = stop.get("min_iter")
    if first is None and "max_iter" in stop:
        numbers = {"max_iter": stop["max_iter"], "eta": eta, "s": stop.get("s", 1)}
        for name, value in numbers.items():
            if type(value) is not int or not 0 < value <= 1_000_000:
                raise ConfigError(where, f"early_terminate.{name}: must be a whole number above 0", "write 27")
        first = max(1, int(numbers["max_iter"] / eta ** numbers["s"]))
    kind = "halving" if stop["type"] == "hyperband" else stop["type"]
    startup = {"startup": stop["startup"]} if "startup" in stop else {}
    return {"type": kind, "eta": eta, "first": first or 1, **startup}


def seeds_of(value: object, where: str) -> tuple[int, ...]:
    """`3` is the seeds 1, 2 and 3; a list, `1,2,3` or `1..3` names them."""
    if type(value) is int and value > 0:
        value = f"1..{value}"
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    found: list[int] = []
    for part in text.replace("_", "").split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()) or len(part) > 24:
            raise ConfigError(where, f"'{clean(text, 40)}' names no seeds", "write 3, 1,2,3 or 1..3")
        if int(last or first) - int(first) >= MOST_SEEDS:
            raise ConfigError(where, f"'{clean(text, 40)}' names more than {MOST_SEEDS:,} seeds", "write fewer")
        found += range(int(first), int(last or first) + 1)
    if not found or len(set(found)) < len(found):
        raise ConfigError(where, f"'{clean(text, 40)}' names no different seeds", "write 3, 1,2,3 or 1..3")
    return tuple(found)
