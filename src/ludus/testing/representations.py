"""The contract of latent states of world models. Shapes: T time, B batch, E embedding, A action, F features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.components.representation import LatentState, Representation

T, B = 9, 4


class Rows(NamedTuple):
    """What a representation is given: [T, B, ...], the state [B, ...]."""

    embed: Tensor
    action: Tensor
    first: Tensor
    state: LatentState
    noise: Tensor

    def cut(self, begin: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """Some of the rows, without state and noise."""
        return self.embed[begin:stop], self.action[begin:stop], self.first[begin:stop]


class RepresentationContract(ABC):
    """Inherit and override `make`."""

    embedding, actions = 6, 3
    """E and A, the widths that it is made for."""

    @abstractmethod
    def make(self) -> Representation:
        """A new representation for embeddings of `embedding` and actions of `actions` numbers."""

    def _made(self, seed: int = 0, starts: float = 0.25) -> tuple[Representation, Rows]:
        """A representation and rows that begin in the middle of an episode, with a memory, in all columns but one."""
        torch.manual_seed(seed)
        made = self.make()
        first = torch.rand(T, B) < starts
        first[0] = torch.arange(B) == 1
        state = {name: torch.randn_like(leaf) for name, leaf in made.initial_state(B).items()}
        given = torch.randn(T, B, self.embedding), torch.rand(T, B, self.actions) * 2 - 1
        return made, Rows(*given, first, state, torch.randn(T, B, made.noise_dim))

    def test_one_call_equals_many(self) -> None:
        """One call over T rows equals T calls over one, or over any pieces; so do the gradients of all features."""
        made, rows = self._made()
        inputs = [rows.embed, rows.action, *rows.state.values()]
        for leaf in inputs:
            leaf.requires_grad_()
        weight = torch.randn(T, B, made.feature_dim)
        expected: list[Tensor | None] = []
        for cuts in ((), range(1, T), (4,), (1, 2, 7)):
            state, parts = rows.state, []
            for begin, stop in pairwise((0, *cuts, T)):
                seen = made.observe(*rows.cut(begin, stop), state, rows.noise[begin:stop])
                state = {name: leaf[-1] for name, leaf in seen.states.items()}
                parts.append(seen.features)
            features = torch.cat(parts)
            loss = (features.square() * weight).sum()
            found = torch.autograd.grad(loss, [*inputs, *made.parameters()], allow_unused=True)
            results: list[Tensor | None] = [features.detach(), *state.values(), *found]
            expected = expected or results
            for ours, theirs in zip(results, expected, strict=True):
                if ours is not None or theirs is not None:
                    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)

    def test_shapes(self) -> None:
        """States keep their names and widths, features and losses are [T, B]; learning changes no state."""
        made, rows = self._made()
        shapes = {name: leaf.shape[1:] for name, leaf in made.initial_state(7).items()}
        assert all(len(leaf) == 7 and not leaf.any() for leaf in made.initial_state(7).values())
        seen, learned = (made.observe(*rows, learn=learn) for learn in (False, True))
        after = made.imagine(rows.state, rows.action[0], rows.noise[0])
        assert {name: leaf.shape for name, leaf in seen.states.items()} == {n: (T, B, *s) for n, s in shapes.items()}
        assert {name: leaf.shape for name, leaf in after.items()} == {n: (B, *s) for n, s in shapes.items()}
        assert seen.features.shape == (T, B, made.feature_dim) and not seen.losses
        assert made.features(after).shape == (B, made.feature_dim)
        assert torch.equal(made.features(seen.states), seen.features) and torch.equal(learned.features, seen.features)
        assert learned.losses and all(loss.shape == (T, B) for loss in learned.losses.values())

    def test_noise_is_all_that_is_random(self) -> None:
        """The same noise gives the same states; without noise they are the likeliest ones, always the same."""
        made, rows = self._made()
        other = torch.randn(T, B, made.noise_dim)
        stream = torch.get_rng_state()
        for one, another in ((rows.noise, other), (None, None)):
            same = [made.observe(*rows[:4], one).features for _ in range(2)]
            dreamed = [
                made.features(made.imagine(rows.state, rows.action[0], None if noise is None else noise[0]))
                for noise in (one, one, another)
            ]
            assert torch.equal(*same) and torch.equal(*dreamed[:2])
            assert torch.equal(dreamed[0], dreamed[2]) == (one is None or made.noise_dim == 0)
        assert torch.equal(torch.get_rng_state(), stream)

    def test_nothing_crosses_an_episode_start(self) -> None:
        """What was before a first row, and the action that is said to have led to it, change nothing after it."""
        made, rows = self._made(1, starts=0.0)
        for reset in (0, 3, T - 1):
            first = torch.zeros(T, B, dtype=torch.bool)
            first[reset] = True
            quiet = made.observe(rows.embed, rows.action, first, made.initial_state(B), rows.noise)
            embed, action = rows.embed.clone(), rows.action.clone()
            embed[:reset] += 3.0
            action[: reset + 1] *= -1
            embed.requires_grad_()
            loud = made.observe(embed, action, first, rows.state, rows.noise)
            assert torch.equal(loud.features[reset:], quiet.features[reset:])
            (gradient,) = torch.autograd.grad(loud.features[reset:].square().sum(), embed)
            assert not gradient[:reset].any() and gradient[reset:].any()

    def test_columns_are_independent(self) -> None:
        """Inputs and episode starts of one column change no other, observed or imagined."""
        made, rows = self._made(2)
        embed, action, first = rows.embed.clone(), rows.action.clone(), rows.first.clone()
        embed[:, 0], action[:, 0], first[:, 0] = 5.0, 0.7, ~first[:, 0]
        state = {name: leaf.clone().index_fill_(0, torch.tensor([0]), 2.0) for name, leaf in rows.state.items()}
        ours, theirs = made.observe(*rows), made.observe(embed, action, first, state, rows.noise)
        torch.testing.assert_close(ours.features[:, 1:], theirs.features[:, 1:], atol=1e-5, rtol=1e-5)
        dreamed = [made.features(made.imagine(s, action[0], rows.noise[0]))[1:] for s in (rows.state, state)]
        torch.testing.assert_close(*dreamed, atol=1e-5, rtol=1e-5)

    def test_every_weight_learns_and_actions_matter(self) -> None:
        """From its own losses and from what is predicted from observed and imagined features."""
        made, rows = self._made(3)
        seen = made.observe(*rows, learn=True)
        action = rows.action[0].clone().requires_grad_()
        dreamed = made.features(made.imagine(rows.state, action, rows.noise[0]))
        total = sum((loss.sum() for loss in seen.losses.values()), seen.features.square().sum())
        total = total + dreamed.square().sum()
        assert torch.autograd.grad(total, action, retain_graph=True)[0].any()
        for name, parameter in made.named_parameters():
            (gradient,) = torch.autograd.grad(total, parameter, retain_graph=True)
            assert gradient.any(), f"{name} never learns"
