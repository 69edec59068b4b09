"""Observations as states, predicted by ensembles."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.components.dynamics.stochastic import LOG_STD
from ludus.components.representation.identity import Identity, IdentityConfig
from ludus.registry import DYNAMICS

KINDS = DYNAMICS.names()


def made(kind: str, **settings: Any) -> Identity:
    torch.manual_seed(0)
    dynamics = {"type": kind, "units": 16, "layers": 1, **settings}
    return Identity(IdentityConfig.model_validate({"dynamics": dynamics}), 2, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_how_the_vector_changes(kind: str) -> None:
    """By steps inside episodes only: what comes after an end is no step."""
    model = made(kind)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(250):
        action = torch.rand(5, 32, 1, generator=generator) * 2 - 1
        x = torch.randn(32, 2, generator=generator)
        first = torch.rand(5, 32, generator=generator) < 0.3
        rows = []
        for t in range(5):
            step = 0.5 * x + torch.cat([action[t], -action[t]], -1)
            x = torch.where(first[t].unsqueeze(-1), 9.0 + torch.randn(32, 2, generator=generator), step)
            rows.append(x)
        losses = model.observe(torch.stack(rows), action, first, {}, None, learn=True).losses
        assert not losses["dynamics"][first].any()
        optimizer.zero_grad()
        losses["dynamics"].mean().backward()
        optimizer.step()
    state, action = {"vector": torch.tensor([[1.0, -1.0]])}, torch.tensor([[0.5]])
    after = model.imagine(state, action, None)["vector"]
    torch.testing.assert_close(after, torch.tensor([[1.0, -1.0]]), atol=0.15, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_picks_a_member(kind: str) -> None:
    """Each of the members, one for each row; without noise it is the mean of all."""
    model = made(kind, members=3)
    vector, action = torch.randn(1, 2).expand(300, 2), torch.randn(1, 1).expand(300, 1)
    noise = torch.zeros(300, model.noise_dim)
    noise[:, -1] = torch.randn(300, generator=torch.Generator().manual_seed(0))
    after = model.imagine({"vector": vector}, action, noise)["vector"]
    members = vector[0] + model.dynamics.outputs(vector[:1], action[:1])[:, 0, :2]
    nearest = (after.unsqueeze(1) - members).square().sum(-1).argmin(1)
    torch.testing.assert_close(after, members[nearest])
    assert (nearest.bincount(minlength=3) > 70).all()
    blank = model.imagine({"vector": vector[:1]}, action[:1], None)["vector"]
    torch.testing.assert_close(blank[0], members.mean(0))


def test_deviations_are_learned_and_bounded() -> None:
    model = made("stochastic", members=2)
    with torch.no_grad():
        model.dynamics.biases[-1][:, :, 2:] = torch.tensor([100.0, -100.0])
        model.dynamics.weights[-1].zero_()
    noise = torch.ones(4, 3)
    after = model.imagine({"vector": torch.zeros(4, 2)}, torch.zeros(4, 1), noise)["vector"]
    torch.testing.assert_close(after[0].log(), torch.tensor([LOG_STD[1], LOG_STD[0]]), atol=0.01, rtol=0.01)
    target = torch.full((1, 1, 2), 0.5)
    expected = sum(-torch.distributions.Normal(0.0, s).log_prob(torch.tensor(0.5)) for s in after[0])
    found = model.dynamics.loss(torch.zeros(1, 1, 2), torch.zeros(1, 1, 1), target)
    assert found.item() + 0.9189385 * 2 == pytest.approx(expected.item(), rel=1e-4)
