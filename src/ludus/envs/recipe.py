"""How one environment is made: the only `gym.make`. A Recipe can be shipped to a worker process."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from ludus.envs import catalog
from ludus.envs.check import check
from ludus.envs.deadline import Within
from ludus.envs.failure import close, raised
from ludus.envs.info import EnvInfo
from ludus.envs.spaces import convert_spaces
from ludus.envs.vector import VectorEnv
from ludus.envs.wrappers.rewards import RawReward
from ludus.errors import ConfigError, LudusError


class WrapperCall(NamedTuple):
    """A wrapper and its checked arguments."""

    where: str
    cls: Any
    arguments: dict[str, Any]

    def apply(self, function: Any, target: Any) -> Any:
        """Call with the arguments; a ValueError is a bad config."""
        try:
            return function(target, **self.arguments)
        except (ValueError, TypeError) as error:  # Gymnasium's own wrappers raise both
            raise ConfigError(self.where, str(error)) from error


@dataclass(frozen=True)
class Recipe:
    """Everything needed to make one environment, without a config, a registry or this process."""

    spec: EnvSpec
    kwargs: dict[str, Any]
    wrappers: tuple[WrapperCall, ...]
    max_episode_steps: int | None
    reward_threshold: float | None
    render_mode: str | None
    deadline: float = math.inf
    """Seconds that making, resetting or closing one may take, if that is more than `deadline.LEAST`."""

    @property
    def id(self) -> str:
        """Environment id."""
        return self.spec.id

    def make(self) -> gym.Env:
        """A new environment."""
        with Within(self.deadline, f"environment {self.id}", "making it"):
            return self._made()

    def _made(self) -> gym.Env:
        catalog.headless(self.render_mode)
        drawn = any(getattr(call.cls, "needs_frames", False) for call in self.wrappers)
        env = self._bare("rgb_array" if drawn else self.render_mode)
        if self.wrappers:
            env = RawReward(env)
        for call in self.wrappers:
            env = call.apply(call.cls, env)
        if drawn and self.render_mode == "human":
            env = gym.wrappers.HumanRendering(env)
        return convert_spaces(env, self.id)

    def check(self) -> EnvInfo:
        """The start-up check, on an environment of its own: some carry state over a reset. Returns its facts."""
        env = self.make()
        try:
            check(env, self.id, self.deadline)
            return self.facts(env)
        finally:
            close(env, f"environment {self.id}", self.deadline)

    def facts(self, env: gym.Env) -> EnvInfo:
        """Facts about `env`, a product of this recipe."""
        own = getattr(env.unwrapped, "reward_threshold", None)
        return self.info(env.observation_space, env.action_space, env.metadata, own)

    def info(self, observation: gym.Space, action: gym.Space, metadata: dict[str, Any], own: Any = None) -> EnvInfo:
        """Facts from the config, else the environment's `own` threshold, else its registration."""
        thresholds = (self.reward_threshold, own, self.spec.reward_threshold)
        return EnvInfo(
            self.id,
            observation,
            action,
            reward_threshold=next((float(value) for value in thresholds if value is not None), None),
            max_episode_steps=self.max_episode_steps or self.spec.max_episode_steps,
            render_mode=self.render_mode,
            render_modes=tuple(metadata.get("render_modes", ())),
            render_fps=float(metadata.get("render_fps", 30.0)),
        )

    def bare_observation_space(self) -> gym.Space:
        """What the environment shows without the config's wrappers."""
        with Within(self.deadline, f"environment {self.id}", "making it"):
            env = self._bare(None)
        close(env, f"environment {self.id}", self.deadline)
        return env.observation_space

    def unwrapped(self) -> Recipe:
        """The same without the config's wrappers."""
        return replace(self, wrappers=())

    def vectorized(self, venv: VectorEnv, backend: str) -> VectorEnv:
        """The wrappers applied to a whole vector; one that cannot is refused by name."""
        for call in self.wrappers:
            if not hasattr(call.cls, "vectorize"):
                problem = f"{call.where} works on single environments only, not on the {backend} backend"
                raise ConfigError("environment.vectorization", problem, "use sync or async")
            venv = call.apply(call.cls.vectorize, venv)
        return venv

    def code(self) -> list[Any]:
        """Classes and functions a worker has to be able to load."""
        return [
            *(call.cls for call in self.wrappers),
            *([getattr(entry, "creator", entry)] if callable(entry := self.spec.entry_point) else []),
        ]

    def _bare(self, render_mode: str | None) -> gym.Env:
        self._require_rendering(render_mode)
        try:
            with catalog.quiet(self.spec.entry_point):
                return gym.make(
                    self.spec,
                    max_episode_steps=self.max_episode_steps,
                    disable_env_checker=True,
                    **({"render_mode": render_mode} if render_mode else {}),
                    **self.kwargs,
                )
        except LudusError:
            raise
        except (gym.error.DependencyNotInstalled, ImportError) as error:
            raise catalog.missing(self.id, self.spec.entry_point, error) from error
        except BaseException as error:  # whatever a constructor raises is named, with its traceback
            raise raised(f"environment {self.id}", "making it", error) from error

    def _require_rendering(self, mode: str | None) -> None:
        metadata = getattr(catalog.creator(self.id, self.spec.entry_point), "metadata", None) if mode else None
        if metadata is None:
            return
        modes = metadata.get("render_modes", ())
        if mode not in modes and not (mode == "human" and "rgb_array" in modes):
            raise ConfigError("render_mode", f"'{self.id}' cannot be shown as '{mode}'", "play it unseen")
