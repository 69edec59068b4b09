"""Callbacks that only watch: status.json, observations out of bounds, first policies, runs that learn nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from ludus.envs.check import rounded
from ludus.metrics.names import RETURN
from ludus.orchestration.callbacks import Callback
from ludus.play import policy_of
from ludus.types import Array, Report, space_tree, tree_leaves
from ludus.watch.first_policy import TIP, far_from_uniform
from ludus.watch.monitor import Monitor

if TYPE_CHECKING:
    from ludus.run import Run

SECONDS = 2.0
"""Least time between two versions of status.json."""


class Status(Callback):
    """Writes phase, hook, counters and the newest metrics every few seconds."""

    def __init__(self, write: Callable[..., None]) -> None:
        self.write, self._due, self._hook = write, 0.0, ""

    def on_report(self, run: Run, hook: str, report: Report) -> None:
        """Remember which hook was called last."""
        self._hook = hook

    def on_epoch_end(self, run: Run) -> None:
        """Write, but not more often than every few seconds."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + SECONDS
        budget = run.scheduler.budget
        facts: dict[str, Any] = {
            "phase": run.phase.name,
            "hook": self._hook,
            **run.progress.counters,
            f"total_{budget.noun}": budget.total,
            "seconds": round(run.seconds, 3),
            "train_return": run.recorder.epoch.get(RETURN),
            "best": run.best.mean if run.best else None,
            "threshold": run.threshold,
            "compiled": bool(run.compiler.sizes),
            "metrics": run.recorder.epoch,
        }
        self.write("running", **facts)


class Bounds(Callback):
    """Looks at the newest observations at the end of every epoch; only the first one out of bounds is reported."""

    def __init__(self) -> None:
        self._noted = False

    def on_epoch_end(self, run: Run) -> None:
        """Compare one step of every environment."""
        if run.collector is None:
            return
        spaces = tree_leaves(space_tree(run.spaces.observation))
        for space, obs in zip(spaces, tree_leaves(run.collector.newest_obs), strict=True):
            if not self._noted and isinstance(space, gym.spaces.Box) and space.dtype != np.uint8:
                self._compare(run, run.collector.env.id, space, obs)

    def _compare(self, run: Run, name: str, space: gym.spaces.Box, obs: Array) -> None:
        outside = (obs < space.low) | (obs > space.high)
        if outside.any():
            outside &= ~rounded(space, obs)
        if outside.any():
            self._noted = True
            b, *at = (int(i) for i in np.argwhere(outside)[0])
            low, high = space.low[tuple(at)], space.high[tuple(at)]
            found = f"{obs[(b, *at)]} at {at}, outside [{low}, {high}]"
            run.say(f"environment {b} ({name}): its observation has {found}; its space promises less")


class FirstPolicy(Callback):
    """Raises an alert if the policy would not try everything before its first update.

    Off-policy algorithms are left out: they begin with random actions.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor, self._looked = monitor, False
        self._found: Mapping[str, Any] = {}

    def on_report(self, run: Run, hook: str, report: Report) -> None:
        """Look at its decisions about the newest observations, after the first hook."""
        if self._looked or run.collector is None:
            return
        self._looked = True
        if run.algorithm.off_policy or run.progress.updates:
            return
        act = policy_of(run.algorithm, run.normalizer, deterministic=True)
        decisions = act(run.collector.newest_obs, None, np.ones(run.collector.num_envs, bool))
        found = far_from_uniform(run.spaces.action, decisions.info)
        if found is not None:
            self.load_state_dict({**found._asdict(), "env_steps": run.progress.env_steps})

    def state_dict(self) -> dict[str, Any]:
        """The alert: no row tells a resumed run of it."""
        return dict(self._found)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise it."""
        self._found, self._looked = state, True
        self.monitor.once(kind="first", tip=TIP, **state)


class Idle(Callback):
    """Reports a run that makes no update: at the start if it is certain, and at the end as an alert."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def on_start(self, run: Run) -> None:
        """Say until when updates wait; warn if the budget is used up before the first one."""
        phases = zip(run.scheduler.phases, run.phase_configs, run.scheduler.calls, strict=True)
        waits = [
            cfg.first_update if phase.type == "online" else 0
            for phase, cfg, calls in phases
            if any(call.name.startswith("update") for call in calls)
        ]
        total = run.scheduler.budget.total
        if run.scheduler.budget.unit == "env_steps" and waits and min(waits) >= total:
            run.say(
                f"learning starts at step {min(waits):,}, and the run ends at step {total:,}; "
                "lower algorithm.learning_starts or raise training.total_timesteps"
            )
        elif run.scheduler.budget.unit == "env_steps" and waits and min(waits) > run.position:
            run.say(f"updates wait until step {min(waits):,}: until then the buffer only fills")

    def on_end(self, run: Run) -> None:
        """Raise the alert, unless the run will be resumed."""
        if run.interrupted is None and made_no_update(run):
            self.monitor.idle()


def made_no_update(run: Run) -> bool:
    """Whether the phases have hooks that update, and none of them reported an update."""
    asked = any(call.name.startswith("update") for calls in run.scheduler.calls for call in calls)
    return asked and run.progress.updates == 0
