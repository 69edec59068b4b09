"""The Arcade Learning Environment: its emulator's state, and the action that a sticky frame would repeat.

The state that ALE clones has the generator behind sticky actions, but not the action it holds on to, and nothing tells
that one. It is found out: the frames to come are emulated once as they are, then with each action held until one gives
the very same states. That action is exactly as good, for as soon as a frame is not sticky it is forgotten. Some games
(Qbert) also go on from a cloned state in one way right after a reset and in another later on, so that is repeated, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ludus.envs.snapshots import Refused
from ludus.types import State

Emulator = Any
"""ALEInterface, and the objects that it returns."""
FRAMES = 12
"""Frames to look at: the chance that all of them repeat the action is 0.25 ^ 12."""
PUSHES = 20
"""Times an action is given until the emulator holds it."""


def take(ale: Emulator) -> State:
    """State of an ALEInterface, which goes on unchanged; raises Refused if the held action cannot be found."""
    state = ale.cloneState(include_rng=True)
    begun = ale.getEpisodeFrameNumber() > 0
    truth = list(_future(ale))
    for action in ale.getLegalActionSet():
        _put(ale, action, begun, state)
        if all(a == b for a, b in zip(_future(ale), truth, strict=True)):
            _put(ale, action, begun, state)
            return {"system": np.frombuffer(state.serialize(), np.uint8), "held": action.value, "begun": begun}
    raise Refused("no action explains what the emulator does next")


def give(ale: Emulator, state: State) -> None:
    """Load a state into an ALEInterface with the same game."""
    import ale_py

    system = ale_py.ALEState(state["system"].astype(np.uint8).tobytes())
    _put(ale, ale_py.Action(state["held"]), state["begun"], system)


def _put(ale: Emulator, action: Emulator, begun: bool, state: Emulator) -> None:
    for _ in range(PUSHES):
        ale.act(action)
    if not begun:
        ale.reset_game()
    ale.restoreState(state)


def _future(ale: Emulator) -> Iterator[bytes]:
    import ale_py

    for _ in range(FRAMES):
        ale.act(ale_py.Action.NOOP)
        yield ale.cloneState(include_rng=True).serialize()
