"""The method `replay`: the random generators at the beginning of the episode, and the actions since.

For environments whose state cannot be read (Box2D). They have to be recorded from the reset on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

from ludus.envs import Action, ResetReturn, StepReturn
from ludus.envs.snapshots import Keeper, Refused
from ludus.envs.snapshots.attributes import is_kind, randomness, read
from ludus.envs.spaces import wrapper_of
from ludus.envs.wrappers.rewards import RawReward
from ludus.types import State

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

LIMIT = 100_000
"""Steps of the longest episode worth replaying."""


class EpisodeRecorder(gym.Wrapper):
    """The outermost wrapper: records how the episode began, and its actions."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.start: State | None = None
        self.carries = False
        """Whether a Box2D world survived a reset: the order of contacts then depends on the memory of old bodies."""
        space = env.action_space
        self._actions = np.empty((64, *(space.shape or ())), space.dtype)
        self._count = 0

    @property
    def actions(self) -> np.ndarray:
        """A copy of this episode's actions."""
        return self._actions[: self._count].copy()

    def reset(self, *, seed: int | None = None, options: State | None = None) -> ResetReturn:
        self.start = {"random": randomness(self.env)} if seed is None else {"seed": seed}
        self._count = 0
        worlds = _worlds(self.env)
        answer = self.env.reset(seed=seed, options=options)
        self.carries |= any(old is new for old in worlds for new in _worlds(self.env))
        return answer

    def step(self, action: Action) -> StepReturn:
        if self._count >= LIMIT:  # such an episode counts as not recorded
            self.start, self._count = None, 0
        elif self._count == len(self._actions):
            self._actions = np.concatenate([self._actions, np.empty_like(self._actions)])
        self._actions[self._count] = action
        self._count += 1
        return self.env.step(action)

    def replay(self, start: State, actions: np.ndarray) -> None:
        """Begin with `start` and repeat the actions."""
        if "seed" in start:
            self.reset(seed=start["seed"])
        else:
            read(self.env, start["random"])
            self.reset()
        discrete = isinstance(self.action_space, gym.spaces.Discrete)
        for action in actions.tolist() if discrete else np.array(actions, self._actions.dtype):
            self.step(action)


class Replay(Keeper):
    """Environments whose episodes depend on the generators and the actions alone."""

    method = "replay"

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        super().__init__(recipe, fresh)
        limit = recipe.max_episode_steps or recipe.spec.max_episode_steps
        if limit is None or limit > LIMIT:
            raise Refused(f"its episodes have no time limit of at most {LIMIT} steps")

    def attach(self, env: gym.Env) -> EpisodeRecorder:
        return EpisodeRecorder(env)

    def capture(self, env: gym.Env) -> State:
        assert isinstance(env, EpisodeRecorder)
        if env.carries:
            raise Refused("its Box2D world outlives a reset")
        if env.start is None:
            raise Refused(
                "the beginning of the episode was not recorded: call `choose_snapshot_method` before the reset"
            )
        return {"start": env.start, "actions": env.actions}

    def restore(self, state: State) -> gym.Env:
        env = self.attach(self.make())
        env.replay(state["start"], state["actions"])
        meter = wrapper_of(env, RawReward)
        if meter is not None:
            meter.take()  # all that was paid before
        return env


def _worlds(env: gym.Env) -> list[object]:
    return [value for value in vars(env.unwrapped).values() if is_kind(value, "Box2D", "b2World")]
