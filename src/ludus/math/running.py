"""Mean and variance of a stream, exact however it is cut into batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.types import Array


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

    def update(self, batch_N: Array) -> None:
        """Take in a batch of samples [N, ...]; shape[1:] must be the shape of one sample."""
        assert batch_N.shape[1:] == self.mean.shape, f"{batch_N.shape[1:]} is not {self.mean.shape}"
        added = len(batch_N)
        if added == 0:
            return
        total = self.count + added
        mean = batch_N.mean(axis=0, dtype=np.float64)
        shift = mean - self.mean
        self._squares = (
            self._squares + np.square(batch_N - mean).sum(axis=0) + np.square(shift) * (self.count * added / total)
        )
        self.mean = self.mean + shift * (added / total)
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
