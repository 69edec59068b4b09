"""What is known about environments: from their files, from themselves, and whether they can be made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ludus.config.model import Model
from ludus.envs.families import Family, family, spelled
from ludus.text import did_you_mean

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.config.groups import EnvironmentFile
    from ludus.config.schema import Environment
    from ludus.envs.info import EnvInfo

MOST_LINES = 32
"""Numbers of a space that are listed one by one."""


class SpaceFacts(Model):
    """What the numbers of a space mean."""

    labels: tuple[str, ...] = ()
    """One for each action of a Discrete space, or for each number of a vector."""
    valid: tuple[int, ...] | None = None
    """Of the actions, those a policy may choose from."""

    @property
    def allowed(self) -> tuple[str, ...]:
        """Labels of what may be chosen."""
        return self.labels if self.valid is None else tuple(self.labels[i] for i in self.valid if i < len(self.labels))


class EnvironmentFacts(Model):
    """What `ludus env info` tells besides what the environment itself says."""

    description: str = ""
    """One line."""
    action: SpaceFacts = SpaceFacts()
    """Labels of the actions."""
    observation: SpaceFacts = SpaceFacts()
    """Labels of the observation."""
    reward: str = ""
    """What is paid for."""
    source: str = ""
    """Where to read more."""


class Entry(NamedTuple):
    """An environment with a config."""

    name: str
    id: str
    variants: list[str]
    family: Family


def shipped() -> list[Entry]:
    """Every environment that has a config; reads the files and nothing else."""
    from ludus.config.compose import search_path
    from ludus.config.groups import EnvironmentFile, environment_files

    dirs, found = search_path(), []
    for stem, path in sorted(environment_files(dirs).items()):
        file = EnvironmentFile(path, dirs)
        id = id_of(file)
        found.append(Entry(stem, id, file.variants, family(id)))
    return found


def id_of(file: EnvironmentFile) -> str:
    """The environment id a file is about: that of its first variant."""
    from ludus.config.merge import Draft

    if not file.variants:
        return file.path.stem
    return str(Draft(file.layers(file.variants[0])).data["environment"]["id"])


def environment_of(id: str) -> tuple[Environment, EnvironmentFile | None]:
    """The environment section behind an id or an Env:variant, and the file if there is one."""
    from ludus.config.compose import load
    from ludus.config.schema import Environment

    name, _, variant = id.partition(":")
    file = file_of(name)
    if variant:
        return load(id).config.environment, file
    first = load(f"{name}:{file.variants[0]}").config.environment if file and file.variants else None
    if first is None:
        return Environment(id=spelled(name)), file
    return Environment(id=first.id, reward_threshold=first.reward_threshold), file


def file_of(name: str) -> EnvironmentFile | None:
    """The file of an environment; `/` in its name may be written as `-`."""
    from ludus.config.compose import search_path
    from ludus.config.groups import EnvironmentFile, environment_files

    dirs = search_path()
    path = environment_files(dirs).get(name.replace("/", "-"))
    return EnvironmentFile(path, dirs) if path is not None else None


def facts_of(file: EnvironmentFile | None) -> tuple[EnvironmentFacts, str]:
    """The `spec` block of an environment file, checked, and where it is."""
    from pydantic import ValidationError

    from ludus.config.groups import FACTS
    from ludus.errors import ConfigError

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
    """What the actions of an environment mean, as far as its file tells."""
    return facts_of(file_of(id))[0].action.allowed


def collect(env: EnvInfo, facts: EnvironmentFacts, source: str = "") -> dict[str, Any]:
    """Everything known about an environment as plain data."""
    seen = () if env.is_image else facts.observation.labels  # pixels instead of what the labels name
    return {
        "id": env.id,
        "description": facts.description,
        "action": _space(env.action_space, _labels(env.action_space, facts.action), f"{source}: spec.action.labels"),
        "observation": _space(env.observation_space, seen, f"{source}: spec.observation.labels"),
        "reward": facts.reward,
        "max_episode_steps": env.max_episode_steps,
        "reward_threshold": env.reward_threshold,
        "render_modes": [*env.render_modes],
        "render_fps": env.render_fps,
        "source": facts.source,
    }


def _labels(space: gym.Space, facts: SpaceFacts) -> tuple[str, ...]:
    return facts.labels if getattr(space, "n", None) == len(facts.labels) else facts.allowed


def _space(space: gym.Space, labels: Sequence[str], where: str) -> dict[str, Any]:
    import numpy as np
    from gymnasium import spaces

    from ludus.errors import ConfigError

    found: dict[str, Any] = {"space": type(space).__name__, "shape": [*(space.shape or ())], "dtype": str(space.dtype)}
    count = int(np.prod(space.shape or (1,)))
    if isinstance(space, spaces.Discrete):
        found["n"] = count = int(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        found["n"] = [int(n) for n in space.nvec.ravel()]
    elif isinstance(space, spaces.Box):
        low, high = (bound.ravel().astype(float) for bound in (space.low, space.high))
        listed = count <= MOST_LINES
        found["low"] = [_bound(v) for v in low] if listed else _bound(low.min())
        found["high"] = [_bound(v) for v in high] if listed else _bound(high.max())
    if labels and len(labels) != count:
        raise ConfigError(where, f"{len(labels)} labels for {count} numbers", "give one for each")
    found["labels"] = [*labels]
    return found


def _bound(value: float) -> float | None:
    """JSON has no infinity: none is unbounded; a float32's digits end where they mean something."""
    return float(f"{value:.6g}") if abs(value) < 1e30 else None


