"""The alert of a run that made no update: nothing else in its rows says that it has learned nothing."""

from __future__ import annotations

from ludus.watch.monitor import Monitor

KEY = "updates"
PROBLEM = "nothing was learned"
TIP = (
    "lower algorithm.learning_starts or raise training.total_timesteps; "
    "what learns from whole episodes needs some that end: environment.max_episode_steps"
)


def tell(monitor: Monitor) -> None:
    """It held in every row."""
    monitor.bad(KEY, "idle", PROBLEM, TIP, value=0.0, env_steps=0, rows=max(monitor.rows, 1))
