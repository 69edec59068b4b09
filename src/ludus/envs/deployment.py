"""What a policy carries along when it leaves Ludus: the wrappers that need no environment.

The wrappers of a config stand in a row. Up to the last one that has to see the environment itself (frame skipping, say)
they stay with the environment; those after it only convert observations and actions, and the policy applies them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import gymnasium as gym

from ludus.envs import Action, ResetReturn, StepReturn
from ludus.envs.deadline import close
from ludus.envs.make import resolve, wrapper_calls
from ludus.envs.recipe import WrapperCall
from ludus.envs.spaces import ConvertSpaces, convert_spaces
from ludus.envs.wrappers.actions import RemapActions, RescaleAction
from ludus.envs.wrappers.images import ChannelsFirst
from ludus.envs.wrappers.observations import ConvertObservation, Flatten
from ludus.envs.wrappers.rewards import ChangedReward
from ludus.envs.wrappers.time import FrameStack
from ludus.types import State, Tree

if TYPE_CHECKING:
    from ludus.config.schema import Environment

CONVERT = (ConvertObservation, Flatten, ChannelsFirst, FrameStack, RescaleAction, RemapActions, gym.wrappers.ClipAction)
"""Wrappers whose observations and actions follow from those inside them alone."""
REWARDS = (gym.RewardWrapper, ChangedReward)
"""Wrappers that change rewards only: a policy does not see them."""


class Deployment(NamedTuple):
    """Where the row of wrappers is cut, and the spaces at the cut."""

    carried: int
    """Wrappers that the policy carries along, counted from the outside."""
    observation: gym.Space
    """What the policy is given."""
    action: gym.Space
    """What the policy returns."""


def deployments(cfg: Environment) -> list[Deployment]:
    """Every place where the row may be cut, the innermost first; makes one environment to see its spaces."""
    envs = resolve(cfg).layers()
    try:
        most, last = 0, len(envs) - 1
        while most < last and _converts(envs[last - most], envs[last - most - 1]):
            most += 1
        spaces = [(env.observation_space, env.action_space) for env in reversed(envs)]
        return [Deployment(carried, *spaces[carried]) for carried in range(most, -1, -1)]
    finally:
        close(envs[-1], f"environment {cfg.id}", cfg.step_deadline)


def deployment_env(cfg: Environment, carried: int, render_mode: str | None = None) -> gym.Env:
    """The environment with the wrappers that stay with it."""
    recipe = resolve(cfg, render_mode)
    return replace(recipe, wrappers=recipe.wrappers[: len(recipe.wrappers) - carried]).layers()[-1]


def carried_wrappers(cfg: Environment, cut: Deployment) -> list[WrapperCall]:
    """The wrappers that the policy carries along, the innermost first, without those that change rewards only."""
    calls = wrapper_calls(cfg)
    carried = calls[len(calls) - cut.carried :]
    return [call for call in carried if not (isinstance(call.cls, type) and issubclass(call.cls, REWARDS))]


def _converts(env: gym.Env, inside: gym.Env) -> bool:
    return env is inside or (isinstance(env, CONVERT + REWARDS) and env.env is inside)


class Pipeline:
    """The wrappers of one environment that the policy carries along."""

    def __init__(self, cfg: Environment, cut: Deployment) -> None:
        self._given = _Given(cut.observation, cut.action)
        env: gym.Env = self._given
        for call in carried_wrappers(cfg, cut):
            env = call.apply(call.cls, env)
        self._env = convert_spaces(env, cfg.id)
        self.observation_space, self.action_space = self._env.observation_space, self._env.action_space

    def observe(self, obs: Tree, last: Action | None) -> Tree:
        """An observation as the network sees it; `last` is the action before it, None at the start of an episode."""
        self._given.next = obs
        return self._env.reset()[0] if last is None else self._env.step(last)[0]

    def act(self, action: Action) -> Action:
        """The network's action as the environment takes it."""
        env = self._env
        while isinstance(env, gym.Wrapper):
            if isinstance(env, ConvertSpaces | gym.ActionWrapper):
                action = env.action(action)
            env = env.env
        return action


class _Given(gym.Env):
    """Stands for the environment: its observations are those that the policy is given."""

    def __init__(self, observation: gym.Space, action: gym.Space) -> None:
        self.observation_space, self.action_space = observation, action
        self.next: Tree = None

    def reset(self, *, seed: int | None = None, options: State | None = None) -> ResetReturn:
        return self.next, {}

    def step(self, action: Action) -> StepReturn:
        return self.next, 0.0, False, False, {}
