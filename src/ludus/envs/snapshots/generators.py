"""Random generators as data: numpy's two kinds and Python's own."""

from __future__ import annotations

import random

import numpy as np

from ludus.types import Leaf, State, Tree

Generator = np.random.Generator | np.random.RandomState | random.Random
KINDS: dict[type, str] = {np.random.Generator: "generator", np.random.RandomState: "legacy", random.Random: "python"}
"""Exact types: a subclass may have more state."""
_BITS: State = {
    cls.__name__: cls
    for cls in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


def pack(generator: Generator) -> State:
    """State, and for numpy's generators the seed sequence, from which `spawn` draws."""
    if isinstance(generator, random.Random):
        version, words, gauss = generator.getstate()
        return {"version": version, "words": np.array(words, np.uint64), "gauss": gauss}
    if isinstance(generator, np.random.RandomState):
        return {"state": generator.get_state(legacy=False), "seed": None}
    bits = generator.bit_generator
    seed = bits.seed_seq
    return {"state": bits.state, "seed": _seed(seed) if type(seed) is np.random.SeedSequence else None}


def unpack(kind: str, packed: State) -> Leaf:
    """A new generator with this state; KeyError, TypeError or ValueError for invalid data."""
    if kind == "python":
        python = random.Random()
        python.setstate((packed["version"], tuple(packed["words"].tolist()), packed["gauss"]))
        return python
    state = _plain(packed["state"])
    if kind == "legacy":
        legacy = np.random.RandomState(_BITS[state["bit_generator"]]())
        legacy.set_state(state)
        return legacy
    seed = packed["seed"]
    bits = _BITS[state["bit_generator"]](None if seed is None else np.random.SeedSequence(**_plain(seed)))
    bits.state = state
    return np.random.Generator(bits)


def _seed(seed: np.random.SeedSequence) -> State:
    return {**seed.state, "entropy": seed.entropy, "spawn_key": list(seed.spawn_key)}


def _plain(state: Tree) -> Tree:
    """A copy in plain containers."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return np.array(state) if isinstance(state, np.ndarray) else state