def lines(facts: dict[str, Any]) -> list[str]:
    """The same for people."""
    modes = ", ".join(facts["render_modes"])
    limit, threshold = facts["max_episode_steps"], facts["reward_threshold"]
    rows = [
        ("reward", facts["reward"]),
        ("episode", f"at most {limit:,} steps" if limit else "no time limit"),
        ("solved at", f"{threshold:g}" if threshold is not None else "no threshold"),
        ("rendering", f"{modes} at {facts['render_fps']:g} frames per second" if modes else "none"),
        ("suite", facts["suite"]),
        ("backend", f"{facts['backend']}; it can run on {', '.join(facts['backends'])}"),
        ("resume", _RUNGS[facts["resume"]]),
        ("configs", ", ".join(facts["configs"])),
        ("more", facts["source"]),
    ]
    head = [facts["id"], *([f"  {facts['description']}"] if facts["description"] else [])]
    spaces = [line for kind in ("action", "observation") for line in _space_lines(kind, facts[kind])]
    return [*head, *spaces, *(f"{name:<12} {text}" for name, text in rows if text)]


_RUNGS = {
    "api": "exact: it saves its own state",
    "adapter": "exact: its state is read and written by an adapter",
    "pickle": "exact: it is pickled",
    "replay": "exact: its episode is played again",
    "barrier": "exact: all environments are reset at every checkpoint",
    "none": "not exact: its state cannot be saved or repeated",
}


def _space_lines(kind: str, space: dict[str, Any]) -> list[str]:
    shape = "x".join(map(str, space["shape"]))
    size = f"{space['n']}" if "n" in space else f"{shape or 1} {space['dtype']}"
    low, high, labels = space.get("low"), space.get("high"), space["labels"]
    if low is not None and not isinstance(low, list):
        return [f"{kind:<12} {space['space']} of {size}, {_range(low, high)}"]
    count = max(len(labels), len(low or []))
    width = max(map(len, labels), default=0)
    rows = []
    for i in range(count):
        label = labels[i] if labels else ""
        bounds = _range(low[i], high[i]) if low is not None and high is not None else ""
        rows.append(f"  {i:>3}  {label:<{width}}  {bounds}".rstrip())
    return [f"{kind:<12} {space['space']} of {size}", *rows]


def _range(low: float | None, high: float | None) -> str:
    return f"{'-inf' if low is None else f'{low:g}'} .. {'inf' if high is None else f'{high:g}'}"
