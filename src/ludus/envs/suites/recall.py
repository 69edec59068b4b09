"""Card games of memory in the style of POPGym (Morad et al., 2023): all is shown once, little of it at a time.

The answers of an episode share one unit of reward: all right return 1, all wrong -1. Sizes are those of POPGym: decks
of 52 cards. Shapes: B rows, N cards of an episode.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.envs.vector.tasks import VectorTask, register_task
from ludus.types import Array

DECK, SUITS = 52, 4
OPTIMAL = 1.0
"""Return with perfect memory."""
THRESHOLD = 0.9
LEVELS = ("Easy", "Medium", "Hard")
Rows = slice
"""Some rows of a vector."""


class Cards(VectorTask, abc.ABC):
    """A shuffled pile, one card a step, gone through `rounds` times. Answers count after the first `watched` steps."""

    state: ClassVar[tuple[str, ...]] = ("_cards", "_at")

    def __init__(
        self, num: int, decks: int, kinds: int, width: int, answers: int, *, watched: int = 0, rounds: int = 1
    ) -> None:
        if decks < 1:
            raise ValueError(f"decks must be at least 1, got {decks}")
        super().__init__(num, Box(0.0, 1.0, (width,), np.float32), Discrete(answers), THRESHOLD)
        self._kinds, self._pile = kinds, np.arange(DECK * decks) % kinds
        self._cards = np.zeros((num, len(self._pile)), np.int64)
        self._at, self._rows = np.zeros(num, np.int64), np.arange(num)
        self._watched, self._steps = watched, rounds * len(self._pile)
        self.chance = 2 / answers - 1
        """Mean return of uniformly random answers."""

    @abc.abstractmethod
    def correct(self) -> Array:
        """The right answers [B] to what is shown."""

    def show(self, rows: Rows) -> None:
        """Write the observations of some rows: first of all the kind of this step's card."""
        self.obs[rows, : self._kinds] = _one_hot(self._card(rows, self._at[rows]), self._kinds)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Shuffle the pile of a row."""
        self._cards[i] = rng.permutation(self._pile)
        self._at[i] = 0
        self.show(slice(i, i + 1))

    def step(self, action: Array) -> None:
        """Pay for the answers and show the next cards."""
        right = np.where(action == self.correct(), 1, -1)
        share = (self._at >= self._watched) / (self._steps - self._watched)
        np.multiply(right, share, self.reward, casting="same_kind")
        self._at += 1
        np.greater_equal(self._at, self._steps, self.terminated)
        self.show(slice(None))

    def _card(self, rows: Rows, at: Array) -> Array:
        """Card number `at` of each row, limited to the cards of the pile."""
        return self._cards[self._rows[rows], np.clip(at, 0, len(self._pile) - 1)]


class RepeatPrevious(Cards):
    """Name the suit shown `k` steps ago."""

    def __init__(self, num: int, decks: int = 1, k: int = 4) -> None:
        super().__init__(num, decks, SUITS, SUITS, SUITS, watched=k)
        if not 0 < k < self._steps:
            raise ValueError(f"k must lie between 1 and {self._steps - 1}, got {k}")

    def correct(self) -> Array:
        """The suit of `k` steps ago."""
        return self._card(slice(None), self._at - self._watched)


class RepeatFirst(Cards):
    """Name the very first suit, again and again; its card is marked."""

    def __init__(self, num: int, decks: int = 1) -> None:
        super().__init__(num, decks, SUITS, SUITS + 1, SUITS, watched=1)

    def correct(self) -> Array:
        """The first suit."""
        return self._cards[:, 0]

    def show(self, rows: Rows) -> None:
        """The suit of this step, and whether it is the first."""
        super().show(rows)
        self.obs[rows, SUITS] = self._at[rows] == 0


class Autoencode(Cards):
    """Watch a pile, then name its suits from the last to the first; the last entry tells that it is time to."""

    def __init__(self, num: int, decks: int = 1) -> None:
        super().__init__(num, decks, SUITS, SUITS + 1, SUITS, watched=DECK * decks, rounds=2)

    def correct(self) -> Array:
        """The suits backwards."""
        return self._card(slice(None), self._steps - 1 - self._at)

    def show(self, rows: Rows) -> None:
        """The suit of this step, nothing once answers are asked for."""
        super().show(rows)
        asks = self._at[rows] >= self._watched
        self.obs[rows, :SUITS] *= ~asks[:, None]
        self.obs[rows, SUITS] = asks


class CountRecall(Cards):
    """How many cards of the kind asked for have been shown so far, this one included?

    `kinds`: 2 colours, 4 suits or 13 ranks.
    """

    state = ("_cards", "_at", "_asked")

    def __init__(self, num: int, decks: int = 1, kinds: int = 2) -> None:
        if DECK % kinds:
            raise ValueError(f"kinds must divide {DECK}, got {kinds}")
        super().__init__(num, decks, kinds, 2 * kinds, DECK * decks // kinds + 1)
        self._asked = np.zeros_like(self._cards)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw the questions, then shuffle."""
        self._asked[i] = rng.integers(self._kinds, size=len(self._pile))
        super().begin(i, rng)

    def correct(self) -> Array:
        """The counts of the kinds asked for."""
        seen = np.arange(len(self._pile)) <= self._at[:, None]
        asked = self._asked[self._rows, self._at]
        return np.count_nonzero(seen & (self._cards == asked[:, None]), axis=1)

    def show(self, rows: Rows) -> None:
        """The kind of this step's card and the kind asked for."""
        super().show(rows)
        at = np.minimum(self._at[rows], len(self._pile) - 1)
        self.obs[rows, self._kinds :] = _one_hot(self._asked[self._rows[rows], at], self._kinds)


