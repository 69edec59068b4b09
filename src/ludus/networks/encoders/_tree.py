"""Observations with several parts: every image has an encoder of its own, all vectors share one."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import torch
from torch import Tensor, nn

from ludus.config.model import Choice
from ludus.errors import ConfigError
from ludus.networks.encoders import Encoder, build_encoder, is_image
from ludus.networks.encoders._pixels import channels_last
from ludus.networks.precision import Precision
from ludus.registry import ENCODERS
from ludus.text import did_you_mean
from ludus.types import Tree, space_tree, tree_map

Path = tuple[str | int, ...]


class TreeEncoder(Encoder):
    """Features side by side: parts with an encoder of their own in the order of their names, then the joined vectors.

    A part that the config names has the encoder it asks for. For all others the general setting holds: an image
    encoder for the images, `mlp` for the vectors, which are joined before it; where it does not fit, `auto` does.
    """

    def __init__(self, choice: Choice, space: gym.Space, precision: Precision | None, where: str) -> None:
        super().__init__()
        spaces = space_tree(space)
        keys = [str(key) for key, _ in _children(spaces)]
        for name in choice.parts:
            if name not in keys:
                raise ConfigError(f"{where}.{name}", "observations have no such part", did_you_mean(name, keys))
        self.paths: list[Path] = []
        self.parts = nn.ModuleDict()
        self.vectors: list[Path] = []
        auto, general = Choice("auto", ENCODERS["auto"].Config()), Choice(choice.name, choice.config)
        takes_images = ENCODERS[choice.name].takes_images
        for key, child in _children(spaces):
            if str(key) in choice.parts:
                part = space.spaces[key]  # type: ignore[attr-defined]
                self._add((key,), build_encoder(choice.parts[str(key)], part, precision, f"{where}.{key}"))
                continue
            for path, leaf in _leaves(child, (key,)):
                if is_image(leaf):
                    self._add(path, build_encoder(general if takes_images else auto, leaf, precision, where))
                else:
                    self.vectors.append(path)
        self.joint: Encoder | None = None
        if self.vectors:
            joined = gym.spaces.Tuple([_at(spaces, path) for path in self.vectors])
            self.joint = build_encoder(auto if takes_images else general, joined, precision, where)
        self.out_dim = sum(encoder.out_dim for encoder in self._encoders())
        self.heavy = any(encoder.heavy for encoder in self._encoders())

    def _add(self, path: Path, encoder: Encoder) -> None:
        name = "_".join(map(str, path)).replace(".", "_")  # a module's name may have no dot
        while name in self.parts:
            name += "_"
        self.parts[name] = encoder
        self.paths.append(path)

    def _encoders(self) -> list[Encoder]:
        return [*self.parts.values(), *([] if self.joint is None else [self.joint])]  # type: ignore[list-item]

    @property
    def bare(self) -> bool:
        return any(encoder.bare for encoder in self._encoders())

    def arrange(self, obs_TB: Tree) -> Tree:
        """The same observations with images in channels-last memory."""
        return tree_map(lambda leaf: channels_last(leaf) if _is_image_batch(leaf) else leaf, obs_TB)

    def forward(self, obs_TB: Tree) -> Tensor:
        features = [part(_at(obs_TB, path)) for path, part in zip(self.paths, self.parts.values(), strict=True)]
        if self.joint is not None:
            features.append(self.joint(tuple(_at(obs_TB, path) for path in self.vectors)))
        return torch.cat(features, -1)


def _children(tree: Tree) -> list[tuple[str | int, Tree]]:
    return list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))


def _leaves(tree: Tree, path: Path) -> Iterator[tuple[Path, gym.Space]]:
    if isinstance(tree, dict | tuple):
        for key, child in _children(tree):
            yield from _leaves(child, (*path, key))
    else:
        yield path, tree


def _at(tree: Tree, path: Path) -> Tree:
    for key in path:
        tree = tree[key]
    return tree


def _is_image_batch(leaf: Tensor) -> bool:
    return leaf.dtype == torch.uint8 and leaf.ndim == 5
