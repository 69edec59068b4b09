"""What several tests need: a small validated config and a built run."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym

from ludus import registry
from ludus.algorithms import PhaseContext
from ludus.config.schema import ExperimentConfig
from ludus.experiment import build as build
from ludus.plugins import MODULE
from ludus.run import Run

CORNER = """
import gymnasium as gym

class Corner(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.low.copy(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.low.copy(), float(action), self.t >= 5, False, {}
"""
"""A file with an environment of 5 steps, which pays for action 1."""
_REGISTRIES = [part for part in vars(registry).values() if isinstance(part, registry.Registry)]


def config(algorithm: dict[str, Any] | str = "ppo", env: str = "CartPole-v1", **sections: Any) -> ExperimentConfig:
    """A small experiment; sections are merged one level deep over small defaults."""
    environment = {"id": env, "num_envs": 4, **sections.pop("environment", {})}
    training = {"total_timesteps": 1_024, **sections.pop("training", {})}
    runtime = {"compile": "never", **sections.pop("runtime", {})}
    if isinstance(algorithm, str):
        algorithm = {"name": algorithm}
    data = {"environment": environment, "algorithm": algorithm, "training": training, "runtime": runtime, **sections}
    return ExperimentConfig.model_validate(data)


def run(cfg: ExperimentConfig, **parts: Any) -> Run:
    """Build and run to the end."""
    built = build(cfg, **parts)
    built.run()
    built.close()
    return built


def close(run: Run) -> None:
    """Shut the environments of a run down."""
    run.close()


def forget_plugins() -> None:
    """The next command is a process of its own: what plugins registered is gone."""
    for part in _REGISTRIES:
        part._classes = {name: cls for name, cls in part._classes.items() if not _is_plugin(cls)}
    for id in [id for id, spec in gym.registry.items() if _is_plugin(spec.entry_point)]:
        del gym.registry[id]
    for name in [name for name in sys.modules if name.startswith(MODULE)]:
        del sys.modules[name]


def _is_plugin(part: Any) -> bool:
    return str(getattr(part, "__module__", "")).startswith(MODULE)


def moment(cfg: Any, env_steps: int = 0, total_steps: int = 10_000) -> PhaseContext:
    """A phase context for calling a hook by hand."""
    return PhaseContext(
        cfg=cfg,
        name="test",
        type="online",
        position=env_steps,
        total=total_steps,
        remaining_steps=total_steps - env_steps,
    )
