"""Facts about environments: what their config files say (the `spec` block) and what the environments say themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from ludus.config.compose import load, search_path
from ludus.config.groups import FACTS, EnvironmentFile, environment_files
from ludus.config.merge import Draft
from ludus.config.model import Model
from ludus.config.schema import Environment
from ludus.envs.catalog import load_all
from ludus.envs.suites import Suite, spelled, suite_of
from ludus.errors import ConfigError
from ludus.text import did_you_mean

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.envs.spaces import EnvInfo

MOST_LISTED = 32
"""Spaces with more numbers than this get one range instead of one for each number."""
Facts = dict[str, Any]
"""Plain data that JSON can hold."""


class SpaceFacts(Model):
    """What the numbers of a space mean."""

    labels: tuple[str, ...] = ()
    """One for each action of a Discrete space, or for each number of a vector."""
    valid: tuple[int, ...] | None = None
    """The actions that a policy may choose from."""

    @property
    def allowed(self) -> tuple[str, ...]:
        """Labels of the actions that may be chosen."""
        return self.labels if self.valid is None else tuple(self.labels[i] for i in self.valid if i < len(self.labels))


class EnvironmentFacts(Model):
    """The `spec` block of an environment file."""

    description: str = ""
    """One line."""
    action: SpaceFacts = SpaceFacts()
    """Labels of the actions."""
    observation: SpaceFacts = SpaceFacts()
    """Labels of the observation."""
    reward: str = ""
    """What the reward is given for."""
    source: str = ""
    """Where to read more."""


class ConfiguredEnvironment(NamedTuple):
    """An environment with a config file, or one that is only registered (without variants)."""

    name: str
    id: str
    variants: list[str]
    suite: Suite


def shipped() -> list[ConfiguredEnvironment]:
    """Every environment that has a config file, with the id of its first variant; imports no environment."""
    dirs, found = search_path(), []
    for _, path in sorted(environment_files(dirs).items()):
        file = EnvironmentFile(path, dirs)
        id = path.stem
        if file.variants:
            id = str(Draft(file.layers(file.variants[0])).data["environment"]["id"])
        found.append(ConfiguredEnvironment(path.stem, id, file.variants, suite_of(id)))
    return found


def registered() -> list[ConfiguredEnvironment]:
    """Every id of Gymnasium and of the suites that are installed."""
    import gymnasium as gym

    load_all()
    return [ConfiguredEnvironment(id, id, [], suite_of(id)) for id in sorted(gym.registry)]


def environment_of(id: str) -> tuple[Environment, EnvironmentFile | None]:
    """The environment section of an id or an Env:variant, and its config file if there is one."""
    name, _, variant = id.partition(":")
    file = file_of(name)
    if variant:
        return load(id).config.environment, file
    if file is None or not file.variants:
        return Environment(id=spelled(name)), file
    first = load(f"{name}:{file.variants[0]}").config.environment
    return Environment(id=first.id, reward_threshold=first.reward_threshold), file


def file_of(name: str) -> EnvironmentFile | None:
    """The config file of an environment; `/` in its name may be written as `-`."""
    dirs = search_path()
    path = environment_files(dirs).get(name.replace("/", "-"))
    return EnvironmentFile(path, dirs) if path is not None else None


def facts_of(file: EnvironmentFile | None) -> tuple[EnvironmentFacts, str]:
    """The validated `spec` block of an environment file, and the name of the file."""
    if file is None or FACTS not in file.block:
        return EnvironmentFacts(), ""
    try:
        return EnvironmentFacts.model_validate(file.block[FACTS]), file.name
    except ValidationError as error:
        first = error.errors()[0]
        path = [FACTS, *map(str, first["loc"])]
        known = (EnvironmentFacts if len(path) == 2 else SpaceFacts).model_fields
        remedy = did_you_mean(path[-1], known) if first["type"] == "extra_forbidden" else ""
        line = file.block.lines.get(FACTS)
        where = f"{file.name}:{line}" if line else file.name
        raise ConfigError(where, f"{'.'.join(path)}: {first['msg']}", remedy) from None


def action_labels(id: str) -> tuple[str, ...]:
    """Labels of the actions of an environment, from its config file."""
    return facts_of(file_of(id))[0].action.allowed


def observation_labels(id: str) -> tuple[str, ...]:
    """Labels of the numbers that an environment shows, from its config file."""
    return facts_of(file_of(id))[0].observation.labels


def collect(env: EnvInfo, facts: EnvironmentFacts, source: str = "") -> Facts:
    """Everything known about an environment; `source` is the file that `facts` come from."""
    actions = facts.action.labels
    if getattr(env.action_space, "n", None) != len(actions):
        actions = facts.action.allowed
    seen = () if env.is_image else facts.observation.labels  # the labels are those of the vector, not of pixels
    return {
        "id": env.id,
        "suite": suite_of(env.id).title,
        "description": facts.description,
        "action": _space(env.action_space, actions, f"{source}: spec.action.labels"),
        "observation": _space(env.observation_space, seen, f"{source}: spec.observation.labels"),
        "reward": facts.reward,
        "max_episode_steps": env.max_episode_steps,
        "reward_threshold": env.reward_threshold,
        "render_modes": [*env.render_modes],
        "render_fps": env.render_fps,
        "source": facts.source,
    }


def _space(space: gym.Space, labels: Sequence[str], where: str) -> Facts:
    import numpy as np
    from gymnasium import spaces

    found: Facts = {"space": type(space).__name__, "shape": [*(space.shape or ())], "dtype": str(space.dtype)}
    count = int(np.prod(space.shape or (1,)))
    if isinstance(space, spaces.Discrete):
        found["n"] = count = int(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        found["n"] = [int(n) for n in space.nvec.ravel()]
    elif isinstance(space, spaces.Box):
        low, high = (bound.ravel().astype(float) for bound in (space.low, space.high))
        listed = count <= MOST_LISTED
        found["low"] = [_bound(v) for v in low] if listed else _bound(low.min())
        found["high"] = [_bound(v) for v in high] if listed else _bound(high.max())
    if labels and len(labels) != count:
        raise ConfigError(where, f"{len(labels)} labels for {count} numbers", "give one for each")
    found["labels"] = [*labels]
    return found


def _bound(value: float) -> float | None:
    """None for an unbounded side, because JSON has no infinity; otherwise six digits, as many as float32 has."""
    return float(f"{value:.6g}") if abs(value) < 1e30 else None
