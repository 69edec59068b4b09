"""The checks of the vector contract find every kind of break, and leave a good environment alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ludus.checks import check, contract
from ludus.checks.contract import Finding
from ludus.config.schema import Environment
from ludus.envs.vector.cartpole import CartPoleVectorEnv
from ludus.envs.vector.stepper import SyncVectorEnv
from ludus.errors import ConfigError
from ludus.types import StepResult

CFG = Environment(id="CartPole-v1")


def _status(backend: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in contract.findings(CFG, backend)}


def _break(monkeypatch: pytest.MonkeyPatch, cls: type, change: Callable[[Any, StepResult, int], StepResult]) -> None:
    """`change` sees every step's result and the number of the step."""
    step, count = cls.step, [0]  # type: ignore[attr-defined]

    def broken(self: Any, action: Any) -> StepResult:
        count[0] += 1
        return change(self, step(self, action), count[0])

    monkeypatch.setattr(cls, "step", broken)


@pytest.mark.parametrize("backend", ["sync", "native"])
def test_a_good_one_passes(backend: str) -> None:
    assert {finding.status for finding in _status(backend).values()} == {"PASS"}


def _final_is_new(env: Any, result: StepResult, _: int) -> StepResult:
    return result._replace(final_obs=None if result.final_obs is None else result.obs.copy())


def _late_reset(env: Any, result: StepResult, _: int) -> StepResult:
    """The old episode's end once more where the new one begins: a bogus transition."""
    return result if result.final_obs is None else result._replace(obs=result.final_obs.copy())


def _no_truncation(env: Any, result: StepResult, _: int) -> StepResult:
    return result._replace(terminated=result.terminated | result.truncated, truncated=result.truncated & False)


def _double(env: Any, result: StepResult, _: int) -> StepResult:
    return result._replace(obs=result.obs.astype(np.float64))


def _outside(env: Any, result: StepResult, _: int) -> StepResult:
    return result._replace(obs=result.obs + np.float32(100))


def _noise(env: Any, result: StepResult, count: int) -> StepResult:
    return result._replace(obs=result.obs + np.float32(count * 1e-6))


def _same_memory(env: Any, result: StepResult, _: int) -> StepResult:
    return result if result.final_obs is None else result._replace(final_obs=result.obs)


def _always_final(env: Any, result: StepResult, _: int) -> StepResult:
    return result._replace(final_obs=result.obs.copy())


BREAKS = {
    "native": [
        (_final_is_new, "true episodes"),
        (_no_truncation, "true episodes"),
        (_double, "spaces and dtypes"),
        (_outside, "spaces and dtypes"),
        (_same_memory, "starts"),
        (_always_final, "starts"),
    ],
    "sync": [
        (_final_is_new, "true episodes"),
        (_late_reset, "true episodes"),
        (_no_truncation, "true episodes"),
        (_noise, "true episodes"),
    ],
}


@pytest.mark.parametrize(
    ("backend", "change", "name"),
    [(backend, *case) for backend, cases in BREAKS.items() for case in cases],
)
def test_a_break_is_found(monkeypatch: pytest.MonkeyPatch, backend: str, change: Any, name: str) -> None:
    _break(monkeypatch, CartPoleVectorEnv if backend == "native" else SyncVectorEnv, change)
    assert _status(backend)[name].status == "FAIL"


def test_episodes_that_do_not_follow_from_their_seeds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, CartPoleVectorEnv, _noise)
    found = _status("native")["seeds"]
    assert found.status == "NOTE" and "CartPole-v1" in found.detail


def test_what_outlives_a_reset_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reset = CartPoleVectorEnv.reset

    def worn(self: Any, seeds: Any) -> Any:
        self.resets = getattr(self, "resets", 0) + 1
        return reset(self, [seed + self.resets for seed in seeds])

    monkeypatch.setattr(CartPoleVectorEnv, "reset", worn)
    assert "outlives a reset" in _status("native")["seeds"].detail


def test_a_time_limit_that_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    init = CartPoleVectorEnv.__init__

    def endless(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self._limit = 10**9

    monkeypatch.setattr(CartPoleVectorEnv, "__init__", endless)
    assert _status("native")["time limit"].status == "FAIL"


def test_rows_of_one_environment() -> None:
    rows = check.check(CFG, ["native"])
    assert all(row.status != "FAIL" for row in rows)
    assert [row.check for row in rows[:3]] == ["Gymnasium's checks", "start-up check", "seeding"]
    assert {row.backend for row in rows[3:]} == {"native"}
    with pytest.raises(ConfigError, match="is not a backend"):
        check.check(CFG, ["nativ"])
    with pytest.raises(ConfigError, match="no vector entry point"):
        check.check(Environment(id="Acrobot-v1"), ["native"])


def test_an_environment_gymnasium_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium.utils.env_checker as checker

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("reset() must take a seed\nand more")

    monkeypatch.setattr(checker, "check_env", refuse)
    found = check.gymnasium_check(CFG)
    assert (found.status, found.detail) == ("FAIL", "reset() must take a seed")
