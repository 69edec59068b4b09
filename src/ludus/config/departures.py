"""What does not hold for the environment and algorithm that a config ends up with: it is left out, and told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ludus.config.merge import Draft, Layer
from ludus.config.validate import MISSING, select
from ludus.errors import ConfigError
from ludus.registry import ALGORITHMS
from ludus.text import safe_name

ID, ALGORITHM, NAME = ("environment", "id"), ("algorithm", "name"), ("experiment", "name")
PHASES = ("training", "phases")
SHARED = tuple(Path(__file__).parents[1] / "configs" / folder for folder in ("environments", "presets"))
"""Where shipped files say something for every algorithm."""
GOALS = (("environment", "reward_threshold"), ("training", "stop", "eval_reward"), ("training", "stop", "train_reward"))


def follow(draft: Draft, before: Draft, spec: str) -> list[str]:
    """Drop goals of another environment, name the run after what it trains, and say which tuned values are gone."""
    notes = []
    (old_id, id), (old, algorithm) = ([select(one.data, path) for one in (before, draft)] for path in (ID, ALGORITHM))
    if old_id in (MISSING, ""):
        return []
    if id != old_id:
        foreign = [path for path in GOALS if _unchanged(draft, before, path)]
        for path in foreign:
            draft.remove(path)
        if foreign:
            told = ", ".join(".".join(path) for path in foreign)
            notes.append(f"environment.id={id}: left out {told}, which {spec} has for {old_id}")
    if algorithm != old and old is not MISSING:
        lost = [key for key in before.data["algorithm"] if key not in draft.data["algorithm"]]
        if lost:
            rest = f"it starts from {algorithm}'s defaults"
            notes.append(f"algorithm.name={algorithm}: {', '.join(lost)} of {spec} no longer apply; {rest}")
    if (id, algorithm) != (old_id, old) and select(draft.data, NAME) == safe_name(str(old_id)):
        layer = Layer()
        layer.feed(NAME, safe_name(f"{id}-{algorithm}"), str(draft.origin(ID if id != old_id else ALGORITHM)))
        draft.add(layer)
    return notes


def leave_out_buffer(draft: Draft, layers: Sequence[Layer]) -> list[str]:
    """Files of other tools name a `buffer` for every algorithm, also for one that learns from its rollouts."""
    name = select(draft.data, ALGORITHM)
    spelled = any(value.spelling.startswith("buffer.") for layer in layers for value in layer.values())
    if (
        not spelled
        or name not in ALGORITHMS
        or getattr(ALGORITHMS[name], "buffers", {})
        or select(draft.data, PHASES) is not MISSING
    ):
        return []
    draft.remove(("buffers", "replay"))
    return [f"buffer: left out, {name} learns from its rollouts"]


def leave_out_networks(draft: Draft, before: Draft, overrides: Sequence[str]) -> list[str]:
    """Parts of `network` that the algorithm does not use: an override is refused, what a file says is told.

    What a shipped environment says for all its algorithms is not told.
    """
    name = select(draft.data, ALGORITHM)
    if name not in ALGORITHMS:
        return []
    algorithm, given = ALGORITHMS[name], draft.data.get("network") or {}
    used = getattr(algorithm, "networks", frozenset(given))
    told = []
    for part in [part for part in given if part not in used]:
        origins = {origin for path, origin in draft.origins.items() if path[:2] == ("network", part)}
        for override in origins.intersection(overrides):
            remedy = f"set algorithm.{part}" if part in algorithm.Config.model_fields else "leave it out"
            raise ConfigError(override, f"{name} does not use network.{part}", remedy)
        if select(before.data, ALGORITHM) != name or not all(_shared(origin) for origin in origins):
            told.append(f"network.{part}")
        draft.remove(("network", part))
    return [f"{', '.join(told)}: left out, {name} does not use {'them' if told[1:] else 'it'}"] if told else []


def _shared(origin: str) -> bool:
    """Whether a value stands in a shipped file about an environment."""
    return Path(re.sub(r":\d+$", "", origin)).absolute().parent in SHARED


def _unchanged(draft: Draft, before: Draft, path: tuple[str, ...]) -> bool:
    """Whether a goal was set by the variant and by no override."""
    there = select(draft.data, path) not in (MISSING, None)
    return there and draft.origins.get(path) == before.origins.get(path)
