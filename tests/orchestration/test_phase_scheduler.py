"""Phases as a state machine: limits, ratios, idle hooks, and errors before the first step."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.config.training import Phase
from ludus.errors import ConfigError
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.progress import Budget, Unit
from ludus.types import Report

HOOKS = ("collect", "update_world_model", "update_controller", "evaluate", "dance")


def scheduler(*phases: dict, total: int = 1_000, quantum: int = 1, unit: Unit = "env_steps") -> PhaseScheduler:
    return PhaseScheduler([Phase(**p) for p in phases], Budget(total, unit), hooks=HOOKS, step_quantum=quantum)


def drive(s: PhaseScheduler, reports: dict[str, Report], most: int = 10_000) -> list[str]:
    called = []
    while (hook := s.next_hook()) is not None:
        called.append(hook)
        s.advance(reports[hook], worked=True if hook == "evaluate" else None)
        assert len(called) < most, "never ends"
    return called


COLLECT, UPDATE = Report(env_steps=10), Report(updates=1)
WORK = {
    "collect": COLLECT,
    "update_world_model": UPDATE,
    "update_controller": UPDATE,
    "evaluate": Report(),
    "dance": Report(updates=2),
}


def test_three_phases_in_order() -> None:
    s = scheduler(
        {"name": "seed", "hooks": ["collect"], "duration_steps": 50},
        {"name": "pretrain", "type": "offline", "hooks": ["update_world_model"], "duration_updates": 7},
        {"name": "joint", "hooks": ["collect", {"update_world_model": 2}, "update_controller"]},
        total=100,
    )
    called = drive(s, WORK)
    joint = ["collect", "update_world_model", "update_world_model", "update_controller"]
    assert called == ["collect"] * 5 + ["update_world_model"] * 7 + joint * 5
    assert (s.progress.env_steps, s.progress.updates, s.progress.cycles) == (100, 7 + 15, 5 + 7 + 5)


def test_a_hook_of_the_algorithms_own() -> None:
    s = scheduler({"name": "x", "hooks": ["collect", "dance"]}, total=30)
    assert drive(s, WORK) == ["collect", "dance"] * 3
    assert s.progress.updates == 6


def test_idle_hooks_count_towards_nothing() -> None:
    s = scheduler({"name": "x", "hooks": ["collect", "update_controller"], "duration_updates": 3}, total=1_000)
    called = []
    for i in range(20):
        hook = s.next_hook()
        if hook is None:
            break
        called.append(hook)
        ready = i >= 7
        s.advance(COLLECT if hook == "collect" else (UPDATE if ready else Report()))
    assert s.finished
    assert s.progress.updates == 3


def test_a_cycle_that_does_nothing_is_an_error() -> None:
    s = scheduler({"name": "starved", "type": "offline", "hooks": ["update_controller"], "duration_updates": 5})
    s.next_hook()
    with pytest.raises(ConfigError, match=r"starved.*did nothing"):
        s.advance(Report())


@given(
    ratio=st.sampled_from(["0.5", "0.1", "0.333", "1", "2.5", "1e-3"]),
    chunks=st.lists(st.integers(1, 50), min_size=1, max_size=60),
)
def test_ratio_keeps_its_exact_remainder(ratio: str, chunks: list[int]) -> None:
    s = scheduler(
        {"name": "x", "hooks": ["collect", {"update_controller": {"per_env_step": ratio}}]}, total=sum(chunks)
    )
    queue = list(chunks)
    while (hook := s.next_hook()) is not None:
        s.advance(Report(env_steps=queue.pop(0)) if hook == "collect" else UPDATE)
    from fractions import Fraction

    assert s.progress.updates == int(Fraction(ratio) * sum(chunks))


def test_what_an_unready_hook_owes_is_forgiven() -> None:
    """A buffer that fills after 100 steps must not cause 50 updates at once."""
    s = scheduler({"name": "x", "hooks": ["collect", {"update_controller": {"per_env_step": 0.5}}]}, total=200)
    bursts, run, idle = [], 0, 0
    while (hook := s.next_hook()) is not None:
        if hook == "collect":
            bursts.append(run)
            run = 0
            s.advance(COLLECT)
        else:
            ready = s.progress.env_steps > 100
            run += ready
            idle += not ready
            s.advance(UPDATE if ready else Report())
    assert max(bursts) == 5
    assert idle == 10, "asked once per cycle while it is not ready"


def test_saved_in_the_middle_it_goes_on_the_same() -> None:
    phases = (
        {"name": "a", "hooks": ["collect", {"update_controller": {"per_env_step": 0.37}}], "duration_steps": 200},
        {"name": "b", "hooks": ["collect", {"update_world_model": 3}, "evaluate"]},
    )
    whole = drive(scheduler(*phases, total=400), WORK)
    for cut in range(0, len(whole), 7):
        first, called = scheduler(*phases, total=400), []
        for _ in range(cut):
            hook = first.next_hook()
            assert hook is not None
            called.append(hook)
            first.advance(WORK[hook], worked=True if hook == "evaluate" else None)
        second = scheduler(*phases, total=400)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert called + drive(second, WORK) == whole


def test_the_budget_is_never_exceeded_and_in_whole_vector_steps() -> None:
    s = scheduler({"name": "x", "hooks": ["collect"]}, total=1_003, quantum=8)
    assert s.budget.total == 1_000
    while s.next_hook() is not None:
        s.advance(Report(env_steps=min(256, s.remaining_steps)))
    assert s.progress.env_steps == 1_000
    assert scheduler({"name": "x", "hooks": ["collect"]}, total=3, quantum=8).budget.total == 8


def test_an_offline_phase_after_the_budget_still_runs() -> None:
    s = scheduler(
        {"name": "online", "hooks": ["collect"]},
        {"name": "late", "type": "offline", "hooks": ["update_controller"], "duration_updates": 3},
        {"name": "measure", "type": "eval_only", "hooks": ["evaluate"], "duration_cycles": 2},
        total=20,
    )
    assert drive(s, WORK) == ["collect"] * 2 + ["update_controller"] * 3 + ["evaluate"] * 2


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ({"hooks": ["colect"]}, r"hooks\[0\].*unknown hook 'colect'; did you mean 'collect'"),
        ({"hooks": [{"collect": 0}]}, "no repeat count"),
        ({"hooks": [{"collect": {"per_step": 1}}]}, "no repeat count"),
        ({"hooks": [{"collect": {"per_env_step": -1}}]}, "no repeat count"),
        ({"hooks": [{"collect": {"per_env_step": float("inf")}}]}, "no repeat count"),
        ({"hooks": [{"collect": {"per_env_step": "often"}}]}, "no repeat count"),
        ({"hooks": [{"collect": {"per_env_step": "1/0"}}]}, "no repeat count"),
        ({"type": "offline", "hooks": ["collect"], "duration_updates": 1}, "cannot collect"),
        ({"type": "offline", "hooks": ["update_controller"]}, "never ends"),
        ({"hooks": ["update_controller"]}, "never ends"),
        ({"type": "eval_only", "hooks": ["evaluate"]}, "never ends"),
        ({"type": "eval_only", "hooks": ["update_controller"], "duration_cycles": 1}, "only the hook evaluate"),
    ],
)
def test_impossible_phases_fail_before_the_first_step(phase: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scheduler({"name": "bad", **phase})


def test_a_hook_that_steps_in_an_offline_phase_is_an_error() -> None:
    s = scheduler({"name": "x", "type": "offline", "hooks": ["dance"], "duration_updates": 5})
    s.next_hook()
    with pytest.raises(ConfigError, match="offline phase"):
        s.advance(Report(env_steps=1, updates=1))


def test_a_finished_run_goes_on_when_its_budget_grows() -> None:
    phase = {"name": "x", "hooks": ["collect", "update_controller"]}
    done = scheduler(phase, total=40)
    drive(done, WORK)
    same, larger = scheduler(phase, total=40), scheduler(phase, total=60)
    same.load_state_dict(done.state_dict())
    larger.load_state_dict(done.state_dict())
    assert drive(same, WORK) == []
    assert drive(larger, WORK) == ["collect", "update_controller"] * 2


def test_a_limit_of_updates_ends_the_phase_inside_a_cycle() -> None:
    s = scheduler(
        {"name": "short", "hooks": ["collect", {"update_controller": 4}], "duration_updates": 6},
        {"name": "rest", "hooks": ["collect"]},
        total=50,
    )
    first = ["collect", *["update_controller"] * 4, "collect", *["update_controller"] * 2]
    assert drive(s, WORK) == first + ["collect"] * 3
