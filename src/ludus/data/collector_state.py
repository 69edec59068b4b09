"""What a checkpoint holds of a collector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ludus.types import State, check_form, tree_map

if TYPE_CHECKING:
    from ludus.data.collector import Collector


def state_of(collector: Collector) -> State:
    """Environments, memory, open episodes and statistics."""
    resets = collector.resets_at_checkpoints
    return {
        "snapshot_method": collector.env.choose_snapshot_method(),
        "env": None if resets else collector.env.snapshot(),
        "barrier_seeds": collector.barrier_seeds if resets else None,
        **_own(collector),
    }


def _own(collector: Collector) -> State:
    return {
        "obs": collector.newest_obs,
        "first": collector.first,
        "memory": collector.state,
        **collector.episodes.state_dict(),
        "steps": collector.steps,
    }


def load(collector: Collector, state: State) -> None:
    """Go on exactly where the state was taken."""
    if state["env"] is None:
        collector.barrier(state["barrier_seeds"])
    else:
        check_form({name: ours for name, ours in _own(collector).items() if name != "memory"}, state)
        collector.env.restore(state["env"])
        collector.newest_obs, collector.first = tree_map(np.array, state["obs"]), np.array(state["first"])
        collector.state = state["memory"]
        episodes = collector.episodes
        episodes.open_return, episodes.open_length = np.array(state["return"]), np.array(state["length"])
    collector.episodes.load_state_dict(state)
    collector.steps = state["steps"]
