"""Which hook comes next: phases as a state machine over Reports.

A phase repeats its cycle of hooks until the first of its limits is reached. A hook carries a repeat count, or a ratio
to the environment steps of the cycle; the remainder of a ratio is kept exactly. A hook that did nothing counts towards
no limit. A whole cycle in which nothing happened is an error, because nothing would happen in the next one either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ludus.config.training import Phase
from ludus.errors import ConfigError
from ludus.orchestration.owed_calls import OwedCalls
from ludus.orchestration.phases import check_phase, check_report, parse_cycle
from ludus.progress import Budget, Progress
from ludus.types import Report


class PhaseScheduler:
    """Steps through phases: `next_hook` names the hook to call, `advance` takes its report."""

    def __init__(self, phases: Sequence[Phase], budget: Budget, *, hooks: Iterable[str], step_quantum: int = 1) -> None:
        self.phases = list(phases)
        self.calls = [parse_cycle(phase, [*hooks, "evaluate"]) for phase in phases]
        self.quantum = step_quantum
        self.budget = replace(budget, total=self._whole(budget.total)) if budget.unit == "env_steps" else budget
        for phase in phases:
            check_phase(phase, budget.unit)
        self.progress, self.phase_progress = Progress(), Progress()
        self.index = 0
        self._position, self._done_here = 0, 0
        self.cycle_start = 0
        """The position at which the current cycle began: schedules are read there."""
        self._cycle_worked, self._cycle_fresh = False, True
        self._online_updates = 0  # updates when the newest cycle of an online phase ended
        self._owed = OwedCalls(self.calls[0] if phases else [])
        self.cycle_ended = False

    def _whole(self, steps: int) -> int:
        """Round a budget down to whole vector steps, but at least one."""
        return max(self.quantum, steps // self.quantum * self.quantum)

    @property
    def phase(self) -> Phase:
        """The current phase; the last one once all are done."""
        return self.phases[min(self.index, len(self.phases) - 1)]

    @property
    def finished(self) -> bool:
        """All phases are done."""
        return self.index >= len(self.phases)

    @property
    def position(self) -> int:
        """How much of the budget is used."""
        return self.budget.position(self.progress)

    @property
    def checkpoint_name(self) -> str:
        """The name of a checkpoint that is taken now."""
        return self.budget.checkpoint(self.progress, self.progress.updates - self._online_updates)

    @property
    def remaining_steps(self) -> int:
        """Environment steps that the phase and the budget still allow."""
        left = self.budget.total - self.progress.env_steps if self.budget.unit == "env_steps" else 0
        if self.phase.duration_steps is not None:
            left = min(left, self._whole(self.phase.duration_steps) - self.phase_progress.env_steps)
        return max(left, 0)

    def next_hook(self) -> str | None:
        """The hook to call now, or None when the last phase is over."""
        if self._cycle_fresh and not self.finished and self._phase_over():
            self._next_phase()
        self._skip_empty()
        return None if self.finished else self.calls[self.index][self._position].name

    def advance(self, report: Report, *, worked: bool | None = None) -> None:
        """Take in what the hook did; `worked` overrides the idle test for hooks that neither step nor update."""
        worked = (not report.idle) if worked is None else worked
        check_report(self.phase, report)
        self.progress.add(report)
        self.phase_progress.add(report)
        self._cycle_worked |= worked
        self._cycle_fresh = self.cycle_ended = False
        calls, here = self.calls[self.index], self._position
        self._owed.add(report.env_steps)
        if calls[here].per_env_step is None:
            self._done_here += 1
        else:
            self._owed.pay(here, worked=worked)
        if self._enough_updates():
            self._next_position()
        if not self.cycle_ended:
            self._skip_empty()

    def _times_left(self) -> int:
        call = self.calls[self.index][self._position]
        if call.per_env_step is None:
            return call.repeats - self._done_here
        return self._owed.due(self._position)

    def _skip_empty(self) -> None:
        """Move on to a hook that has something to do, or to the end of the cycle."""
        while not self.finished and self._times_left() <= 0:
            self._next_position()
            if self.cycle_ended:
                return

    def _next_position(self) -> None:
        self._position, self._done_here = self._position + 1, 0
        if self._position == len(self.calls[self.index]):
            self._end_cycle()

    def _end_cycle(self) -> None:
        if not self._cycle_worked:
            hooks = ", ".join(call.name for call in self.calls[self.index])
            raise ConfigError(
                f"training.phases.{self.phase.name}",
                f"a whole cycle of [{hooks}] did nothing",
                "fill the buffer first (a phase that collects), or change its hooks",
            )
        self.progress.cycles += 1
        self.phase_progress.cycles += 1
        self._position, self._cycle_worked = 0, False
        self.cycle_start = self.position
        if self.phase.type == "online":
            self._online_updates = self.progress.updates
        self._cycle_fresh = self.cycle_ended = True
        if self._phase_over():
            self._next_phase()

    def _next_phase(self) -> None:
        self.index += 1
        self.phase_progress = Progress()
        self._position, self._done_here = 0, 0
        if not self.finished:
            self._owed = OwedCalls(self.calls[self.index])
            if self._phase_over():  # the budget is used up: later phases that live on it have nothing left to do
                self._next_phase()

    def _enough_updates(self) -> bool:
        """Updates may end a phase in the middle of a cycle; everything else ends it after a cycle."""
        limit, done = self.phase.duration_updates, self.phase_progress.updates
        if self.budget.unit == "updates" and self.phase.type == "offline" and self.position >= self.budget.total:
            return True
        return limit is not None and done >= limit

    def _uses_the_budget(self, phase: Phase) -> bool:
        return phase.type == ("online" if self.budget.unit == "env_steps" else "offline")

    def _phase_over(self) -> bool:
        phase, done = self.phase, self.phase_progress
        if phase.duration_updates is not None and done.updates >= phase.duration_updates:
            return True
        if phase.duration_cycles is not None and done.cycles >= phase.duration_cycles:
            return True
        if phase.duration_steps is not None and done.env_steps >= self._whole(phase.duration_steps):
            return True
        return self._uses_the_budget(phase) and self.position >= self.budget.total

    def state_dict(self) -> dict[str, Any]:
        """The exact position within phases, cycles and ratios."""
        return {
            "progress": asdict(self.progress),
            "phase_progress": asdict(self.phase_progress),
            "index": self.index,
            "position": self._position,
            "done_here": self._done_here,
            "online_updates": self._online_updates,
            "cycle": [self.cycle_start, self._cycle_worked, self._cycle_fresh],
            "owed": self._owed.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there; a hook that no phase has is refused."""
        index, position = state["index"], state["position"]
        here = self.calls[min(index, len(self.calls) - 1)] if self.calls else []
        if index < 0 or not 0 <= position < max(len(here), 1):
            raise ValueError(f"phase {index} has no hook {position}")
        self.progress, self.phase_progress = Progress(**state["progress"]), Progress(**state["phase_progress"])
        self.index, self._position, self._done_here = index, position, state["done_here"]
        self._online_updates = state["online_updates"]
        start, worked, fresh = state["cycle"]
        self.cycle_start, self._cycle_worked, self._cycle_fresh = int(start), bool(worked), bool(fresh)
        self._owed = OwedCalls(here)
        self._owed.load_state_dict(state["owed"])
        if self.finished and self._ends_with_the_budget(self.phases[-1]) and self.position < self.budget.total:
            self.index = len(self.phases) - 1  # the budget has grown since: the last phase goes on

    def _ends_with_the_budget(self, phase: Phase) -> bool:
        limits = (phase.duration_steps, phase.duration_updates, phase.duration_cycles)
        return self._uses_the_budget(phase) and not any(limits)
