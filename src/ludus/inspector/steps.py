"""One step of a recorded episode as data and picture, for readers without the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ludus.types import Array

_WIDE = ("probabilities", "q", "mean", "std")


def step_of(folder: Path, t: int) -> tuple[dict[str, Any], bytes | None]:
    """What the page shows beside step t (the last one if the episode is shorter), and the picture before it as PNG."""
    meta = json.loads((folder / "episode.json").read_text())
    data, t = (folder / "arrays.bin").read_bytes(), min(max(t, 0), meta["steps"] - 1)
    row = {name: _row(data, place, t) for name, place in meta["arrays"].items() if name != "attention"}
    action, labels = row["action"], meta["action"]["labels"]
    named = labels[int(action[0])] if action.size == 1 and labels else None
    numbers = {name: float(value[0]) for name, value in row.items() if meta["arrays"][name]["shape"][1:] == []}
    facts = {key: meta[key] for key in ("wish", "environment", "algorithm", "greedy", "steps", "return", "end")}
    return {
        **facts,
        "t": t,
        "action": action.tolist(),
        "action_name": named,
        **{name: row[name].tolist() for name in _WIDE if name in row},
        **{name: value for name, value in numbers.items() if name not in ("action", "done")},
        "observation": dict(zip(meta["observation"]["labels"], row["obs"].tolist(), strict=False)),
        "info": {key: values[t] for key, values in meta["info"].items()},
    }, _picture(folder / "frames.bin", meta["frames"], t)


def _row(data: bytes, place: dict[str, Any], t: int) -> Array:
    width, kind = int(np.prod(place["shape"][1:])), np.dtype(f"<{place['type']}")
    return np.frombuffer(data, kind, width, place["at"] + t * width * kind.itemsize)


def _picture(path: Path, frames: dict[str, Any] | None, t: int) -> bytes | None:
    if frames is None:
        return None
    at = frames["before"][t]
    begin, end = frames["index"][at : at + 2]
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)
