"""CartPole for a whole vector: the arithmetic of Gymnasium's CartPoleEnv, in place and in the same order.

Every environment has its own generator, seeded and drawn from like the single environment's, so that this backend
equals `sync` bit for bit. Shapes: B environments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

from ludus.envs.failure import frame
from ludus.envs.info import EnvInfo
from ludus.envs.snapshots import SnapshotChoice, generators, trial
from ludus.envs.vector import VectorEnv
from ludus.types import Array, State, StepResult

GRAVITY, MASS_CART, MASS_POLE, HALF_LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360
START = 0.05


def _constant(value: float) -> Array:
    """Arrays are cheaper operands than Python floats."""
    return np.array(value)


_TAU, _GRAVITY, _MASS_POLE, _HALF_LENGTH = map(_constant, (TAU, GRAVITY, MASS_POLE, HALF_LENGTH))
_TOTAL_MASS, _POLE_MOMENT, _FOUR_THIRDS = map(_constant, (MASS_POLE + MASS_CART, MASS_POLE * HALF_LENGTH, 4.0 / 3.0))
_FORCES = np.array([-FORCE, FORCE])


class CartPoleVectorEnv(VectorEnv):
    """CartPole-v0 and v1 in about a quarter of the time of Gymnasium's vector class."""

    backend = "native"

    def __init__(self, info: EnvInfo, num_envs: int, *, sutton_barto_reward: bool = False) -> None:
        super().__init__(info, num_envs)
        # Rows: x, angle, their velocities, their accelerations. So rows 2-6 are the time derivatives of rows 0-4.
        self._motion = np.zeros((6, num_envs))
        self._x, self._angle, self._x_dot, self._angle_dot, self._x_acc, self._angle_acc = self._motion
        self._state, self._derivative, self._places = self._motion[:4], self._motion[2:], self._motion[:2]
        self._change = np.empty((4, num_envs))
        self._sin, self._cos, self._temp, self._below = np.empty((4, num_envs))
        self._far, self._out = np.empty((2, num_envs)), np.empty((2, num_envs), bool)
        self._x_out, self._angle_out = self._out
        self._limits = np.repeat([[X_LIMIT], [ANGLE_LIMIT]], num_envs, axis=1)
        self._obs, self._final_obs = np.zeros((2, num_envs, 4), np.float32)
        # The same memory in the order (environment, x or angle, place or velocity), to fill it in one assignment.
        self._obs_parts = self._obs.reshape(num_envs, 2, 2)
        self._state_parts = self._state.reshape(2, 2, num_envs).transpose(2, 1, 0)
        self._terminated, self._truncated = np.zeros((2, num_envs), bool)
        self._penalty = sutton_barto_reward
        self._reward = np.full(num_envs, 0.0 if sutton_barto_reward else 1.0, np.float32)
        self._limit = info.max_episode_steps or 2**62
        self._clock, self._began = 0, np.zeros(num_envs, np.int64)
        self._next_limit, self._late = self._limit, False
        self._random: list[np.random.Generator] = []
        self._final_state = np.zeros((num_envs, 4))
        self._screen: CartPoleEnv | None = None

    def reset(self, seeds: Sequence[int]) -> Array:
        self._random = [gym.utils.seeding.np_random(int(seed))[0] for seed in seeds]
        self._clock, self._next_limit = 0, self._limit
        for i in range(self.num_envs):
            self._begin(i)
        return self._obs

    def step(self, action: Array) -> StepResult:
        self._move(action)
        self._obs_parts[...] = self._state_parts
        np.absolute(self._places, self._far)
        np.greater(self._far, self._limits, self._out)
        np.logical_or(self._x_out, self._angle_out, self._terminated)
        if self._penalty:
            np.negative(self._terminated, self._reward, dtype=np.float32)
        if self._late:
            self._truncated.fill(False)
        self._clock += 1
        self._late = self._clock >= self._next_limit
        if self._late:
            np.greater_equal(self._clock - self._began, self._limit, self._truncated)
        final = self._begin_again() if self._late or np.count_nonzero(self._terminated) else None
        return StepResult(self._obs, self._reward, self._terminated, self._truncated, final, self._reward)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        if self._screen is None:
            self._screen = CartPoleEnv(render_mode="rgb_array")
        self._screen.state = self._final_state[index] if final else self._state_parts[index].ravel()
        return frame(self._screen, self.id)

    def _snapshot(self) -> State:
        random = [generators.pack(generator) for generator in self._random]
        return {"motion": self._state.copy(), "clock": self._clock, "began": self._began.copy(), "random": random}

    def _restore(self, state: State) -> Array:
        self._state[...], self._began[...], self._clock = state["motion"], state["began"], state["clock"]
        self._random = [generators.unpack("generator", packed) for packed in state["random"]]
        self._next_limit, self._late = int(self._began.min()) + self._limit, False
        self._truncated.fill(False)
        self._obs_parts[...] = self._state_parts
        return self._obs

    def close(self) -> None:
        if self._screen is not None:
            self._screen.close()

    def _choose(self) -> SnapshotChoice:
        make = partial(CartPoleVectorEnv, self.info, 4, sutton_barto_reward=self._penalty)
        return trial.vector_choice("adapter", make)

    def _move(self, action: Array) -> None:
        """Barto, Sutton and Anderson (1983) by explicit Euler; every number equals Gymnasium's."""
        sin, cos, temp, below = self._sin, self._cos, self._temp, self._below
        push = _FORCES[action]
        np.sin(self._angle, sin)
        np.cos(self._angle, cos)
        np.square(self._angle_dot, temp)
        np.multiply(_POLE_MOMENT, temp, temp)
        np.multiply(temp, sin, temp)
        np.add(push, temp, temp)
        np.divide(temp, _TOTAL_MASS, temp)
        np.multiply(_GRAVITY, sin, sin)
        np.multiply(cos, temp, push)
        np.subtract(sin, push, sin)
        np.square(cos, below)
        np.multiply(_MASS_POLE, below, below)
        np.divide(below, _TOTAL_MASS, below)
        np.subtract(_FOUR_THIRDS, below, below)
        np.multiply(_HALF_LENGTH, below, below)
        np.divide(sin, below, self._angle_acc)
        np.multiply(_POLE_MOMENT, self._angle_acc, push)
        np.multiply(push, cos, push)
        np.divide(push, _TOTAL_MASS, push)
        np.subtract(temp, push, self._x_acc)
        np.multiply(_TAU, self._derivative, self._change)
        np.add(self._state, self._change, self._state)

    def _begin(self, i: int) -> None:
        self._state_parts[i] = self._random[i].uniform(-START, START, 4).reshape(2, 2)
        self._obs_parts[i] = self._state_parts[i]
        self._began[i] = self._clock

    def _begin_again(self) -> Array:
        self._final_obs[...] = self._obs
        done = np.flatnonzero(self._terminated | self._truncated).tolist()
        for i in done:
            self._final_state[i] = self._state_parts[i].ravel()
            self._begin(i)
        self._next_limit = int(self._began.min()) + self._limit
        return self._final_obs
