"""Mean and variance of a stream, exact however it is cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ludus.types import Array


class Moments(NamedTuple):
    """Number, mean and sum of squared deviations of some samples."""

    number: int
    mean: Array
    squares: Array


Everyone = Callable[[Moments], Iterable[Moments]]


class RunningMoments:
    """Batched Welford (Chan et al. 1979) in float64: count, mean, sum of squared deviations."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self._squares = np.zeros(shape)

    @property
    def var(self) -> Array:
        """Population variance; ones before the first sample, so that dividing by it changes nothing."""
        return self._squares / self.count if self.count else np.ones_like(self._squares)

    @property
    def std(self) -> Array:
        """Population deviation."""
        return np.sqrt(self.var)

    def update(self, batch_N: Array, everyone: Everyone = lambda own: [own]) -> None:
        """Take in a batch of samples [N, ...]; shape[1:] must be the shape of one sample.

        `everyone` has the moments of the batches that several processes take in together.
        """
        assert batch_N.shape[1:] == self.mean.shape, f"{batch_N.shape[1:]} is not {self.mean.shape}"
        if len(batch_N) == 0:
            return
        mean = batch_N.mean(axis=0, dtype=np.float64)
        for moments in everyone(Moments(len(batch_N), mean, np.square(batch_N - mean).sum(axis=0))):
            self.merge(moments)

    def merge(self, other: Moments) -> None:
        """Take in samples of which only the moments are known."""
        total = self.count + other.number
        shift = other.mean - self.mean
        self._squares = self._squares + other.squares + np.square(shift) * (self.count * other.number / total)
        self.mean = self.mean + shift * (other.number / total)
        self.count = total

    def state_dict(self) -> dict[str, Array]:
        """Arrays, fit for a checkpoint."""
        return {"count": np.array(self.count), "mean": self.mean.copy(), "squares": self._squares.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state of the same shape."""
        mean, squares = (np.array(state[key], np.float64) for key in ("mean", "squares"))
        if mean.shape != self.mean.shape or squares.shape != self.mean.shape:
            raise ValueError(f"saved moments have shape {mean.shape}, not {self.mean.shape}")
        self.count, self.mean, self._squares = int(state["count"]), mean, squares
