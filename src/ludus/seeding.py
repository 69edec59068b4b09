"""Independent random streams by name, all derived from the one seed of a run."""

from __future__ import annotations

import zlib

import numpy as np


class Streams:
    """Children of a `SeedSequence` by name: a new stream changes no other, and neighbouring seeds share nothing.

    One of several `ranks` has generators of its own, and its part of all ranks' integers: an environment has the same
    seed whichever rank steps it.
    """

    def __init__(self, seed: int, rank: int = 0, ranks: int = 1) -> None:
        self.seed, self.rank, self.ranks = seed, rank, ranks

    def _sequence(self, name: str, *more: int) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.seed, zlib.crc32(name.encode()), *more])

    def generator(self, name: str) -> np.random.Generator:
        """The generator of the stream `name`."""
        own = [self.rank] if self.rank else []
        return np.random.Generator(np.random.PCG64(self._sequence(name, *own)))

    def integers(self, name: str, count: int) -> list[int]:
        """Seeds below 2**31, for libraries that take plain integers."""
        words = self._sequence(name).generate_state(count * self.ranks, np.uint32)
        return [int(word >> 1) for word in words[count * self.rank : count * (self.rank + 1)]]
