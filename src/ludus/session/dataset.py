"""What is in a data set, or in the stored buffer of a run: every episode is read and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ludus.data.buffers.saving import INDEX
from ludus.data.buffers.stored import OfflineBuffer, StoredConfig, stored_spaces
from ludus.data.datasets.minari import METADATA, MinariData
from ludus.data.datasets.statistics import Statistics, Summary, summarize
from ludus.data.datasets.stored import episodes_of
from ludus.errors import ConfigError
from ludus.types import Spaces, space_tree, tree_leaves, tree_paths


def described(path: str) -> dict[str, Any]:
    """The facts about a data set in Minari's format, about the buffer `replay` of a run, or about a buffer's folder."""
    given = Path(path).expanduser()
    if any((place / METADATA).is_file() for place in (given / "data", given)):
        found = MinariData(path, "PATH")
        facts: dict[str, Any] = {"format": "Minari", "id": found.id, "recorded": found.metadata.get("ludus", [])}
        return told(path, found.spaces, summarize(found.spaces, found.episodes()), found.sha256, facts)
    if any((place / INDEX).is_file() for place in (given, given / "buffers" / "replay")):
        cfg = StoredConfig(path=path)
        spaces = stored_spaces(cfg, "PATH")
        buffer = OfflineBuffer(cfg, spaces, 1, name="replay", rng=np.random.default_rng(0))
        sums = json.dumps(buffer._index["contents"]["segments"])
        sha256 = hashlib.sha256(sums.encode()).hexdigest()
        return told(path, spaces, summarize(spaces, episodes_of(buffer)), sha256, {"format": "stored buffer"})
    raise ConfigError(
        path, "there is no data set and no stored buffer", "name a folder with data/metadata.json, or a run"
    )


def told(path: str, spaces: Spaces, found: Summary, sha256: str, more: dict[str, Any]) -> dict[str, Any]:
    """A summary as plain data."""
    returns, lengths = np.array(found.returns), np.array(found.lengths, float)
    return {
        "path": path,
        **more,
        "observation_space": str(spaces.observation),
        "action_space": str(spaces.action),
        "episodes": len(returns),
        "terminated": found.terminated,
        "steps": found.steps,
        "return": spread(returns),
        "length": spread(lengths),
        "sha256": sha256,
        "statistics": [*numbers(found, spaces)],
    }


def spread(values: np.ndarray) -> dict[str, float]:
    """Mean, deviation, least and largest."""
    return {name: float(getattr(values, name)()) for name in ("mean", "std", "min", "max")}


def numbers(found: Summary, spaces: Spaces) -> Iterator[dict[str, Any]]:
    """Every number of an observation and of an action, with its distribution."""
    paths = tree_paths(space_tree(spaces.observation))
    for path, part in zip(paths, tree_leaves(found.obs), strict=True):
        yield from _each("obs" + (f".{path}" if path else ""), part)
    yield from _each("action", found.action)


def _each(name: str, part: Statistics) -> Iterator[dict[str, Any]]:
    for index in np.ndindex(part.low.shape):
        label = f"{name}[{', '.join(map(str, index))}]" if index else name
        values = (part.low, part.high, part.mean, part.std)
        yield {
            "name": label,
            **{key: float(value[index]) for key, value in zip(("min", "max", "mean", "std"), values, strict=True)},
        }
