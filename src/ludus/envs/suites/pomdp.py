"""Finite POMDPs with a horizon, small enough to be solved exactly: Tiger, RiverSwim and random ones with one reward.

Model is a problem as tables; `solve` gives its best possible return by looking at every belief that can come up.
Shapes: S states, A actions, O observations, H steps, B rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

from ludus.envs.vector.tasks import TaskEnv, VectorTask
from ludus.types import Array


class Model(NamedTuple):
    """A finite POMDP."""

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
        """The first observation, before anything was done; it tells nothing and is never seen again."""
        return int(self.emission.shape[2])


class Pomdp(VectorTask):
    """A Model played; it ends (terminates) at its horizon."""

    state = ("_at", "_age", "_luck")

    def __init__(self, num: int, model: Model, threshold: float | None = None) -> None:
        super().__init__(num, Discrete(model.silence + 1), Discrete(len(model.reward)), threshold)
        self.model = model
        self._start, self._move = np.cumsum(model.start)[:-1], np.cumsum(model.transition, axis=2)[..., :-1]
        self._emit = np.cumsum(model.emission, axis=2)[..., :-1]
        self._pay = model.reward.astype(np.float32)
        self._at, self._age = np.zeros((2, num), np.int64)
        self._luck = np.zeros((num, model.horizon, 2))
        self._rows = np.arange(num)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        self._at[i] = np.searchsorted(self._start, rng.random(), side="right")
        self._luck[i] = rng.random((self.model.horizon, 2))
        self._age[i] = 0
        self.obs[i] = self.model.silence

    def step(self, action: Array) -> None:
        luck = self._luck[self._rows, self._age]
        self.reward[...] = self._pay[action, self._at]
        self._at[...] = (self._move[action, self._at] <= luck[:, :1]).sum(axis=1)
        self.obs[...] = (self._emit[action, self._at] <= luck[:, 1:]).sum(axis=1)
        self._age += 1
        np.greater_equal(self._age, self.model.horizon, self.terminated)
        self.truncated.fill(False)


def tiger(theta: float = 0.3, horizon: int = 20) -> Model:
    """Two doors, a tiger behind one of them; listening is right with probability 1/2 + theta.

    Listening costs 0.1, the tiger 10, the other door pays 1; then the tiger moves at random. Doors open in silence.
    """
    if not 0 <= theta <= 0.5:
        raise ValueError(f"theta must lie in 0 to 0.5, got {theta}")
    stay, anew = np.eye(2), np.full((2, 2), 0.5)
    hear = np.array([[0.5 + theta, 0.5 - theta, 0], [0.5 - theta, 0.5 + theta, 0]])
    nothing = np.array([[0.0, 0, 1], [0, 0, 1]])
    reward = np.array([[-0.1, -0.1], [-10, 1], [1, -10]])
    return Model(np.full(2, 0.5), np.stack([stay, anew, anew]), np.stack([hear, nothing, nothing]), reward, horizon)


def river_swim(states: int = 8, horizon: int = 80, sight: float = 0.8) -> Model:
    """Drifting left pays 0.005 at the near bank, swimming right 1 at the far one, against the current.

    Seen is only whether this is the near bank, water or the far bank, and that truly with probability `sight`.
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
    return Model(np.eye(states)[0], move, np.stack([seen, seen]), reward, horizon)


def sparse(seed: int = 0, states: int = 4, actions: int = 3, observations: int = 3, horizon: int = 6) -> Model:
    """Random tables in which a single pair of state and action pays 1."""
    rng = np.random.default_rng(seed)
    move = rng.dirichlet(np.full(states, 0.3), (actions, states))
    seen = rng.dirichlet(np.full(observations, 0.3), (actions, states))
    reward = np.zeros((actions, states))
    reward[rng.integers(actions), rng.integers(states)] = 1
    return Model(rng.dirichlet(np.ones(states)), move, seen, reward, horizon)


