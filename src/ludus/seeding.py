"""Independent random streams by name, all derived from the one seed of a run."""

from __future__ import annotations

import zlib

import numpy as np


class Streams:
    """Children of a `SeedSequence` by name: a new stream changes no other, and neighbouring seeds share nothing."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _sequence(self, name: str) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.seed, zlib.crc32(name.encode())])

    def generator(self, name: str) -> np.random.Generator:
        """The generator of the stream `name`."""
        return np.random.Generator(np.random.PCG64(self._sequence(name)))

    def integers(self, name: str, count: int) -> list[int]:
        """Seeds below 2**31, for libraries that take plain integers."""
        return [int(word >> 1) for word in self._sequence(name).generate_state(count, np.uint32)]
