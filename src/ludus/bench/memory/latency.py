"""Measures the time of one decision."""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from ludus.acting.numpy_actor import make_actor
from ludus.bench.memory.matching import spaces_of
from ludus.config.schema import ExperimentConfig
from ludus.networks.policy import Policy
from ludus.types import zeros

FILLED = 128
"""Untimed steps: a transformer reads more at each step until its memory is full."""
TIMED = 200


def decision_ms(config: ExperimentConfig) -> float:
    """Median milliseconds of one action for one environment, on one thread, after `FILLED` steps."""
    spaces, threads = spaces_of(config), torch.get_num_threads()
    policy = Policy(config.network, spaces)
    actor = make_actor(policy.trunk, policy.heads)
    obs = zeros(spaces.observation, 1)
    state, first, times = actor.initial_state(1), np.ones(1, bool), []
    torch.set_num_threads(1)
    try:
        for _ in range(FILLED + TIMED):
            begin = time.perf_counter()
            outputs, state = actor(obs, state, first)
            outputs("actor")
            times.append(time.perf_counter() - begin)
            first = np.zeros(1, bool)
    finally:
        torch.set_num_threads(threads)
    return 1e3 * statistics.median(times[FILLED:])
