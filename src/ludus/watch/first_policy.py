"""Checks that the first policy explores: compares its entropy with that of uniform actions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import gymnasium as gym

SHARE = 0.7
"""Smallest share of the maximum entropy for discrete actions."""
NARROW, WIDE = 1 / 4, 8.0
"""Smallest and largest width of the sampled actions, relative to the action range."""
TIP = "use a small gain for the last layer of the actor; for bounded actions the wrapper rescale_action"


def far_from_uniform(space: gym.Space | None, entropy: float) -> str | None:
    """The problem of a policy that starts with this entropy (in nats), or None."""
    from gymnasium import spaces

    choices: list[int] = []
    if isinstance(space, spaces.Discrete):
        choices = [int(space.n)]
    elif isinstance(space, spaces.MultiDiscrete):
        choices = [int(n) for n in space.nvec.ravel()]
    elif isinstance(space, spaces.MultiBinary):
        choices = [2] * math.prod(space.shape)
    most = sum(map(math.log, choices))
    if choices and entropy < SHARE * most:
        return f"the first policy is far from uniform: entropy {entropy:.2f} of at most {most:.2f}"
    if not isinstance(space, spaces.Box) or not space.is_bounded():
        return None
    widths = [float(width) for width in (space.high - space.low).ravel()]
    if not widths or min(widths) <= 0:
        return None
    ratio = math.exp((entropy - sum(map(math.log, widths))) / len(widths))
    if ratio < NARROW:
        return f"the first policy tries only {ratio:.0%} of the action range"
    if ratio > WIDE:
        return f"the first policy draws actions {ratio:.0f} times as wide as their range, so that most are clipped"
    return None
