"""The alert of a run that made no update; its rows alone do not show it."""

from __future__ import annotations

from ludus.watch.monitor import Monitor

KEY = "updates"
PROBLEM = "nothing was learned"
TIP = (
    "lower algorithm.learning_starts or raise training.total_timesteps; "
    "algorithms that learn from whole episodes need episodes that end: environment.max_episode_steps"
)


def tell(monitor: Monitor) -> None:
    """Add the alert to the monitor, as if every row had it."""
    monitor.bad(KEY, "idle", PROBLEM, TIP, value=0.0, env_steps=0, rows=max(monitor.rows, 1))
