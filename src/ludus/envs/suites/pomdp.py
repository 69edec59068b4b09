"""Finite POMDPs with a horizon, small enough to be solved exactly: Tiger, RiverSwim and random ones with one reward.

Shapes: S states, A actions, O observations, H steps, B rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from ludus.envs.vector.tasks import VectorTask, register_task
from ludus.types import Array


class PomdpModel(NamedTuple):
    """A finite POMDP as tables."""

    start: Array
    """[S] probabilities of the first state"""
    transition: Array
    """[A, S, S'] probabilities"""
    emission: Array
    """[A, S', O] probabilities"""
    reward: Array
    """[A, S]"""
    horizon: int

    @property
    def silence(self) -> int:
        """The first observation of an episode; it says nothing about the state and does not come up again."""
        return int(self.emission.shape[2])


class Pomdp(VectorTask):
    """Episodes of a model; they terminate at its horizon."""

    state = ("_at", "_age", "_luck")

    def __init__(self, num: int, model: PomdpModel, threshold: float | None = None) -> None:
        super().__init__(num, Discrete(model.silence + 1), Discrete(len(model.reward)), threshold)
        self.model = model
        self._start, self._move = np.cumsum(model.start)[:-1], np.cumsum(model.transition, axis=2)[..., :-1]
        self._emit = np.cumsum(model.emission, axis=2)[..., :-1]
        self._pay = model.reward.astype(np.float32)
        self._at, self._age = np.zeros((2, num), np.int64)
        self._luck = np.zeros((num, model.horizon, 2))
        self._rows = np.arange(num)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw the first state, and all random numbers of the episode."""
        self._at[i] = np.searchsorted(self._start, rng.random(), side="right")
        self._luck[i] = rng.random((self.model.horizon, 2))
        self._age[i] = 0
        self.obs[i] = self.model.silence

    def step(self, action: Array) -> None:
        """Move every row by its tables."""
        luck = self._luck[self._rows, self._age]
        self.reward[...] = self._pay[action, self._at]
        self._at[...] = (self._move[action, self._at] <= luck[:, :1]).sum(axis=1)
        self.obs[...] = (self._emit[action, self._at] <= luck[:, 1:]).sum(axis=1)
        self._age += 1
        np.greater_equal(self._age, self.model.horizon, self.terminated)


def tiger(theta: float = 0.3, horizon: int = 20) -> PomdpModel:
    """Two doors, a tiger behind one of them; listening is right with probability 1/2 + theta.

    Listening costs 0.1 and the tiger 10, the other door pays 1; then the tiger moves at random, unheard.
    """
    if not 0 <= theta <= 0.5:
        raise ValueError(f"theta must lie in 0 to 0.5, got {theta}")
    stay, anew = np.eye(2), np.full((2, 2), 0.5)
    hear = np.array([[0.5 + theta, 0.5 - theta, 0], [0.5 - theta, 0.5 + theta, 0]])
    nothing = np.array([[0.0, 0, 1], [0, 0, 1]])
    reward = np.array([[-0.1, -0.1], [-10, 1], [1, -10]])
    move, sound = np.stack([stay, anew, anew]), np.stack([hear, nothing, nothing])
    return PomdpModel(np.full(2, 0.5), move, sound, reward, horizon)


def river_swim(states: int = 8, horizon: int = 80, sight: float = 0.8) -> PomdpModel:
    """Drifting left pays 0.005 at the near bank, swimming right 1 at the far one, against the current.

    The observation says near bank, water or far bank; it is right with probability `sight`.
    """
    if states < 3:
        raise ValueError(f"states must be at least 3, got {states}")
    move = np.zeros((2, states, states))
    for s in range(states):
        move[0, s, max(s - 1, 0)] = 1
        for to, p in ((s + 1, 0.35), (s, 0.6), (s - 1, 0.05)):
            move[1, s, min(max(to, 0), states - 1)] += p
    reward = np.zeros((2, states))
    reward[0, 0], reward[1, -1] = 0.005, 1
    true = np.array([0, *[1] * (states - 2), 2])
    seen = np.where(np.arange(3) == true[:, None], sight, (1 - sight) / 2)
    return PomdpModel(np.eye(states)[0], move, np.stack([seen, seen]), reward, horizon)


def sparse(seed: int = 0, states: int = 4, actions: int = 3, observations: int = 3, horizon: int = 6) -> PomdpModel:
    """Random tables in which a single pair of state and action pays 1."""
    rng = np.random.default_rng(seed)
    move = rng.dirichlet(np.full(states, 0.3), (actions, states))
    seen = rng.dirichlet(np.full(observations, 0.3), (actions, states))
    reward = np.zeros((actions, states))
    reward[rng.integers(actions), rng.integers(states)] = 1
    return PomdpModel(rng.dirichlet(np.ones(states)), move, seen, reward, horizon)


class Tiger(Pomdp):
    """Rows of Tiger."""

    def __init__(self, num: int, theta: float = 0.3, horizon: int = 20) -> None:
        super().__init__(num, tiger(theta, horizon))


class RiverSwim(Pomdp):
    """Rows of RiverSwim."""

    def __init__(self, num: int, states: int = 8, horizon: int = 80, sight: float = 0.8) -> None:
        super().__init__(num, river_swim(states, horizon, sight))


class SparseReward(Pomdp):
    """Rows of a random POMDP."""

    def __init__(self, num: int, seed: int = 0, horizon: int = 6) -> None:
        super().__init__(num, sparse(seed, horizon=horizon))


VARIANTS: dict[str, tuple[type[Pomdp], dict[str, float], float]] = {
    "Tiger-Theta2-v0": (Tiger, {"theta": 0.2, "horizon": 20}, -0.71522),
    "Tiger-Theta3-v0": (Tiger, {"theta": 0.3, "horizon": 20}, 0.99345),
    "Tiger-Theta4-v0": (Tiger, {"theta": 0.4, "horizon": 20}, 3.35606),
    "RiverSwim-Hard-v0": (RiverSwim, {"horizon": 80}, 49.52405),
    "SparseRewardPOMDP-Random0-v0": (SparseReward, {"seed": 1, "horizon": 6}, 1.27081),
    "SparseRewardPOMDP-Random1-v0": (SparseReward, {"seed": 4, "horizon": 6}, 1.42484),
    "SparseRewardPOMDP-Random2-v0": (SparseReward, {"seed": 5, "horizon": 6}, 1.55988),
    "SparseRewardPOMDP-Random3-v0": (SparseReward, {"seed": 6, "horizon": 6}, 2.60901),
    "SparseRewardPOMDP-Random4-v0": (SparseReward, {"seed": 9, "horizon": 6}, 1.92893),
}
"""VectorTask, arguments and best possible mean return, as `tests/envs/solve_pomdp.py` computes it.

For RiverSwim it is the return of always swimming, at most 0.00001 below the best. The seeds are those of random POMDPs
in which every policy that ignores its observations is far from the best.
"""
for _id, (_task, _kwargs, _best) in VARIANTS.items():
    _threshold, _steps = _best - 0.1 * abs(_best), _kwargs["horizon"]
    register_task(_id, _task, reward_threshold=_threshold, max_episode_steps=_steps, kwargs=_kwargs)
