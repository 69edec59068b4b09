"""CMA-ES (Hansen & Ostermeier 2001) over flat weights, with a state that checkpoints can hold.

The `cmaes` library does the arithmetic. Its state is copied out number by number, never pickled, and the
decomposition that a generation was drawn with is part of it: computed anew it would be rounded differently.
Shapes: K candidates, P weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ludus.types import Array, State

if TYPE_CHECKING:
    from cmaes import CMA

ARRAYS = ("mean", "C", "pc", "p_sigma")
DECOMPOSED = ("B", "D")
"""Between drawing a generation and judging it."""


def bytes_of_generation(weights: int, candidates: int) -> int:
    """Most that `cmaes` holds at once: covariances, and two products [P, P] for every candidate that is judged."""
    return 8 * weights**2 * (2 * candidates + 6)


class Evolution:
    """A Gaussian over weights: a generation is drawn from it, judged, and moves it towards the best."""

    def __init__(self, weights: int, *, sigma: float, population: int, seed: int) -> None:
        from cmaes import CMA  # it brings parts of SciPy along, which take most of a second

        self._cma: CMA = CMA(mean=np.zeros(weights), sigma=sigma, population_size=population, seed=seed)
        self.candidates: Array | None = None
        """[K, P] that are being judged; None between generations."""

    @property
    def generation(self) -> int:
        """Generations that were judged."""
        return int(self._cma.generation)

    @property
    def mean(self) -> Array:
        """[P]: the middle of the Gaussian."""
        return self._cma.mean

    @property
    def sigma(self) -> float:
        """The step size."""
        return float(self._cma._sigma)

    def ask(self) -> Array:
        """The candidates [K, P] of this generation; the same ones until they are judged."""
        if self.candidates is None:
            self.candidates = np.stack([self._cma.ask() for _ in range(self._cma.population_size)])
        return self.candidates

    def tell(self, score_K: Array) -> None:
        """Judge the generation: a higher score is better."""
        assert self.candidates is not None, "nothing was asked for"
        self._cma.tell([(weights, -float(score)) for weights, score in zip(self.candidates, score_K, strict=True)])
        self.candidates = None

    def state_dict(self) -> State:
        """Numbers, arrays, and the state of the random stream."""
        known = [name for name in DECOMPOSED if getattr(self._cma, f"_{name}") is not None]
        random = self._cma._rng.get_state(legacy=False)
        return {
            "sigma": self.sigma,
            "generation": self.generation,
            "arrays": {name: np.array(getattr(self._cma, f"_{name}")) for name in (*ARRAYS, *known)},
            "candidates": None if self.candidates is None else self.candidates.copy(),
            "random": {"key": random["state"]["key"].astype(np.int64), "pos": int(random["state"]["pos"])},
            "spare": [int(random["has_gauss"]), float(random["gauss"])],
        }

    def begin_with(self, state: State) -> bool:
        """Search on from where another evolution is, with a random stream of its own; False if it does not fit."""
        arrays = state.get("arrays", {})
        if np.shape(arrays.get("mean")) != self.mean.shape:
            return False
        self._cma._sigma, self._cma._g = float(state["sigma"]), int(state["generation"])
        for name in ARRAYS:
            setattr(self._cma, f"_{name}", np.array(arrays[name], np.float64))
        self._cma._B = self._cma._D = self.candidates = None
        return True

    def load_state_dict(self, state: State) -> None:
        """Go on exactly where the state was taken."""
        self._cma._sigma, self._cma._g = float(state["sigma"]), int(state["generation"])
        for name in ARRAYS + DECOMPOSED:
            found = state["arrays"].get(name)
            setattr(self._cma, f"_{name}", None if found is None else np.array(found, np.float64))
        self.candidates = None if state["candidates"] is None else np.array(state["candidates"], np.float64)
        words, (spare, normal) = np.array(state["random"]["key"]).astype(np.uint32), state["spare"]
        inside = {"key": words, "pos": int(state["random"]["pos"])}
        self._cma._rng.set_state(
            {"bit_generator": "MT19937", "state": inside, "has_gauss": int(spare), "gauss": float(normal)}
        )
