"""What a world model makes of the recorded episode: its reconstruction of a step, and what it thinks comes next."""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.envs.facts import observation_labels
from ludus.imagination import Compared, dream
from ludus.inspector.pictures import grid, picture, shades
from ludus.inspector.recording import Played, discounts
from ludus.session.imagine import as_learned, part_names, rows, world_of
from ludus.types import Array

MOST_AHEAD = 16
MOST_CONTEXT = 400
"""Steps before the current one that the model sees first."""


def imagined(played: Played, t: int) -> dict[str, Any]:
    """Rows t ... t + 16: what was, its reconstruction, and the prediction from row t on by the actions alone."""
    algorithm, config = played.player.algorithm, played.player.config
    world = world_of(algorithm, config.algorithm.name)
    start = max(t - MOST_CONTEXT, 0)
    whole = rows(played.steps[start : t + MOST_AHEAD + 1], 0)
    episode = as_learned([whole], played.player, world, played.path)[0]
    context = min(t - start + 1, len(episode) - 1)
    if context < 1:
        return {"t": t, "parts": [], "why": "the episode ends here"}
    horizon = len(episode) - context
    found = dream(world, episode, context, horizon, discounts(played)[0], algorithm.value_of)
    images, labels = part_names(world, observation_labels(config.environment.id))
    shown = slice(context - 1, context + horizon)
    parts = [_part(images.get(name, name), one, shown, name in images, labels) for name, one in found.shown.items()]
    numbers = {"reward": found.reward, "value": found.value, "continues": found.continues}
    lines = {name: _lines(one, shown) for name, one in numbers.items() if one is not None}
    return {"t": t, "from": start + context - 1, "parts": parts, "lines": lines}


def _lines(one: Compared, shown: slice) -> dict[str, list[float]]:
    return {name: [float(x) for x in getattr(one, name)[shown]] for name in ("real", "reconstructed", "predicted")}


def _part(name: str, one: Compared, shown: slice, image: bool, labels: tuple[str, ...]) -> dict[str, Any]:
    real, reconstructed, predicted = (np.asarray(side[shown]) for side in one)
    if image and real.ndim == 4:
        low, high = float(real.min()), float(real.max())
        strips = {key: [picture(_shown(row, low, high)) for row in side] for key, side in
                  (("real", real), ("reconstructed", reconstructed), ("predicted", predicted))}  # fmt: skip
        return {"name": name, "image": True, **strips}
    flat = [side.reshape(len(side), -1) for side in (real, reconstructed, predicted)]
    names = [*labels] if len(labels) == flat[0].shape[1] else [f"{name}[{k}]" for k in range(flat[0].shape[1])]
    values = {key: side[:, :12].astype(float).tolist() for key, side in
              zip(("real", "reconstructed", "predicted"), flat, strict=True)}  # fmt: skip
    return {"name": name, "image": False, "labels": names[:12], **values}


def _shown(image_CHW: Array, low: float, high: float) -> Array:
    if image_CHW.shape[0] == 3:
        return np.moveaxis(shades(image_CHW, low, high), 0, -1)
    return grid(shades(image_CHW, low, high))
