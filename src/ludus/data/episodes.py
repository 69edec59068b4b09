"""Statistics of the episodes that training finished: raw rewards, whatever the learner sees of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ludus.types import Array, State

WINDOW = 100
"""Episodes in the running statistics."""


class Episodes:
    """Returns and lengths of the newest finished episodes, and of those that are open."""

    open_return: Array
    """[B]"""
    open_length: Array
    """[B]"""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.count = 0
        self.best_return = -np.inf
        self.gather: Callable[[dict[str, float]], list[dict[str, float]]] = lambda own: [own]
        """The statistics of the episodes of every rank."""

    def begin(self, num_envs: int) -> None:
        """All environments begin an episode."""
        self.open_return, self.open_length = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def end(self, over: Array, broken: Array | None) -> None:
        """Count the episodes that are over; those of a broken worker are left out."""
        for b in over.nonzero()[0]:
            if broken is None or not broken[b]:
                self.returns.append(float(self.open_return[b]))
                self.lengths.append(int(self.open_length[b]))
                self.count, self.best_return = self.count + 1, max(self.best_return, self.returns[-1])
            self.open_return[b], self.open_length[b] = 0.0, 0

    def statistics(self) -> dict[str, float]:
        """Means over the window; of several ranks, of all their episodes."""
        own: dict[str, float] = {}
        if self.returns:
            own = {
                "roll/ep_rew/mean": float(np.mean(self.returns)),
                "roll/ep_rew/last": self.returns[-1],
                "roll/ep_rew/best": float(self.best_return),
                "roll/ep_len/mean": float(np.mean(self.lengths)),
                "roll/episodes": float(self.count),
            }
        found = [statistics for statistics in self.gather(own) if statistics]
        if len(found) < 2:
            return found[0] if found else {}
        merge: dict[str, Callable[..., Any]] = {"roll/ep_rew/best": np.max, "roll/episodes": np.sum}
        return {key: float(merge.get(key, np.mean)([one[key] for one in found])) for key in found[0]}

    def state_dict(self) -> State:
        """Finished and open episodes."""
        return {
            "return": self.open_return,
            "length": self.open_length,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "episodes": self.count,
            "best_return": float(self.best_return),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on with the finished ones; the open ones go on only where their environments do."""
        self.returns = deque(map(float, state["returns"]), WINDOW)
        self.lengths = deque(map(int, state["lengths"]), WINDOW)
        self.count, self.best_return = state["episodes"], state["best_return"]
