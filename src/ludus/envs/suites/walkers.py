"""A faster step for Gymnasium's planar walkers, without infos, contact forces and checks, which a vector never reads.

Gymnasium's Python around the physics costs half as much as the physics. Rewards and observations are equal to the bit
(tests/envs/test_walkers.py); resets, random numbers and snapshots stay those of the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from ludus.envs import StepReturn
from ludus.envs.spaces import ConvertSpaces
from ludus.types import Array

TESTED = "1.4."
"""Versions of Gymnasium whose private attributes are known; under any other one environments step as usual."""
MODULE = "gymnasium.envs.mujoco."
MAX_VELOCITY = 10.0
"""Hoppers and walkers observe velocities clipped to it."""
Walker = Any
"""An environment, or the TimeLimit around it, whose private attributes are read."""
Step = Callable[[Any], StepReturn]
Healthy = Callable[[Array, Array], bool]
"""Positions and velocities -> whether it still stands."""


def quick_step(env: gym.Env) -> Step | None:
    """A replacement of `env.step` for a walker with nothing but a time limit around it; None for all others."""
    if env.render_mode == "human" or not gym.__version__.startswith(TESTED):
        return None
    limit = env.env if type(env) is ConvertSpaces else env
    bare: Walker = limit.env if type(limit) is TimeLimit else None
    kind = (type(bare).__module__, type(bare).__name__)
    return _step(limit, bare, WALKERS[kind](bare)) if kind in WALKERS else None


def _step(limit: Walker, env: Walker, healthy: Healthy | None) -> Step:
    """Physics, then the observation; the reward is velocity minus effort, plus that of standing if it can fall."""
    from mujoco import mj_step

    model, data, frames, dt = env.model, env.data, env.frame_skip, env.dt
    qpos, qvel, ctrl = data.qpos, data.qvel, data.ctrl  # views: MuJoCo never moves them
    seen = qpos[1:] if env._exclude_current_positions_from_observation else qpos
    forward, effort = env._forward_reward_weight, env._ctrl_cost_weight
    alive, falls = (env._healthy_reward, env._terminate_when_unhealthy) if healthy else (0.0, False)
    nothing: dict[str, Any] = {}

    def step(action: Array) -> StepReturn:
        """One step of the walker, which counts towards the time limit."""
        before = qpos[0]
        ctrl[:] = action
        mj_step(model, data, frames)
        limit._elapsed_steps += 1
        late = limit._elapsed_steps >= limit._max_episode_steps
        reward = forward * ((qpos[0] - before) / dt)
        cost = effort * np.add.reduce(np.square(action))
        if healthy is None:
            return np.concatenate((seen, qvel), dtype=np.float32), reward - cost, False, late, nothing
        stands = healthy(qpos, qvel)
        reward = reward + stands * alive - cost
        observation = np.concatenate((seen, np.clip(qvel, -MAX_VELOCITY, MAX_VELOCITY)), dtype=np.float32)
        return observation, reward, falls and not stands, late, nothing

    return step


def _hopper(env: Walker) -> Healthy:
    (low, high), (low_z, high_z) = env._healthy_state_range, env._healthy_z_range
    low_angle, high_angle = env._healthy_angle_range

    def healthy(qpos: Array, qvel: Array) -> bool:
        """Upright, and no number of the state out of range."""
        if not (low_z < qpos[1] < high_z and low_angle < qpos[2] < high_angle):
            return False
        state = np.concatenate((qpos[2:], qvel))
        return bool(low < state.min() and state.max() < high)

    return healthy


def _walker2d(env: Walker) -> Healthy:
    (low_z, high_z), (low_angle, high_angle) = env._healthy_z_range, env._healthy_angle_range
    return lambda qpos, _: bool(low_z < qpos[1] < high_z and low_angle < qpos[2] < high_angle)


WALKERS: dict[tuple[str, str], Callable[[Walker], Healthy | None]] = {
    (f"{MODULE}half_cheetah_v5", "HalfCheetahEnv"): lambda _: None,  # it cannot fall
    (f"{MODULE}hopper_v5", "HopperEnv"): _hopper,
    (f"{MODULE}walker2d_v5", "Walker2dEnv"): _walker2d,
}
"""Module and name of each class, and how to find out whether it still stands."""
