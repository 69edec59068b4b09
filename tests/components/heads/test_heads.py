"""Predictions of one number."""

from __future__ import annotations

import pytest
import torch

from ludus.registry import PREDICTORS


def head(name: str, **settings: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return PREDICTORS[name](PREDICTORS[name].Config(units=8, **settings), 4)


@pytest.mark.parametrize("name", PREDICTORS.names())
def test_it_learns_the_mean_of_its_targets(name: str) -> None:
    made, x = head(name), torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    low, high = (0.2, 0.9) if name == "bernoulli" else (-3.0, 40.0)
    optimizer = torch.optim.Adam(made.parameters(), 0.02)
    for _ in range(300):
        loss = made.loss(made(x), torch.tensor([low, high]))
        assert loss.shape == (2,)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    found = made.mean(made(x))
    assert found.tolist() == pytest.approx([low, high], rel=0.05)


def test_a_two_hot_head_begins_at_zero_and_knows_its_bins() -> None:
    made = head("two_hot", bins=31, limit=10.0)
    params = made(torch.randn(5, 4))
    assert params.shape == (5, 31) and made.mean(params).eq(0).all()
    assert made.bins[-1].item() == pytest.approx(torch.e**10 - 1, rel=1e-5)
    assert "bins" not in made.state_dict(), "they follow from the config"


def test_losses_are_negative_log_likelihoods() -> None:
    params, target = torch.tensor([[0.3], [-2.0]]), torch.tensor([0.25, 1.0])
    torch.testing.assert_close(head("gaussian").loss(params, target), 0.5 * (params[:, 0] - target).square())
    p = params[:, 0].sigmoid()
    expected = -(target * p.log() + (1 - target) * (1 - p).log())
    torch.testing.assert_close(head("bernoulli").loss(params, target), expected)
    torch.testing.assert_close(head("bernoulli").mean(params), p)