def solve(model: Model) -> float:
    """The best possible mean return; the beliefs that can come up must not be too many."""
    levels, edges = [model.start[None]], []
    for _ in range(model.horizon - 1):
        successor, weight, index = _look_ahead(model, levels[-1])
        levels.append(successor)
        edges.append((weight, index))
    value = (levels[-1] @ model.reward.T).max(axis=1)
    for belief, (weight, index) in zip(reversed(levels[:-1]), reversed(edges), strict=True):
        value = (belief @ model.reward.T + (weight * value[index]).sum(axis=2)).max(axis=1)
    return float(value[0])


def blind(model: Model, policy: Array) -> float:
    """Exact mean return of acting by fixed probabilities [A], whatever is seen."""
    at, total = model.start, 0.0
    for _ in range(model.horizon):
        total += float(policy @ model.reward @ at)
        at = np.einsum("a,s,ast->t", policy, at, model.transition)
    return total


def omniscient(model: Model) -> float:
    """Best mean return if the state were seen: no policy is better."""
    value = np.zeros(len(model.start))
    for _ in range(model.horizon):
        value = (model.reward + model.transition @ value).max(axis=0)
    return float(model.start @ value)


def _look_ahead(model: Model, belief: Array) -> tuple[Array, Array, Array]:
    """Distinct beliefs one step on; the probability [N, A, O] to come to each, and its number."""
    moved = np.einsum("ns,ast->nat", belief, model.transition)
    joint = np.einsum("nat,ato->naot", moved, model.emission)
    weight = joint.sum(axis=3)
    after = np.divide(joint, weight[..., None], out=np.zeros_like(joint), where=weight[..., None] > 0)
    flat, index = np.unique(after.reshape(-1, belief.shape[1]).round(9), axis=0, return_inverse=True)
    return flat, weight, index.reshape(weight.shape)


class TigerEnv(TaskEnv):
    """One Tiger."""

    def __init__(self, theta: float = 0.3, horizon: int = 20, render_mode: str | None = None) -> None:
        super().__init__(Tiger(1, theta, horizon), render_mode)


class RiverSwimEnv(TaskEnv):
    """One river."""

    def __init__(self, states: int = 8, horizon: int = 80, sight: float = 0.8, render_mode: str | None = None) -> None:
        super().__init__(RiverSwim(1, states, horizon, sight), render_mode)


class SparseRewardEnv(TaskEnv):
    """One random POMDP."""

    def __init__(self, seed: int = 0, horizon: int = 6, render_mode: str | None = None) -> None:
        super().__init__(SparseReward(1, seed, horizon), render_mode)


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


SEEDS = (1, 4, 5, 6, 9)
"""Of the five random POMDPs: those in which every blind policy is far from the best one."""
OPTIMAL: dict[str, float] = {
    "Tiger-Theta2-v0": -0.71522,
    "Tiger-Theta3-v0": 0.99345,
    "Tiger-Theta4-v0": 3.35606,
    "RiverSwim-Hard-v0": 49.52405,
    "SparseRewardPOMDP-Random0-v0": 1.27081,
    "SparseRewardPOMDP-Random1-v0": 1.42484,
    "SparseRewardPOMDP-Random2-v0": 1.55988,
    "SparseRewardPOMDP-Random3-v0": 2.60901,
    "SparseRewardPOMDP-Random4-v0": 1.92893,
}
"""Best possible mean returns, by `solve`; of RiverSwim that of always swimming, at most 0.00001 below the best."""
_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"Tiger-Theta{n}-v0": ("Tiger", {"theta": n / 10, "horizon": 20}) for n in (2, 3, 4)},
    "RiverSwim-Hard-v0": ("RiverSwim", {"horizon": 80}),
    **{
        f"SparseRewardPOMDP-Random{n}-v0": ("SparseReward", {"seed": seed, "horizon": 6})
        for n, seed in enumerate(SEEDS)
    },
}
for _id, (_name, _kwargs) in _VARIANTS.items():
    if _id not in gym.registry:
        gym.register(
            _id,
            f"{__name__}:{_name}Env",
            vector_entry_point=f"{__name__}:{_name}",
            reward_threshold=OPTIMAL[_id] - 0.1 * abs(OPTIMAL[_id]),
            max_episode_steps=_kwargs["horizon"],
            kwargs=_kwargs,
        )
