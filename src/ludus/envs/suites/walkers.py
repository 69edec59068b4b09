"""Gymnasium's planar walkers, stepped without what a vector never reads: infos, contact forces, checks of every call.

Their own Python around the physics costs as much as half of it. Rewards and observations are the same to the bit
(tests/envs/test_walkers.py); the environment stays the one that resets, draws and is saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from ludus.envs.spaces import ConvertSpaces
from ludus.types import Array

Step = Callable[[Any], tuple[Any, Any, bool, bool, dict[str, Any]]]
MODULE = "gymnasium.envs.mujoco."
FASTEST = 10.0
"""Velocities beyond it are clipped in what hoppers and walkers see."""


def quick_step(env: gym.Env) -> Step | None:
    """`env.step` of a walker with nothing but a time limit around it; none of any other environment."""
    if env.render_mode == "human":
        return None
    limit = env.env if type(env) is ConvertSpaces else env
    bare: Any = limit.env if type(limit) is TimeLimit else None
    kind = type(bare)
    if not kind.__module__.startswith(MODULE) or (kind.__module__, kind.__name__) not in WALKERS:
        return None
    return _timed(limit, _step(bare, WALKERS[kind.__module__, kind.__name__](bare)))


def _timed(limit: Any, inner: Callable[[Array], tuple[Array, Any, bool]]) -> Step:
    nothing: dict[str, Any] = {}

    def step(action: Array) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        observation, reward, ended = inner(action)
        limit._elapsed_steps += 1
        return observation, reward, ended, limit._elapsed_steps >= limit._max_episode_steps, nothing

    return step


def _step(env: Any, healthy: Callable[[Array, Array], bool] | None) -> Callable[[Array], tuple[Array, Any, bool]]:
    """Physics, what is seen, forward velocity minus effort and, where falling is possible, the reward of standing."""
    from mujoco import mj_step

    model, data, frames, dt = env.model, env.data, env.frame_skip, env.dt
    qpos, qvel, ctrl = data.qpos, data.qvel, data.ctrl  # views: MuJoCo never moves them
    seen = qpos[1:] if env._exclude_current_positions_from_observation else qpos
    forward, effort = env._forward_reward_weight, env._ctrl_cost_weight
    alive, falls = (env._healthy_reward, env._terminate_when_unhealthy) if healthy else (0.0, False)

    def step(action: Array) -> tuple[Array, Any, bool]:
        before = qpos[0]
        ctrl[:] = action
        mj_step(model, data, frames)
        reward = forward * ((qpos[0] - before) / dt)
        cost = effort * np.add.reduce(np.square(action))
        if healthy is None:
            return np.concatenate((seen, qvel), dtype=np.float32), reward - cost, False
        stands = healthy(qpos, qvel)
        reward = reward + stands * alive - cost
        observation = np.concatenate((seen, np.clip(qvel, -FASTEST, FASTEST)), dtype=np.float32)
        return observation, reward, falls and not stands

    return step


def _hopper(env: Any) -> Callable[[Array, Array], bool]:
    (low, high), (low_z, high_z), (low_angle, high_angle) = (
        env._healthy_state_range,
        env._healthy_z_range,
        env._healthy_angle_range,
    )

    def healthy(qpos: Array, qvel: Array) -> bool:
        if not (low_z < qpos[1] < high_z and low_angle < qpos[2] < high_angle):
            return False
        state = np.concatenate((qpos[2:], qvel))
        return bool(low < state.min() and state.max() < high)

    return healthy


def _walker2d(env: Any) -> Callable[[Array, Array], bool]:
    (low_z, high_z), (low_angle, high_angle) = env._healthy_z_range, env._healthy_angle_range
    return lambda qpos, _: bool(low_z < qpos[1] < high_z and low_angle < qpos[2] < high_angle)


WALKERS: dict[tuple[str, str], Callable[[Any], Callable[[Array, Array], bool] | None]] = {
    (f"{MODULE}half_cheetah_v5", "HalfCheetahEnv"): lambda _: None,  # it cannot fall
    (f"{MODULE}hopper_v5", "HopperEnv"): _hopper,
    (f"{MODULE}walker2d_v5", "Walker2dEnv"): _walker2d,
}
"""How each class finds out whether it still stands."""
