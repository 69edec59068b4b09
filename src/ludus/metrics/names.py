"""Metric names: `<stage>/<name>`, as in `train/roll/ep_rew/mean`; a few columns have no stage."""

from __future__ import annotations

COLUMNS = ("epoch", "env_steps", "updates", "phase", "seconds")
"""Where in the run a row stands."""
STAGES = ("train", "val", "test")
"""Stages every run knows; algorithms may record others (`collect`, `controller`, ...)."""
RETURN = "train/roll/ep_rew/mean"
EVAL_RETURN = "val/roll/ep_rew/mean"


def join(stage: str, name: str) -> str:
    """`train` and `loss/policy` -> `train/loss/policy`."""
    if not stage or not name or "/" in stage:
        raise ValueError(f"a metric needs a stage without '/' and a name, got '{stage}' and '{name}'")
    return f"{stage}/{name}"


def split(key: str) -> tuple[str, str]:
    """`train/loss/policy` -> `train` and `loss/policy`; the inverse of `join`."""
    stage, slash, name = key.partition("/")
    if not slash or not stage or not name:
        raise ValueError(f"'{key}' is no metric name; expected <stage>/<name>")
    return stage, name


def group(key: str) -> str:
    """The block of the table a metric stands in."""
    parts = key.split("/")
    if parts[0] == "val":
        return "val"
    if len(parts) > 2 and parts[1] == "time":
        return "time"
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]
