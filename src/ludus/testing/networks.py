"""The contracts of encoders and of memory cores. Shapes: T time, B batch, D features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from ludus.networks.encoders import Encoder
from ludus.networks.memory import MemoryCore
from ludus.types import Tree, tree_index, tree_leaves, tree_map

T, B = 40, 3
FEW = 4  # steps of images, which take longer


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
        drawn = [self.space.sample() for _ in range(FEW * B)]
        return self.make(), tree_map(lambda *rows: torch.from_numpy(np.stack(rows)).unflatten(0, (FEW, B)), *drawn)

    def test_each_observation_is_encoded_by_itself(self) -> None:
        """Into `out_dim` float32 numbers that depend on no other row, nor on the memory layout of the batch."""
        encoder, obs = self._made()
        before, whole = tree_map(torch.clone, obs), encoder(obs)
        assert (whole.shape, whole.dtype) == ((FEW, B, encoder.out_dim), torch.float32) and whole.isfinite().all()
        assert torch.equal(encoder(obs), whole) and all(tree_leaves(tree_map(torch.equal, obs, before)))
        alone = [encoder(tree_index(obs, np.s_[t : t + 1, b : b + 1])) for t in range(FEW) for b in range(B)]
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


class MemoryCoreContract(ABC):
    """Inherit and override `make`."""

    features = 5
    """D, the width of the inputs that the core is made for."""

    @abstractmethod
    def make(self) -> MemoryCore:
        """A new core for inputs of `features` numbers."""

    def _made(self, seed: int, starts: float = 0.15) -> tuple[MemoryCore, Tensor, Tensor]:
        """A core, inputs [T, B, D] and random episode starts [T, B]."""
        torch.manual_seed(seed)
        return self.make(), torch.randn(T, B, self.features), torch.rand(T, B) < starts

    def test_one_call_equals_many(self) -> None:
        """One call over T steps equals T calls over one step, or over any pieces, with the state carried over."""
        core, x, first = self._made(0)
        y, end = core(x, core.initial_state(B), first)
        assert y.shape == (T, B, core.out_dim)
        for cuts in (range(1, T), (17,), (1, 2, 3), (39,), (5, 21, 38)):
            state, parts = core.initial_state(B), []
            for begin, stop in pairwise((0, *cuts, T)):
                part, state = core(x[begin:stop], state, first[begin:stop])
                parts.append(part)
            _close((y, end), (torch.cat(parts), state))

    def test_it_remembers_if_it_says_so(self) -> None:
        """A recurrent core's later outputs depend on earlier inputs, within a call and through the carried state."""
        core, x, first = self._made(2, starts=0.0)
        other = x.clone()
        other[4] += 1.0
        (ours, mine), (theirs, yours) = (core(inputs[:6], core.initial_state(B), first[:6]) for inputs in (x, other))
        assert torch.equal(ours[:4], theirs[:4])
        assert torch.equal(ours[5], theirs[5]) != core.recurrent
        assert torch.equal(*(core(x[6:], state, first[6:])[0] for state in (mine, yours))) != core.recurrent

    def test_rows_are_independent(self) -> None:
        """Inputs and episode starts of one row change no other row."""
        core, x, first = self._made(3)
        whole, other, starts = core(x, core.initial_state(B), first)[0], x.clone(), first.clone()
        other[:, 0], starts[:, 0] = 100.0, ~first[:, 0]
        assert torch.equal(core(other, core.initial_state(B), first)[0][:, 1:], whole[:, 1:])
        _close(core(other, core.initial_state(B), starts)[0][:, 1:], whole[:, 1:])
        _close(core(x[:, 1:2], core.initial_state(1), first[:, 1:2])[0], whole[:, 1:2])

    def test_nothing_crosses_an_episode_start(self) -> None:
        """Inputs and state before an episode start change nothing after it, and no gradient flows back over it."""
        core, x, _ = self._made(4)
        quiet, loud = core.initial_state(B), tree_map(lambda leaf: leaf + 50, core.initial_state(B))
        for reset in (0, 6, T - 1):
            first, other = (torch.arange(T) == reset).unsqueeze(1).expand(T, B), x.clone().requires_grad_()
            y = core(torch.where(torch.arange(T)[:, None, None] < reset, other + 100.0, other), loud, first)[0][reset:]
            assert torch.equal(core(x, quiet, first)[0][reset:], y)
            (gradient,) = torch.autograd.grad(y[..., 0].sum(), other)
            assert not gradient[:reset].any() and gradient[reset:].any()


def _close(ours: Tree, theirs: Tree) -> None:
    tree_map(lambda a, b: torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5), ours, theirs)
