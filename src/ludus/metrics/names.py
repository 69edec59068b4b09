"""Metric names have the form `<stage>/<name>`, as in `train/roll/ep_rew/mean`; the columns below have no stage."""

from __future__ import annotations

COLUMNS = ("epoch", "env_steps", "updates", "phase", "seconds")
"""Columns of every row: its position in the run."""
RETURN = "train/roll/ep_rew/mean"
EVAL_RETURN = "val/roll/ep_rew/mean"


def join(stage: str, name: str) -> str:
    """`train` and `loss/policy` -> `train/loss/policy`."""
    if not stage or not name or "/" in stage:
        raise ValueError(f"a metric needs a stage without '/' and a name, got '{stage}' and '{name}'")
    return f"{stage}/{name}"


def group(key: str) -> str:
    """The group of a metric in tables."""
    parts = key.split("/")
    if parts[0] == "val":
        return "val"
    if len(parts) > 2 and parts[1] == "time":
        return "time"
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]
