"""Stacks of frames stored as single frames: taken apart when they come in, rebuilt when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ludus.errors import ConfigError
from ludus.types import Array

Padding = Literal["repeat", "zero"]


class Frames:
    """Observations that are `count` frames along their first axis, the newest last; nothing to do for one."""

    def __init__(self, count: int, shape: tuple[int, ...], where: str) -> None:
        self.count, self.where = count, where
        self.padding: Padding | None = None
        """How a young episode's stack is filled up; known once an episode has begun with a frame that tells."""
        if count > 1 and (not shape or shape[0] % count):
            problem = f"observations of shape {shape} are no stack of {count} frames along their first axis"
            raise ConfigError(f"{where}.frames", problem, "use 1 to store observations as they are")
        self.channels = shape[0] // count if count > 1 else 0
        self.shape = (self.channels, *shape[1:]) if count > 1 else shape

    def newest(self, obs: Array) -> Array:
        """The frame to store of [..., C, H, W]."""
        return obs if self.count == 1 else self.older(obs, 0)

    @property
    def _rest(self) -> tuple[slice, ...]:
        return (slice(None),) * (len(self.shape) - 1)

    def older(self, obs: Array, back: int) -> Array:
        """The frame `back` steps before the newest one."""
        last = (self.count - back) * self.channels
        part: Any = (..., slice(last - self.channels, last), *self._rest)
        return obs[part]

    def check(self, before: Array, obs: Array, first: Array) -> None:
        """Refuse what is not a stack: `obs` [N, ...] must go on from `before`, or begin an episode where `first`."""
        if self.count == 1:
            return
        going = ~first
        shifted = before[going][:, self.channels :] == obs[going][:, : -self.channels]
        if not shifted.all():
            self._refuse("an observation does not go on from the one before it")
        if first.any():
            self._check_start(obs[first])

    def _check_start(self, obs: Array) -> None:
        rest = obs[:, : -self.channels]
        newest = np.tile(obs[:, -self.channels :], (1, self.count - 1, *([1] * len(self._rest))))
        fits: list[Padding] = []
        if np.array_equal(rest, newest):
            fits.append("repeat")
        if not rest.any():
            fits.append("zero")
        if self.padding is None and len(fits) == 1:
            self.padding = fits[0]
        if not fits or (self.padding is not None and self.padding not in fits):
            self._refuse("an episode begins neither with one frame repeated nor with zeros")

    def _refuse(self, problem: str) -> None:
        raise ConfigError(f"{self.where}.frames", f"{problem}, so stacks cannot be rebuilt", "set it to 1")

    def gather(self, take: Callable[[Array, Array], Any], b: Array, a: Array, age: Array, out: Array) -> None:
        """Fill `out` [N, C, H, W] with the stacks at slots `a`, never reaching into an earlier episode."""
        for back in range(self.count):
            place = self.older(out, back)
            missing = age < back
            frame = take(b, a - np.minimum(age, back))
            if self.padding == "zero" and missing.any():
                frame[missing] = 0
            place[...] = frame

    def state_dict(self) -> dict[str, Any]:
        """What was learned about episode starts."""
        return {"padding": self.padding}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with that."""
        self.padding = state["padding"]
