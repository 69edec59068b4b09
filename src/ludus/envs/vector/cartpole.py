"""CartPole for a whole vector: the arithmetic of Gymnasium's CartPoleEnv, in place and in the same order.

Every environment has its own generator, seeded and drawn from like the single environment's, so that this backend
equals `sync` bit for bit. Shapes: B environments.
"""

from __future__ import annotations

import math

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

from ludus.envs.deadline import frame
from ludus.envs.spaces import EnvInfo
from ludus.envs.vector.tasks import TaskVectorEnv, VectorTask
from ludus.types import Array, State, Tree

GRAVITY, MASS_CART, MASS_POLE, HALF_LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360
START = 0.05
# Arrays are cheaper operands than Python floats.
_TAU, _GRAVITY, _MASS_POLE, _HALF_LENGTH = map(np.array, (TAU, GRAVITY, MASS_POLE, HALF_LENGTH))
_TOTAL_MASS, _POLE_MOMENT, _FOUR_THIRDS = map(np.array, (MASS_POLE + MASS_CART, MASS_POLE * HALF_LENGTH, 4.0 / 3.0))
_FORCES = np.array([-FORCE, FORCE])


class CartPole(VectorTask):
    """The physics of CartPole-v0 and v1."""

    state = ("_state",)

    def __init__(self, num: int, info: EnvInfo, sutton_barto_reward: bool = False) -> None:
        super().__init__(num, info.observation_space, info.action_space)
        # Rows: x, angle, their velocities, their accelerations. So rows 2-6 are the time derivatives of rows 0-4.
        self._motion = np.zeros((6, num))
        _, self._angle, _, self._angle_dot, self._x_acc, self._angle_acc = self._motion
        self._state, self._derivative, self._places = self._motion[:4], self._motion[2:], self._motion[:2]
        self._change = np.empty((4, num))
        self._sin, self._cos, self._temp, self._below = np.empty((4, num))
        self._far, self._out = np.empty((2, num)), np.empty((2, num), bool)
        self._x_out, self._angle_out = self._out
        self._limits = np.repeat([[X_LIMIT], [ANGLE_LIMIT]], num, axis=1)
        # The same memory in the order (environment, x or angle, place or velocity), to fill it in one assignment.
        self._obs_parts = self.obs.reshape(num, 2, 2)
        self.parts = self._state.reshape(2, 2, num).transpose(2, 1, 0)
        self.last_parts = np.zeros((num, 2, 2))
        """The state in which the last episode of each row ended."""
        self._penalty = sutton_barto_reward
        self.reward.fill(0.0 if sutton_barto_reward else 1.0)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw the state of a row."""
        self.last_parts[i] = self.parts[i]
        self.parts[i] = rng.uniform(-START, START, 4).reshape(2, 2)
        self._obs_parts[i] = self.parts[i]

    def step(self, action: Array) -> None:
        """Move; an episode terminates where the cart or the pole is out of bounds."""
        self._move(action)
        self._obs_parts[...] = self.parts
        np.absolute(self._places, self._far)
        np.greater(self._far, self._limits, self._out)
        np.logical_or(self._x_out, self._angle_out, self.terminated)
        if self._penalty:
            np.negative(self.terminated, self.reward, dtype=np.float32)

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


class CartPoleVectorEnv(TaskVectorEnv):
    """CartPole in about a quarter of the time of Gymnasium's vector class."""

    saved_by = "adapter"
    _screen: CartPoleEnv | None = None

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        task = self._task
        assert isinstance(task, CartPole)
        if self._screen is None:
            self._screen = CartPoleEnv(render_mode="rgb_array")
        self._screen.state = (task.last_parts if final else task.parts)[index].ravel()
        return frame(self._screen, self.id)

    def _snapshot(self) -> State:
        state = super()._snapshot()
        return {"motion": state.pop("task")["_state"], **state}

    def _restore(self, state: State) -> Tree:
        motion = np.asarray(state["motion"])
        obs = motion[[0, 2, 1, 3]].T.astype(np.float32)  # the observations follow from the state
        return super()._restore({**state, "task": {"_state": motion, "obs": obs}})

    def close(self) -> None:
        if self._screen is not None:
            self._screen.close()