class Concentration(VectorTask):
    """Turn up pairs of equal cards, two at a time; cards that do not match are turned down again.

    An action flips one card; every pair found pays its share of 1; an episode has two flips for every card, which is
    enough with perfect memory: one look at every card and one more flip for each.
    """

    state = ("_faces", "_up", "_first", "_second", "_age")

    def __init__(self, num: int, pairs: int = 4) -> None:
        if pairs < 2:
            raise ValueError(f"pairs must be at least 2, got {pairs}")
        cards = 2 * pairs
        super().__init__(num, Box(0.0, 1.0, (cards * (pairs + 1),), np.float32), Discrete(cards), THRESHOLD)
        self._pairs, self._limit, self._rows = pairs, 2 * cards, np.arange(num)
        self._pile = np.repeat(np.arange(pairs), 2)
        self._faces, self._up = np.zeros((num, cards), np.int64), np.zeros((num, cards), bool)
        self._first, self._second, self._age = np.zeros((3, num), np.int64)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Shuffle the cards of a row, face down."""
        self._faces[i] = rng.permutation(self._pile)
        self._up[i], self._age[i] = False, 0
        self._first[i] = self._second[i] = -1
        self._show(slice(i, i + 1))

    def step(self, action: Array) -> None:
        """Flip one card of each row."""
        rows, up, first, second = self._rows, self._up, self._first, self._second
        both = np.flatnonzero(second >= 0)  # the last two did not match
        up[both, first[both]] = up[both, second[both]] = False
        first[both] = second[both] = -1
        fresh = ~up[rows, action]  # a card that is face up is no choice
        up[rows, action] = True
        opens, closes = fresh & (first < 0), fresh & (first >= 0)
        match = closes & (self._faces[rows, first] == self._faces[rows, action])
        np.copyto(second, action, where=closes & ~match)
        np.copyto(first, action, where=opens)
        first[match] = -1
        self.reward[...] = match / self._pairs
        self._age += 1
        np.all(up, axis=1, out=self.terminated)
        self.terminated &= second < 0
        self.terminated |= self._age >= self._limit
        self._show(slice(None))

    def _show(self, rows: Rows) -> None:
        """One-hot for each card: face down, or which one it is."""
        shown = np.where(self._up[rows], self._faces[rows] + 1, 0)
        kinds = shown[:, :, None] == np.arange(self._pairs + 1)
        self.obs[rows] = kinds.reshape(len(kinds), -1)


def _one_hot(kind: Array, count: int) -> Array:
    hot: Array = kind[:, None] == np.arange(count)
    return hot


GAMES: dict[type[VectorTask], tuple[dict[str, int], ...]] = {
    RepeatPrevious: ({"decks": 1, "k": 4}, {"decks": 2, "k": 32}, {"decks": 3, "k": 64}),
    RepeatFirst: ({"decks": 1}, {"decks": 8}, {"decks": 16}),
    Autoencode: ({"decks": 1}, {"decks": 2}, {"decks": 3}),
    CountRecall: ({"decks": 1, "kinds": 2}, {"decks": 2, "kinds": 4}, {"decks": 4, "kinds": 13}),
    Concentration: ({"pairs": 4}, {"pairs": 8}, {"pairs": 16}),
}
"""Arguments of the three levels."""
for _game, _levels in GAMES.items():
    for _level, _kwargs in zip(LEVELS, _levels, strict=True):
        register_task(f"Recall/{_game.__name__}{_level}-v0", _game, kwargs=_kwargs)
