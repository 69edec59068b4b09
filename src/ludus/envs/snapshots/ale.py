"""The Arcade Learning Environment: its emulator's state with the generator behind sticky actions."""

from __future__ import annotations

from typing import Any

import numpy as np


def take(ale: Any) -> dict[str, Any]:
    """State of an ALEInterface."""
    return {"system": np.frombuffer(ale.cloneState(include_rng=True).serialize(), np.uint8)}


def give(ale: Any, state: dict[str, Any]) -> None:
    """Into an ALEInterface with the same game."""
    import ale_py

    ale.restoreState(ale_py.ALEState(state["system"].astype(np.uint8).tobytes()))
