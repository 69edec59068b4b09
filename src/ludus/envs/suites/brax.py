"""Brax through jax: `brax/<name>`, one environment at a time on the CPU. Compiling takes a minute, once per process."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Literal

import brax.envs
import gymnasium as gym
import jax
import numpy as np
from gymnasium.spaces import Box

from ludus.envs import Action, Info, Options, ResetReturn, StepReturn
from ludus.envs.suites import register
from ludus.types import Array

NAMES = (
    "ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum", "inverted_pendulum",
    "pusher", "reacher", "swimmer", "walker2d",
)  # fmt: skip
STEPS = 1_000
"""Time limit of all of them."""


class Brax(gym.Env):
    """A Brax environment with Gymnasium's interface; actions lie in [-1, 1]."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        name: str,
        backend: Literal["generalized", "positional", "spring", "mjx"] = "positional",
        render_mode: str | None = None,
    ) -> None:
        """`backend`: the physics; they differ in speed and accuracy."""
        self.render_mode = render_mode
        self._reset, self._step, observed, acted = _compiled(name, backend)
        self.observation_space = Box(-np.inf, np.inf, (observed,), np.float32)
        self.action_space = Box(-1.0, 1.0, (acted,), np.float32)
        self._state: Any = None

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode."""
        super().reset(seed=seed)
        self._state = self._reset(jax.random.PRNGKey(int(self.np_random.integers(2**31))))
        return self._seen(), {}

    def step(self, action: Action) -> StepReturn:
        """One step of the physics."""
        self._state = self._step(self._state, np.asarray(action, np.float32))
        return self._seen(), float(self._state.reward), bool(self._state.done), False, {}

    def snapshot_state(self) -> Info:
        """The arrays of its state."""
        return {"arrays": [np.array(leaf) for leaf in jax.tree.leaves(self._state)]}

    def restore_state(self, state: Info) -> None:
        """Continue from a snapshot."""
        structure = jax.tree.structure(jax.eval_shape(self._reset, jax.random.PRNGKey(0)))
        self._state = jax.tree.unflatten(structure, [jax.numpy.asarray(array) for array in state["arrays"]])

    def _seen(self) -> Array:
        return np.array(self._state.obs, np.float32)


@functools.cache
def _compiled(name: str, backend: str) -> tuple[Any, Any, int, int]:
    """Compiled reset and step and the sizes of observation and action, shared by all environments of a kind."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Brax System", UserWarning)  # it announces that it is not maintained
        env = brax.envs.get_environment(name, backend=backend)
    return jax.jit(env.reset), jax.jit(env.step), int(env.observation_size), int(env.action_size)


for _name in NAMES:
    register(f"brax/{_name}", f"{__name__}:Brax", max_episode_steps=STEPS, kwargs={"name": _name})
