"""Mixtures of Gaussians: likelihoods by hand and by torch, samples, temperature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from ludus.math.mixtures import mixture_log_likelihood, mixture_mode, mixture_sample

PARAMS = torch.tensor([0.0, math.log(3.0), 1.0, -2.0, math.log(0.5), math.log(2.0)])  # weights 1/4 and 3/4
N = 200_000


def test_the_likelihood_is_that_of_a_mixture_by_hand() -> None:
    def density(x: float) -> float:
        one = math.exp(-0.5 * ((x - 1.0) / 0.5) ** 2) / (0.5 * math.sqrt(2 * math.pi))
        two = math.exp(-0.5 * ((x + 2.0) / 2.0) ** 2) / (2.0 * math.sqrt(2 * math.pi))
        return 0.25 * one + 0.75 * two

    points = torch.tensor([-4.0, -2.0, 0.0, 1.0, 3.5])
    found = mixture_log_likelihood(PARAMS.expand(5, 6), points)
    assert found.tolist() == pytest.approx([math.log(density(x)) for x in points.tolist()], rel=1e-5)


def test_the_likelihood_is_that_of_torch_and_has_its_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    params = torch.randn(4, 3, 15, generator=generator).requires_grad_()
    x = torch.randn(4, 3, generator=generator)
    logits, mean, log_std = params.chunk(3, -1)
    other = MixtureSameFamily(Categorical(logits=logits), Normal(mean, log_std.exp())).log_prob(x)
    ours = mixture_log_likelihood(params, x)
    torch.testing.assert_close(ours, other)
    torch.testing.assert_close(
        *(torch.autograd.grad(value.sum(), params, retain_graph=True)[0] for value in (ours, other))
    )


def test_a_likelihood_far_away_is_finite() -> None:
    assert mixture_log_likelihood(PARAMS, torch.tensor(1e4)).isfinite()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_samples_have_the_weights_and_deviations_of_the_temperature(temperature: float) -> None:
    rng = np.random.default_rng(0)
    chooses, noise = torch.from_numpy(rng.standard_normal((2, N), np.float32))
    far = torch.tensor([0.0, math.log(3.0), 100.0, -100.0, math.log(0.5), math.log(2.0)])
    x = mixture_sample(far.expand(N, 6), chooses, noise, temperature)
    first = x > 0
    ratio = 3.0 ** (1 / temperature)
    assert first.float().mean().item() == pytest.approx(1 / (1 + ratio), abs=0.005)
    assert x[first].std().item() == pytest.approx(0.5 * math.sqrt(temperature), rel=0.02)
    assert x[~first].std().item() == pytest.approx(2.0 * math.sqrt(temperature), rel=0.02)
    assert x[first].mean().item() == pytest.approx(100.0, abs=0.02)


def test_the_mode_is_the_mean_of_the_heaviest_component() -> None:
    assert mixture_mode(PARAMS).item() == -2.0
