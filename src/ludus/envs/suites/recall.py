"""Card games of memory in the style of POPGym (Morad et al., 2023): everything was shown, little of it at once.

Right and wrong answers share one unit of reward, so that perfect memory returns 1 and no answer right returns -1. Sizes
are those of POPGym: decks of 52 cards. Shapes: B rows, N cards of an episode.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.envs.vector.tasks import TaskEnv, VectorTask
from ludus.types import Array

DECK, SUITS = 52, 4
OPTIMAL = 1.0
THRESHOLD = 0.9
LEVELS = ("Easy", "Medium", "Hard")


class Cards(VectorTask, abc.ABC):
    """A shuffled pile, one card a step; an episode ends with its last answer."""

    state: ClassVar[tuple[str, ...]] = ("_cards", "_at")

    def __init__(self, num: int, decks: int, kinds: int, width: int, answers: int) -> None:
        if decks < 1:
            raise ValueError(f"decks must be at least 1, got {decks}")
        super().__init__(num, Box(0.0, 1.0, (width,), np.float32), Discrete(answers), THRESHOLD)
        self._pile = np.arange(DECK * decks) % kinds
        self._cards = np.zeros((num, len(self._pile)), np.int64)
        self._at, self._rows = np.zeros(num, np.int64), np.arange(num)
        self.chance = 2 / answers - 1
        """Mean return of uniformly random answers."""

    @abc.abstractmethod
    def correct(self) -> tuple[Array, Array]:
        """The right answers [B] to what is shown, and whether they count [B]."""

    @abc.abstractmethod
    def show(self, rows: Any) -> None:
        """Observations of some rows."""

    @property
    @abc.abstractmethod
    def questions(self) -> int:
        """Answers that count in an episode; the steps before the first one are for watching."""

    @property
    def steps(self) -> int:
        """Length of an episode."""
        return len(self._pile)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        self._cards[i] = rng.permutation(self._pile)
        self._at[i] = 0
        self.show(slice(i, i + 1))

    def step(self, action: Array) -> None:
        answer, counts = self.correct()
        np.multiply(np.where(action == answer, 1, -1), counts / self.questions, self.reward, casting="same_kind")
        self._at += 1
        np.greater_equal(self._at, self.steps, self.terminated)
        self.truncated.fill(False)
        self.show(slice(None))

    def _card(self, rows: Any, at: Array) -> Array:
        """Card number `at` of each row, the last one after the end."""
        return self._cards[self._rows[rows], np.minimum(at, len(self._pile) - 1)]


class RepeatPrevious(Cards):
    """Name the suit shown `k` steps ago."""

    def __init__(self, num: int, decks: int = 1, k: int = 4) -> None:
        super().__init__(num, decks, SUITS, SUITS, SUITS)
        if not 0 < k < len(self._pile):
            raise ValueError(f"k must lie between 1 and {len(self._pile) - 1}, got {k}")
        self._k = k

    @property
    def questions(self) -> int:
        return len(self._pile) - self._k

    def correct(self) -> tuple[Array, Array]:
        back = self._at - self._k
        return self._card(slice(None), np.maximum(back, 0)), back >= 0

    def show(self, rows: Any) -> None:
        self.obs[rows] = _one_hot(self._card(rows, self._at[rows]), SUITS)


class RepeatFirst(Cards):
    """Name the very first suit, again and again; its card is marked."""

    def __init__(self, num: int, decks: int = 1) -> None:
        super().__init__(num, decks, SUITS, SUITS + 1, SUITS)

    @property
    def questions(self) -> int:
        return len(self._pile) - 1

    def correct(self) -> tuple[Array, Array]:
        return self._cards[:, 0], self._at > 0

    def show(self, rows: Any) -> None:
        at = self._at[rows]
        self.obs[rows, :SUITS] = _one_hot(self._card(rows, at), SUITS)
        self.obs[rows, SUITS] = at == 0


class Autoencode(Cards):
    """Watch a pile, then name its suits from the last to the first; the last entry tells that it is time to."""

    def __init__(self, num: int, decks: int = 1) -> None:
        super().__init__(num, decks, SUITS, SUITS + 1, SUITS)

    @property
    def questions(self) -> int:
        return len(self._pile)

    @property
    def steps(self) -> int:
        return 2 * len(self._pile)

    def correct(self) -> tuple[Array, Array]:
        asked = self._at - len(self._pile)
        return self._card(slice(None), np.maximum(len(self._pile) - 1 - asked, 0)), asked >= 0

    def show(self, rows: Any) -> None:
        at = self._at[rows]
        asks = at >= len(self._pile)
        self.obs[rows, :SUITS] = _one_hot(self._card(rows, at), SUITS) * ~asks[:, None]
        self.obs[rows, SUITS] = asks


class CountRecall(Cards):
    """How many cards of the kind asked for have been shown so far, this one included?"""

    state = ("_cards", "_at", "_asked")

    def __init__(self, num: int, decks: int = 1, kinds: int = 2) -> None:
        if DECK % kinds:
            raise ValueError(f"kinds must divide {DECK}, got {kinds}")
        super().__init__(num, decks, kinds, 2 * kinds, DECK * decks // kinds + 1)
        self._kinds, self._asked = kinds, np.zeros_like(self._cards)

    @property
    def questions(self) -> int:
        return len(self._pile)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        self._asked[i] = rng.integers(self._kinds, size=len(self._pile))
        super().begin(i, rng)

    def correct(self) -> tuple[Array, Array]:
        seen = np.arange(len(self._pile)) <= self._at[:, None]
        asked = self._asked[self._rows, self._at]
        return np.count_nonzero(seen & (self._cards == asked[:, None]), axis=1), np.ones(self.num, bool)

    def show(self, rows: Any) -> None:
        at = np.minimum(self._at[rows], len(self._pile) - 1)
        self.obs[rows, : self._kinds] = _one_hot(self._card(rows, at), self._kinds)
        self.obs[rows, self._kinds :] = _one_hot(self._asked[self._rows[rows], at], self._kinds)


class RepeatPreviousEnv(TaskEnv):
    """One table of RepeatPrevious."""

    def __init__(self, decks: int = 1, k: int = 4, render_mode: str | None = None) -> None:
        """`k`: how many steps back."""
        super().__init__(RepeatPrevious(1, decks, k), render_mode)


class RepeatFirstEnv(TaskEnv):
    """One table of RepeatFirst."""

    def __init__(self, decks: int = 1, render_mode: str | None = None) -> None:
        super().__init__(RepeatFirst(1, decks), render_mode)


class AutoencodeEnv(TaskEnv):
    """One table of Autoencode."""

    def __init__(self, decks: int = 1, render_mode: str | None = None) -> None:
        super().__init__(Autoencode(1, decks), render_mode)


class CountRecallEnv(TaskEnv):
    """One table of CountRecall."""

    def __init__(self, decks: int = 1, kinds: int = 2, render_mode: str | None = None) -> None:
        """`kinds`: 2 colours, 4 suits or 13 ranks."""
        super().__init__(CountRecall(1, decks, kinds), render_mode)


def _one_hot(kind: Array, count: int) -> Array:
    return kind[:, None] == np.arange(count)


GAMES: dict[str, tuple[dict[str, int], ...]] = {
    "RepeatPrevious": ({"decks": 1, "k": 4}, {"decks": 2, "k": 32}, {"decks": 3, "k": 64}),
    "RepeatFirst": ({"decks": 1}, {"decks": 8}, {"decks": 16}),
    "Autoencode": ({"decks": 1}, {"decks": 2}, {"decks": 3}),
    "CountRecall": ({"decks": 1, "kinds": 2}, {"decks": 2, "kinds": 4}, {"decks": 4, "kinds": 13}),
}
"""Arguments of the three levels."""


def register(module: str, games: dict[str, tuple[dict[str, int], ...]]) -> None:
    """`Recall/<Game><Level>-v0`"""
    for game, levels in games.items():
        for level, kwargs in zip(LEVELS, levels, strict=True):
            id = f"Recall/{game}{level}-v0"
            if id not in gym.registry:
                gym.register(id, f"{module}:{game}Env", vector_entry_point=f"{module}:{game}", kwargs=kwargs)


register(__name__, GAMES)
