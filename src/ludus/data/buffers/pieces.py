"""Rollouts cut into pieces that fit into a buffer."""

from __future__ import annotations

from dataclasses import replace

from ludus.data.rollout import Rollout
from ludus.types import tree_index


def between(rollout: Rollout, start: int, end: int) -> Rollout:
    """The steps of a rollout from `start` up to `end`; `state` and `last_state` stay those of the whole rollout."""
    if start == 0 and end >= len(rollout.reward):
        return rollout
    rows = ("action", "reward", "terminated", "truncated", "raw_reward")
    steps = {name: getattr(rollout, name)[start:end] for name in rows}
    more = {name: tree_index(getattr(rollout, name), slice(start, end + 1)) for name in ("obs", "raw_obs", "first")}
    broken = None if rollout.broken is None else rollout.broken[start:end]
    extras = {name: column[start:end] for name, column in rollout.extras.items()}
    ends = rollout.ends
    if ends is not None:
        ends = ends.where((ends.t >= start) & (ends.t < end), earlier=start)
    return replace(rollout, ends=ends, broken=broken, extras=extras, start=rollout.start + start, **steps, **more)
