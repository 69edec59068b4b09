"""`ludus env`: what an environment is, and which ones there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ludus.config.model import Model

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.config.variants import EnvironmentFile
    from ludus.envs.info import EnvInfo

app = typer.Typer(rich_markup_mode=None)
MOST_LINES = 32
"""Numbers of a space that are listed one by one."""


class SpaceFacts(Model):
    """What the numbers of a space mean."""

    labels: tuple[str, ...] = ()
    """One for each action of a Discrete space, or for each number of a vector."""


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


Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command()
def info(
    id: Annotated[str, typer.Argument(metavar="ID", help="Environment id, or Env:variant with its wrappers.")],
    as_json: Json = False,
) -> None:
    """Show spaces with labels and ranges, reward, time limit and threshold."""
    from ludus.envs.make import describe

    environment, file = _config(id)
    facts = collect(describe(environment), *_facts(file))
    facts["configs"] = file.variants if file else []
    if as_json:
        import json

        print(json.dumps(facts, indent=2))
    else:
        print("\n".join(lines(facts)))


@app.command("list")
def list_environments(
    search: Annotated[str | None, typer.Argument(help="Part of a name.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those without a config here.")] = False,
    as_json: Json = False,
) -> None:
    """List environments with the variants that are configured for them."""
    import json

    from ludus.config.compose import search_path
    from ludus.config.variants import EnvironmentFile, environment_files

    dirs = search_path()
    found = {stem: EnvironmentFile(path, dirs).variants for stem, path in sorted(environment_files(dirs).items())}
    if everything:
        import gymnasium

        found = {**{name: [] for name in sorted(gymnasium.registry)}, **found}
    found = {name: found[name] for name in found if search is None or search.lower() in name.lower()}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    width = max(map(len, found), default=0)
    for name, variants in found.items():
        print(f"{name:<{width}}  {', '.join(variants)}".rstrip())


def _config(id: str) -> tuple[Any, Any]:
    """The environment section and the environment file behind an id, if it has one."""
    from ludus.config.compose import load
    from ludus.config.schema import Environment

    name, _, variant = id.partition(":")
    file = _file(name)
    if variant:
        return load(id).config.environment, file
    first = load(f"{name}:{file.variants[0]}").config.environment if file and file.variants else None
    return Environment(id=name, reward_threshold=first.reward_threshold if first else None), file


def _file(name: str) -> EnvironmentFile | None:
    from ludus.config.compose import search_path
    from ludus.config.variants import EnvironmentFile, environment_files

    dirs = search_path()
    path = environment_files(dirs).get(name.replace("/", "-"))
    return EnvironmentFile(path, dirs) if path is not None else None


def _facts(file: EnvironmentFile | None) -> tuple[EnvironmentFacts, str]:
    """The `spec` block of an environment file, checked."""
    from pydantic import ValidationError

    from ludus.config.variants import FACTS
    from ludus.errors import ConfigError

    if file is None or FACTS not in file.block:
        return EnvironmentFacts(), ""
    try:
        return EnvironmentFacts.model_validate(file.block[FACTS]), file.name
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in (FACTS, *first["loc"]))
        raise ConfigError(file.name, f"{path}: {first['msg']}") from None


def action_labels(id: str) -> tuple[str, ...]:
    """What the actions of an environment mean, as far as its file tells."""
    return _facts(_file(id))[0].action.labels


def collect(env: EnvInfo, facts: EnvironmentFacts, source: str = "") -> dict[str, Any]:
    """Everything known about an environment as plain data."""
    return {
        "id": env.id,
        "description": facts.description,
        "action": _space(env.action_space, facts.action.labels, f"{source}: spec.action.labels"),
        "observation": _space(env.observation_space, facts.observation.labels, f"{source}: spec.observation.labels"),
        "reward": facts.reward,
        "max_episode_steps": env.max_episode_steps,
        "reward_threshold": env.reward_threshold,
        "render_modes": [*env.render_modes],
        "render_fps": env.render_fps,
        "source": facts.source,
    }


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
        ("configs", ", ".join(facts["configs"])),
        ("more", facts["source"]),
    ]
    head = [facts["id"], *([f"  {facts['description']}"] if facts["description"] else [])]
    spaces = [line for kind in ("action", "observation") for line in _space_lines(kind, facts[kind])]
    return [*head, *spaces, *(f"{name:<12} {text}" for name, text in rows if text)]


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
