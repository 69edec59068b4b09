"""Which updates are compiled: decided by the config, kept by the checkpoint, never by what lies in a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.learning import package
from ludus.learning.compiled import UPDATES_THAT_PAY, Compiler
from ludus.orchestration.phases import planned_updates
from support import build, close, config, run

ENOUGH = UPDATES_THAT_PAY


@pytest.fixture(autouse=True)
def a_compiler(monkeypatch) -> None:
    monkeypatch.setattr(package, "has_compiler", lambda: True)


def decided(mode: str, planned: dict[int, int]) -> Compiler:
    return Compiler(mode, planned=planned)


def test_auto_compiles_the_sizes_that_pay_and_no_other() -> None:
    compiler = decided("auto", {64: ENOUGH, 32: ENOUGH - 1})
    assert compiler.sizes == {64}
    assert compiler.wants({"first": torch.zeros(1, 64)}, "cpu")
    assert not compiler.wants({"first": torch.zeros(1, 32)}, "cpu")
    assert not compiler.wants({"first": torch.zeros(1, 64)}, "cuda")


def test_always_and_never() -> None:
    assert decided("always", {64: 1, 32: 0}).sizes == {64, 32}
    never = decided("never", {64: ENOUGH})
    assert (never.sizes, never.describe()) == (frozenset(), "eager (runtime.compile is never)")


def test_without_a_compiler_the_reason_is_told(monkeypatch) -> None:
    monkeypatch.setattr(package, "has_compiler", lambda: False)
    compiler = decided("auto", {64: ENOUGH})
    assert not compiler.sizes
    assert "there is no C++ compiler" in compiler.describe()


def test_a_resumed_run_keeps_to_the_decision() -> None:
    saved = decided("auto", {64: ENOUGH}).state_dict()
    longer = decided("auto", {64: 10 * ENOUGH, 128: ENOUGH})
    longer.load_state_dict(saved)
    assert longer.sizes == {64}
    shorter = decided("never", {})
    shorter.load_state_dict(saved)
    assert shorter.sizes == {64} and shorter.describe() == "compiled"


def test_what_cannot_be_compiled_runs_eagerly_from_then_on(monkeypatch) -> None:
    def fail(*_: Any) -> None:
        raise package.Unavailable("the disk is full")

    monkeypatch.setattr(package, "obtain", fail)
    said: list[str] = []
    compiler = Compiler("always", planned={64: 1, 32: 1}, announce=said.append)
    assert compiler.get(lambda: None, [], 64)() is None
    assert compiler.sizes == {32}
    assert compiler.state_dict() == {"sizes": [32], "reason": "the disk is full"}
    assert len(said) == 1 and "the disk is full" in said[0] and "eagerly" in said[0]


PPO = {"name": "ppo", "rollout_steps": 16, "batch_size": 0.5, "epochs": 2}


def test_updates_are_planned_phase_by_phase() -> None:
    phases = [
        {"name": "a", "hooks": ["collect", "update_controller"], "duration_steps": 640},
        {"name": "b", "hooks": ["collect", "update_controller"], "set": {"rollout_steps": 32}, "duration_steps": 1_280},
        {"name": "look", "type": "eval_only", "hooks": ["evaluate"], "duration_cycles": 1},
        {"name": "c", "hooks": ["collect", "update_controller"]},
    ]
    cfg = config(PPO, training={"total_timesteps": 2_560, "phases": phases})
    assert planned_updates(cfg, 4) == {32: 40 + 40, 64: 40}


def test_updates_of_an_offline_phase_are_its_duration() -> None:
    phases = [
        {"name": "fill", "hooks": ["collect"], "duration_steps": 200},
        {"name": "learn", "type": "offline", "hooks": ["update_controller"], "duration_updates": 700},
    ]
    dqn = {"name": "dqn", "batch_size": 8, "learning_starts": 100}
    assert planned_updates(config(dqn, training={"total_timesteps": 200, "phases": phases}), 4)[8] >= 700


@pytest.mark.parametrize("accumulated", ["ppo", "dqn"])
def test_accumulated_updates_are_planned_as_eager(accumulated: str) -> None:
    cfg = config({"name": accumulated, "accumulate": 2}, training={"total_timesteps": 10_000})
    assert planned_updates(cfg, 4) == {}


def test_networks_that_are_never_compiled_say_so() -> None:
    built = build(config(PPO, network={"memory": "gru"}, runtime={"compile": "always"}))
    assert built.compiler.describe().startswith("eager (this algorithm compiles none")
    close(built)


def test_a_shorter_last_rollout_is_never_asked_for(monkeypatch) -> None:
    asked: list[int] = []

    def obtain(function: Any, example: Any, *_: Any) -> Any:
        asked.append(max(x.shape[1] for x in example if x.ndim == 2))
        return lambda: lambda arguments: list(function(*arguments))

    monkeypatch.setattr(package, "obtain", obtain)
    done = run(config(PPO, training={"total_timesteps": 64 * 2 + 24}, runtime={"compile": "always"}))
    assert done.progress.env_steps == 152
    assert asked == [32], "the full minibatches of 32, not the short ones of 12"


def test_the_compiled_flag_reaches_records_and_show(tmp_path: Path) -> None:
    from ludus.archive import record
    from synthetic import make_run

    yes = make_run(tmp_path, "a_20260101-000000_aaaa", summary={"compiled": True, "updates_run": "compiled"})
    no = make_run(tmp_path, "b_20260101-000000_bbbb", seed=2)
    records = [found for folder in (yes, no) if (found := record.read(folder)) is not None]
    assert [found.compiled for found in records] == [True, False]
    from ludus.reports.compare import compare

    assert any("some runs were compiled, others eager" in note for note in compare(records).notes)
