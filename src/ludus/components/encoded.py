"""What V saw of all stored steps: the data that M learns from, and the images that dreams begin with.

Shapes: T rows, N sequences, B of them, Z latent numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ludus.types import Array, State

COLUMNS = ("posterior", "action", "reward", "first", "terminal")


def row_bytes(latent: int) -> int:
    """About what one row takes: mean and log variance of every latent number, the rest of the columns."""
    return 8 * latent + 16


class Encoded:
    """Sequences of rows with the posteriors of V in place of images."""

    def __init__(self) -> None:
        self.stamp: list[int] = []
        """What it was made from; empty: nothing was encoded yet."""
        self.columns: dict[str, Array] = {}
        self._starts = np.zeros((0, 0), np.float32)

    def keep(self, found: Sequence[dict[str, Array]], stamp: list[int]) -> None:
        """Take over sequences [T, N, ...]."""
        joined = {name: np.concatenate([part[name] for part in found], 1) for name in (*COLUMNS, "known")}
        begun = joined["first"] & joined["known"]  # a sequence that is cut out of an episode begins nothing
        posterior = joined["posterior"]
        self._starts = posterior[begun] if begun.any() else posterior.reshape(-1, posterior.shape[-1])
        self.columns, self.stamp = {name: joined[name] for name in COLUMNS}, list(stamp)

    def draw(self, batch: int, rng: np.random.Generator) -> dict[str, Array]:
        """[T, B] of sequences at random."""
        chosen = rng.integers(self.columns["first"].shape[1], size=batch)
        return {name: column[:, chosen] for name, column in self.columns.items()}

    def starts(self, count: int, rng: np.random.Generator) -> Array:
        """Posteriors [count, 2 Z] of images that began an episode."""
        return self._starts[rng.integers(len(self._starts), size=count)]

    def state_dict(self) -> State:
        """All of it: encoding again would take as long as it did."""
        return {"stamp": list(self.stamp), "columns": dict(self.columns), "starts": self._starts}

    def load_state_dict(self, state: State) -> None:
        """Go on exactly where the state was taken."""
        self.stamp = [int(number) for number in state["stamp"]]
        self.columns = {name: np.array(column) for name, column in state["columns"].items()}
        self._starts = np.array(state["starts"])
