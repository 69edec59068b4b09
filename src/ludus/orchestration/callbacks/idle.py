"""Says so when a run makes no update though its phases ask for some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.orchestration.callbacks import Callback
from ludus.watch import idle
from ludus.watch.monitor import Monitor

if TYPE_CHECKING:
    from ludus.orchestration.orchestrator import Orchestrator


class Idle(Callback):
    """At the start if it can be known, and at the end as an alert."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def on_start(self, run: Orchestrator) -> None:
        """A budget that is used up before the first update."""
        phases = zip(run.scheduler.phases, run.phase_configs, run.scheduler.calls, strict=True)
        waits = [
            getattr(cfg, "learning_starts", 0) if phase.type == "online" else 0
            for phase, cfg, calls in phases
            if any(call.name.startswith("update") for call in calls)
        ]
        total = run.scheduler.budget.total
        if run.scheduler.budget.unit == "env_steps" and waits and min(waits) >= total:
            run.say(
                f"learning starts at step {min(waits):,}, and the run ends at step {total:,}; "
                "lower algorithm.learning_starts or raise training.total_timesteps"
            )

    def on_end(self, run: Orchestrator) -> None:
        """A run that was stopped to be resumed has not come to its end."""
        if run.interrupted is None and made_no_update(run):
            idle.tell(self.monitor)


def made_no_update(run: Orchestrator) -> bool:
    """Whether no hook reported an update, though there are hooks for it."""
    asked = any(call.name.startswith("update") for calls in run.scheduler.calls for call in calls)
    return asked and run.progress.updates == 0
