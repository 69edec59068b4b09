"""The one loop that plays episodes with a policy: evaluation, videos, `ludus play`, `ludus evaluate`, the inspector.

Shapes: B environments.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ludus.errors import EnvironmentFailed
from ludus.types import ActResult, Array, StepResult, Tree, tree_map

if TYPE_CHECKING:
    from ludus.algorithms import Algorithm
    from ludus.data.normalizer import ObservationNormalizer
    from ludus.envs.vector import VectorEnv

Act = Callable[[Array, Tree, Array], ActResult]
"""(obs_B as the environments show it, memory or None at first, first_B) -> actions and the memory after them."""

MOST_LOST = 10
"""Broken steps in a row (`on_worker_death: restart`) after which an environment is given up."""


class EpisodeEnd(NamedTuple):
    """A finished episode that counts."""

    env: int
    """Index of its environment."""
    total: float
    """Its return, of raw rewards."""
    length: int


class PlayedStep(NamedTuple):
    """One step of all environments; its arrays stay valid."""

    t: int
    """Steps of every environment before this one."""
    first: Array
    """bool [B]: the step began an episode."""
    obs: Tree
    """[B, ...]: what the policy saw, before it was normalised."""
    action: Array
    """[B, ...]: as the environments took it."""
    info: Mapping[str, Array]
    """What the policy tells about its decision (`ActResult.info`)."""
    reward: Array
    """[B]: raw, before any wrapper."""
    learned: Array
    """[B]: the reward as a policy is trained on it, after all wrappers."""
    terminated: Array
    truncated: Array
    final_obs: Tree | None
    """[B, ...]: the last observations of episodes, valid where one ended; None if none did."""
    total: Array
    """[B]: return of each episode, this step included."""
    length: Array
    """[B]: steps of each episode, this one included."""
    ended: list[EpisodeEnd]
    """Episodes that this step finished and that count."""
    frames: list[Array]
    """Pictures of the first environment while rendering: before the first step of an episode and after each step."""


def episodes(
    act: Act,
    env: VectorEnv,
    seeds: Sequence[int],
    count: int,
    *,
    timeout: float | None = None,
    max_steps: int | None = None,
    render: bool = False,
) -> Iterator[PlayedStep]:
    """Play exactly `count` episodes, or fewer if `timeout` seconds or `max_steps` steps are over before.

    Every environment contributes its share: counting the episodes that end first would favour short ones. An episode
    that was lost with its worker does not count and is played again.
    """
    tally = _Tally(env.num_envs, count)
    obs, state, first = env.reset(seeds), None, np.ones(env.num_envs, bool)
    deadline = np.inf if timeout is None else time.monotonic() + timeout
    for t in itertools.count() if max_steps is None else range(max_steps):
        if not tally.share.any() or time.monotonic() >= deadline:
            return
        began, frames = first, [env.render()] if render and first[0] else []
        seen = tree_map(np.array, obs)
        action, state, info = act(seen, state, first)
        result = env.step(action)
        obs, first = result.obs, result.done
        total, length, ended = tally.add(env.id, result)
        if render:
            frames.append(env.render(final=bool(first[0])))
        rewards, ends = (
            (result.raw_reward.copy(), result.reward.copy()),
            (result.terminated.copy(), result.truncated.copy()),
        )
        last = None if result.final_obs is None else tree_map(np.array, result.final_obs)
        yield PlayedStep(t, began, seen, action, info, *rewards, *ends, last, total, length, ended, frames)


class _Tally:
    """Returns and lengths of open episodes, and how many each environment still has to finish."""

    def __init__(self, num_envs: int, count: int) -> None:
        self.share = np.full(num_envs, count // num_envs) + (np.arange(num_envs) < count % num_envs)
        self.total, self.length, self.lost = np.zeros(num_envs), np.zeros(num_envs, np.int64), 0

    def add(self, id: str, result: StepResult) -> tuple[Array, Array, list[EpisodeEnd]]:
        """The newest step: (returns so far, lengths so far, episodes that it finished and that count)."""
        total, length, broken, over = self.total + result.raw_reward, self.length + 1, result.broken, result.over
        wanted = self.share > 0
        self.lost += broken is not None and bool(broken[wanted].any())
        if self.lost > MOST_LOST:
            problem = f"its workers ended {self.lost} times in a row before an episode was over"
            raise EnvironmentFailed(id, problem, "no evaluation can end like this; look for what ends them")
        counts = over & wanted if broken is None else over & wanted & ~broken
        ended = [EpisodeEnd(int(b), float(total[b]), int(length[b])) for b in np.flatnonzero(counts)]
        self.share, self.lost = self.share - counts, 0 if ended else self.lost
        self.total, self.length = np.where(over, 0.0, total), np.where(over, 0, length)
        return total, length, ended


def policy_of(algorithm: Algorithm, normalizer: ObservationNormalizer | None, *, deterministic: bool) -> Act:
    """An algorithm as it acts in evaluation: observations normalised with what training learned."""

    def act(obs_B: Tree, state: Tree, first_B: Array) -> ActResult:
        seen = obs_B if normalizer is None else normalizer.apply(obs_B)
        state = algorithm.initial_state(len(first_B)) if state is None else state
        return algorithm.act(seen, state, first_B, deterministic=deterministic)

    return act


def random_policy(env: VectorEnv, seed: int) -> Act:
    """Uniformly random actions of the environment's own sampler."""
    env.action_space.seed(seed)
    sample = env.action_space.sample
    return lambda *_: ActResult(np.stack([np.asarray(sample()) for _ in range(env.num_envs)]), None, {})


def greedy(algorithm: Algorithm, *wishes: bool | None) -> bool:
    """Whether to act greedily: the first wish that says so or not, else the algorithm's habit."""
    return next(wish for wish in (*wishes, algorithm.deterministic_evaluation) if wish is not None)
