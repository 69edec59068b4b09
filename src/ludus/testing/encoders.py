"""The contract of encoders: features [T, B, D] of observations [T, B, ...]."""

from __future__ import annotations

from abc import ABC, abstractmethod

import gymnasium as gym
import numpy as np
import torch

from ludus.networks.encoders import Encoder
from ludus.types import Tree, tree_index, tree_leaves, tree_map

T, B = 3, 4


class EncoderContract(ABC):
    """Inherit, set `space` and override `make`."""

    space: gym.Space
    """Observation space that the encoder is made for."""

    @abstractmethod
    def make(self) -> Encoder:
        """A new encoder for `space`."""

    def _made(self, seed: int = 0) -> tuple[Encoder, Tree]:
        torch.manual_seed(0)
        self.space.seed(seed)
        drawn = [self.space.sample() for _ in range(T * B)]
        return self.make(), tree_map(lambda *rows: torch.from_numpy(np.stack(rows)).unflatten(0, (T, B)), *drawn)

    def test_each_observation_is_encoded_by_itself(self) -> None:
        """Into `out_dim` float32 numbers that depend on no other row, nor on the memory layout of the batch."""
        encoder, obs = self._made()
        before, whole = tree_map(torch.clone, obs), encoder(obs)
        assert (whole.shape, whole.dtype) == ((T, B, encoder.out_dim), torch.float32) and whole.isfinite().all()
        assert torch.equal(encoder(obs), whole) and all(tree_leaves(tree_map(torch.equal, obs, before)))
        alone = [encoder(tree_index(obs, np.s_[t : t + 1, b : b + 1])) for t in range(T) for b in range(B)]
        for other in (torch.cat(alone, 1).view_as(whole), encoder(encoder.arrange(obs))):
            torch.testing.assert_close(other, whole, atol=1e-5, rtol=1e-4)

    def test_observations_matter_and_every_weight_learns(self) -> None:
        """Other observations have other features, and every parameter gets a gradient."""
        (encoder, obs), (_, other) = self._made(0), self._made(1)
        features = encoder(obs)
        assert not torch.equal(features, encoder(other))
        for name, parameter in encoder.named_parameters():
            (gradient,) = torch.autograd.grad(features.square().mean(), parameter, retain_graph=True)
            assert gradient.any(), f"{name} never learns"
