"""What kind of task an environment is, for the presets of `ludus.config.presets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.envs import catalog
from ludus.envs.suites import spelled, suite_of

if TYPE_CHECKING:
    from ludus.config.schema import Environment

SUITES = {
    "Atari": "atari", "MuJoCo": "mujoco", "DM Control": "dmc", "MiniGrid": "minigrid", "MinAtar": "minatar"
}  # fmt: skip
LEAST_SIDE = 64
"""Smaller pictures stay as they are."""


def current(id: str) -> str:
    """The registered spelling of an id, and today's version of the environment."""
    return catalog.current(spelled(id))


def kind(cfg: Environment) -> str:
    """`atari`, `mujoco`, `dmc`, `minigrid` or `minatar` by the id, else `image`, `continuous` or `discrete`."""
    spec = catalog.find(cfg.id)
    known = SUITES.get(suite_of(spec.id).title)
    pictures = cfg.kwargs.get("obs_type", "rgb") in ("rgb", "grayscale")
    if known and (pictures if known == "atari" else not cfg.wrappers):
        return known
    found = _by_spaces(cfg)
    return known if known and known != "atari" and found != "image" else found


def _by_spaces(cfg: Environment) -> str:
    import gymnasium as gym

    from ludus.envs.deadline import close
    from ludus.envs.make import make_env
    from ludus.spaces import is_image

    env = make_env(cfg)
    close(env, f"environment {cfg.id}", cfg.step_deadline)
    shape = env.observation_space.shape or ()
    if is_image(env.observation_space) and shape[0] in (1, 3) and min(shape[1:]) >= LEAST_SIDE:
        return "image"
    return "continuous" if isinstance(env.action_space, gym.spaces.Box) else "discrete"
