"""The DeepMind Control Suite: `dmc/cartpole-swingup`, also spelled `dmc/cartpole_swingup`.

The task itself has no time limit here; the registered limit is the suite's thousand steps.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from dm_control import suite
from gymnasium.spaces import Box

from ludus.envs import Action, Frame, Info, Options, ResetReturn, StepReturn
from ludus.envs.catalog import hush_mujoco
from ludus.envs.snapshots import mujoco as state_of
from ludus.envs.suites import register
from ludus.types import Array

hush_mujoco()  # dm_control logs every warning

STEPS = 1_000
PLAIN = bool | int | float | str | np.ndarray | np.generic | np.random.RandomState | None
KEPT = ("_step_count", "_reset_next_step")
"""Attributes of dm_control's environment that belong to its state."""


class ControlSuite(gym.Env):
    """One task of the suite: its observations as one float32 vector, its frames in any size."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(
        self,
        domain: str,
        task: str,
        render_mode: str | None = None,
        height: int = 240,
        width: int = 320,
        camera: int | str = 0,
    ) -> None:
        self.render_mode, self._frame = render_mode, {"height": height, "width": width, "camera_id": camera}
        self._env: Any = suite.load(domain, task, task_kwargs={"time_limit": math.inf, "random": 0})
        self.metadata = {**self.metadata, "render_fps": round(1 / self._env.control_timestep())}
        size = sum(int(np.prod(part.shape)) for part in self._env.observation_spec().values())
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        action = self._env.action_spec()
        self.action_space = Box(action.minimum.astype(np.float32), action.maximum.astype(np.float32), dtype=np.float32)
        self._model = {name: value.copy() for name, value in _fields(self._physics.model.ptr).items()}

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode; a seed replaces the task's random state."""
        super().reset(seed=seed)
        if seed is not None:
            self._env.task._random = np.random.RandomState(seed % (1 << 32))
        return _vector(self._env.reset().observation), {}

    def step(self, action: Action) -> StepReturn:
        """One step of the control loop."""
        now = self._env.step(action)
        return _vector(now.observation), float(now.reward), bool(now.last() and now.discount == 0), False, {}

    def render(self) -> Frame:
        """uint8 [H, W, 3]."""
        return self._physics.render(**self._frame)

    def close(self) -> None:
        """Free the physics."""
        self._env.close()

    def snapshot_state(self) -> Info:
        """Physics, the parts of the model that a task changes, and the attributes of the task."""
        now, made = _fields(self._physics.model.ptr), self._model
        return {
            "data": state_of.take(self._physics.data.ptr, lambda _: None),
            "model": {name: value.copy() for name, value in now.items() if value.tobytes() != made[name].tobytes()},
            "task": {name: value for name, value in vars(self._env.task).items() if isinstance(value, PLAIN)},
            "env": {name: getattr(self._env, name) for name in KEPT},
        }

    def restore_state(self, state: Info) -> None:
        """Continue from a snapshot."""
        from mujoco import mj_step1

        model, data = self._physics.model.ptr, self._physics.data.ptr
        for name, value in state["model"].items():
            getattr(model, name)[...] = value
        state_of.give(data, state["data"])
        mj_step1(model, data)  # constraints and contacts, which the second half of a step reads
        state_of.give(data, state["data"])
        vars(self._env.task).update(state["task"])
        vars(self._env).update(state["env"])

    @property
    def _physics(self) -> Any:
        return self._env.physics


def _vector(parts: Info) -> Array:
    return np.concatenate([np.ravel(part) for part in parts.values()]).astype(np.float32)


def _fields(model: Any) -> dict[str, Array]:
    """The arrays of a model."""
    names = (name for name in dir(model) if not name.startswith("_"))
    return {name: value for name in names if isinstance(value := getattr(model, name), np.ndarray)}


for _domain, _task in suite.ALL_TASKS:
    for _id in (f"dmc/{_domain}-{_task}", f"dmc/{_domain}_{_task}"):
        _arguments = {"domain": _domain, "task": _task}
        register(_id, f"{__name__}:ControlSuite", max_episode_steps=STEPS, kwargs=_arguments)
