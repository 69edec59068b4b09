"""Environments: their suites, wrappers and vectors, and snapshots of their state.

The names below are those of Gymnasium's interface, for values whose type only the environment knows.
"""

from typing import Any

Observation = Any
Action = Any
Frame = Any
"""A rendered image, or None."""
Info = dict[str, Any]
Options = dict[str, Any] | None
ResetReturn = tuple[Any, dict[str, Any]]
"""Observation, info."""
StepReturn = tuple[Any, Any, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""
