"""Random latents against torch.distributions."""

from __future__ import annotations

import pytest
import torch
from torch import distributions as reference

from ludus.math import latents


def logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("unimix", [0.0, 0.01, 0.5])
def test_a_share_of_the_uniform_distribution(unimix: float) -> None:
    raw = logits(5, 3, 4)
    found = latents.mixed_log_probabilities(raw, unimix).exp()
    torch.testing.assert_close(found, (1 - unimix) * raw.softmax(-1) + unimix / 4)
    assert (latents.mixed_log_probabilities(100 * raw, unimix).exp() >= unimix / 4 - 1e-7).all()


def test_categorical_divergence() -> None:
    p, q = (latents.mixed_log_probabilities(logits(6, 3, 4, seed=seed), 0.01) for seed in (0, 1))
    expected = reference.kl_divergence(reference.Categorical(logits=p), reference.Categorical(logits=q)).sum(-1)
    torch.testing.assert_close(latents.categorical_kl(p, q), expected)


def test_gaussian_divergence_and_least_deviation() -> None:
    (mean_p, std_p), (mean_q, std_q) = (latents.gaussian_split(logits(6, 8, seed=seed), 0.1) for seed in (0, 1))
    assert mean_p.shape == (6, 4) and torch.equal(mean_p, logits(6, 8)[:, :4])
    torch.testing.assert_close(std_p, logits(6, 8)[:, 4:].exp().log1p() + 0.1)
    expected = reference.kl_divergence(reference.Normal(mean_p, std_p), reference.Normal(mean_q, std_q)).sum(-1)
    torch.testing.assert_close(latents.gaussian_kl(mean_p, std_p, mean_q, std_q), expected, rtol=1e-4, atol=1e-5)


def test_samples_are_one_hot_and_as_frequent_as_they_are_likely() -> None:
    log_p = logits(1, 2, 5).log_softmax(-1)
    noise = torch.randn(40_000, 2, generator=torch.Generator().manual_seed(1))
    drawn = latents.one_hot_sample(log_p, latents.uniform(noise))
    assert drawn.shape == (40_000, 2, 5) and ((drawn == 0) | (drawn == 1)).all() and (drawn.sum(-1) == 1).all()
    torch.testing.assert_close(drawn.mean(0), log_p.exp()[0], atol=0.01, rtol=0)


def test_extreme_uniform_numbers_still_choose_a_class() -> None:
    log_p = torch.tensor([0.3, 0.3, 0.4]).log()
    for number, index in ((0.0, 0), (1.0, 2), (0.29, 0), (0.31, 1), (0.61, 2)):
        assert latents.one_hot_sample(log_p, torch.tensor(number)).tolist() == torch.eye(3)[index].tolist()


def test_a_single_class_is_always_chosen() -> None:
    log_p = torch.zeros(2, 3, 1)
    assert torch.equal(latents.one_hot_sample(log_p, torch.rand(2, 3)), torch.ones(2, 3, 1))
    assert torch.equal(latents.one_hot_mode(log_p), torch.ones(2, 3, 1))


def test_the_mode_is_one_class_even_if_several_are_alike() -> None:
    log_p = torch.tensor([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]]).log()
    assert latents.one_hot_mode(log_p).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_straight_through_has_the_sample_and_the_gradient_of_its_probabilities() -> None:
    raw, weight = logits(3, 4).requires_grad_(), logits(3, 4, seed=5)
    one_hot = latents.one_hot_mode(raw.detach())
    through = latents.straight_through(one_hot, raw.log_softmax(-1))
    torch.testing.assert_close(through, one_hot)
    ours, theirs = ((x * weight).sum() for x in (through, raw.softmax(-1)))
    torch.testing.assert_close(torch.autograd.grad(ours, raw)[0], torch.autograd.grad(theirs, raw)[0])


def test_simplicial_latents_are_a_softmax_in_each_group() -> None:
    """Every group, here each third number, sums to 1; a shift of a whole group changes nothing."""
    x = torch.randn(3, 5, 24, generator=torch.Generator().manual_seed(0))
    found = latents.simplicial(x, 8)
    assert found.shape == x.shape and (found > 0).all()
    for group in range(3):
        torch.testing.assert_close(found[..., group::3], x[..., group::3].softmax(-1))
    shifted = x.clone()
    shifted[..., ::3] += 4.0
    torch.testing.assert_close(latents.simplicial(shifted, 8), found)
