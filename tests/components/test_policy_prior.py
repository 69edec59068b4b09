"""Policies beside a planner: actions within the bounds, entropies against torch.distributions."""

from __future__ import annotations

import pytest
import torch
from torch import distributions as reference

from ludus.components.normed_mlp import Kind
from ludus.components.policy_prior import DeterministicPrior, GaussianPrior

MISH: list[Kind] = ["mish", "mish"]


def test_the_entropy_is_that_of_the_gaussian_times_the_components() -> None:
    prior, z, noise = GaussianPrior(6, 3, 8, MISH), torch.randn(4, 5, 6), torch.randn(4, 5, 3)
    torch.nn.init.normal_(prior.network.layers[-1].weight)
    action, entropy = prior(z, noise)
    mean, raw = prior.network(z).chunk(2, -1)
    std = (-10 + 6 * (raw.tanh() + 1)).exp()
    torch.testing.assert_close(action, (mean + std * noise).tanh())
    known = reference.Normal(mean, std).log_prob(mean + std * noise).sum(-1)
    torch.testing.assert_close(entropy, -3 * known, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("raw", [-1e3, 0.0, 1e3])
def test_deviations_are_bounded(raw: float) -> None:
    """Between e^-10 and e^2."""
    prior = GaussianPrior(2, 1, 4, MISH)
    torch.nn.init.zeros_(prior.network.layers[-1].weight)
    with torch.no_grad():
        prior.network.layers[-1].bias.copy_(torch.tensor([0.0, raw]))
    action, _ = prior(torch.zeros(1, 2), torch.full((1, 1), 0.5))
    expected = {-1e3: -10.0, 0.0: -4.0, 1e3: 2.0}[raw]
    assert action.atanh().item() == pytest.approx(0.5 * torch.tensor(expected).exp().item(), rel=1e-3)


def test_noise_of_a_deterministic_policy_is_bounded_and_stops_no_gradient() -> None:
    prior = DeterministicPrior(2, 1, 4, ["elu", "elu"], std=0.2, clip=0.3)
    z = torch.randn(1, 2)
    plain = prior.network(z).tanh()
    noise = torch.tensor([[-9.0], [-1.0], [0.0], [0.5], [9.0]])
    action, entropy = prior(z.expand(5, 2), noise)
    expected = plain + torch.tensor([[-0.3], [-0.2], [0.0], [0.1], [0.3]])
    torch.testing.assert_close(action, expected.clamp(-1, 1))
    assert not entropy.any()
    with torch.no_grad():
        prior.network.layers[-1].bias.fill_(1.5)  # tanh is 0.9 and more: with noise beyond the bound
        prior.network.layers[-1].weight.zero_()
    action, _ = prior(z, torch.tensor([[9.0]]))
    (gradient,) = torch.autograd.grad(action.sum(), prior.network.layers[-1].bias)
    assert action.item() == 1.0 and gradient.item() > 0.1
