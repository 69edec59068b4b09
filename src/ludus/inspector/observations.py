"""Observations of an episode: numbers with their names, and images as pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.data.normalizer import ObservationNormalizer
from ludus.inspector.pictures import MOST_CHANNELS, grid, shades
from ludus.networks.encoders import is_image
from ludus.play import PlayedStep
from ludus.types import Array, Tree, space_tree, tree_index, tree_leaves, tree_map, tree_paths

MOST_NUMBERS = 512
"""More numbers than this are not shown one by one."""


class Observations:
    """What a policy saw, step by step: leaves of the observation space are images, or numbers that stand in a row."""

    def __init__(self, space: gym.Space, steps: Sequence[PlayedStep], normalizer: ObservationNormalizer | None) -> None:
        tree = space_tree(space)
        self.spaces, self.paths, self.steps, self.normalizer = tree_leaves(tree), tree_paths(tree), steps, normalizer
        self.images = [i for i, leaf in enumerate(self.spaces) if is_image(leaf)]
        self.numbers = [i for i in range(len(self.spaces)) if i not in self.images]
        self.names = [name for i in self.numbers for name in self._names(i)][:MOST_NUMBERS]

    def _names(self, i: int) -> list[str]:
        size, path = int(np.prod(self.spaces[i].shape or (1,))), self.paths[i]
        return [path or "observation"] if size == 1 else [f"{path}[{k}]" for k in range(size)]

    def facts(self, labels: Sequence[str]) -> dict[str, Any]:
        """Names of the numbers (the environment's own if they fit), and what the images are called."""
        names = [*labels] if len(labels) == len(self.names) else self.names
        channels = [int((self.spaces[i].shape or (0,))[0]) for i in self.images]
        return {"labels": names, "images": [self.paths[i] or "image" for i in self.images], "channels": channels}

    def for_policy(self) -> Tree:
        """[T, ...] as the network reads them."""
        whole = tree_map(lambda *rows: np.concatenate(rows), *(step.obs for step in self.steps))
        return whole if self.normalizer is None else self.normalizer.apply(whole)

    def vectors(self, *, normalised: bool = False) -> Array:
        """[T, D]: all numbers in a row."""
        rows = []
        for step in self.steps:
            obs = self.normalizer.apply(step.obs) if normalised and self.normalizer is not None else step.obs
            leaves = tree_leaves(tree_index(obs, 0))
            parts = [np.asarray(leaves[i], np.float64).ravel() for i in self.numbers]
            rows.append(np.concatenate([*parts, np.zeros(0)])[:MOST_NUMBERS])
        return np.stack(rows)

    def pictures(self) -> Iterator[Array]:
        """One picture of a step: the channels of its images in a grid; nothing if there is no image."""
        for step in self.steps if self.images else ():
            leaves = tree_leaves(tree_index(step.obs, 0))
            yield channels([(leaves[i], self.spaces[i]) for i in self.images])


def channels(images: Sequence[tuple[Array, Any]]) -> Array:
    """Images [C, H, W] as one picture: one of three channels in colour, all others as a grid of their channels."""
    first, _space = images[0]
    scaled = [shades(image, 0.0, float(max(space.high.max(), 1))) for image, space in images]
    if len(images) == 1 and first.shape[0] == 3:
        return np.moveaxis(scaled[0], 0, -1)
    same = [image for image in scaled if image.shape[1:] == scaled[0].shape[1:]]
    return grid(np.concatenate(same)[:MOST_CHANNELS])
