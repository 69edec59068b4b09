"""All checks of one environment: Gymnasium's and ours."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ludus.bench.fps import BACKENDS, backends
from ludus.checks import contract
from ludus.checks.contract import Finding, Status
from ludus.config.schema import Environment
from ludus.envs.make import describe, make_env, probe
from ludus.errors import ConfigError
from ludus.text import did_you_mean


class CheckRow(NamedTuple):
    """One check on one backend; backend '' is the single environment."""

    backend: str
    check: str
    status: Status
    detail: str


def check(cfg: Environment, only: Sequence[str] | None = None) -> list[CheckRow]:
    """Run every check; an environment that cannot be made raises."""
    for name in only or ():
        if name not in BACKENDS:
            raise ConfigError(f"--backend {name}", "is not a backend", did_you_mean(name, BACKENDS))
    describe(cfg)
    notes = probe(cfg)
    seeding = Finding("seeding", "NOTE", notes[0]) if notes else Finding("seeding", "PASS")
    single = (gymnasium_check(cfg), Finding("start-up check", "PASS"), seeding)
    rows = [CheckRow("", *finding) for finding in single]
    for backend, problem in backends(cfg).items():
        if only and backend not in only:
            continue
        if problem and only:
            raise ConfigError(f"--backend {backend}", problem)
        found: Iterable[Finding] = [Finding("runs", "NOTE", problem)] if problem else contract.findings(cfg, backend)
        rows += [CheckRow(backend, *finding) for finding in found]
    return rows


def gymnasium_check(cfg: Environment) -> Finding:
    """`gymnasium.utils.env_checker.check_env` on the environment below our wrappers."""
    from gymnasium.utils.env_checker import check_env

    name = "Gymnasium's checks"
    env = make_env(cfg)
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
    except Exception as error:  # noqa: BLE001 - any exception of the checks or the environment is the finding
        return Finding(name, "FAIL", _line(error))
    finally:
        env.close()
    notes = [_line(warning.message) for warning in heard if issubclass(warning.category, UserWarning)]
    more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
    return Finding(name, "NOTE", notes[0] + more) if notes else Finding(name, "PASS")


def _line(error: object) -> str:
    """The first line, without Gymnasium's colours."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__
