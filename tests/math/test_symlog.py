"""symlog and two-hot targets: inverses, known answers of other people's code, exact means."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.math.symlog import symexp, symexp_bins, symlog, two_hot, two_hot_cross_entropy, two_hot_mean

BINS = symexp_bins(20.0, 255)
NUMBERS = torch.tensor([-3e6, -1.0, -1e-4, 0.0, 1e-6, 0.3, 7.0, 2.5e8])


def weights(y: torch.Tensor, bins: torch.Tensor) -> torch.Tensor:
    """The two-hot distribution as a dense one."""
    below, above = two_hot(y, bins)
    dense = torch.zeros(*y.shape, len(bins))
    dense.scatter_(-1, below.unsqueeze(-1), (1 - above).unsqueeze(-1))
    return dense.scatter_add_(-1, (below + 1).unsqueeze(-1), above.unsqueeze(-1))


def test_symexp_is_the_inverse_of_symlog() -> None:
    torch.testing.assert_close(symexp(symlog(NUMBERS)), NUMBERS, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(symlog(torch.tensor([-1.0, 0.0, torch.e - 1])), torch.tensor([-0.6931472, 0.0, 1.0]))
    x = torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(symlog, [x]) and torch.autograd.gradcheck(symexp, [x])


@pytest.mark.parametrize("count", [254, 255])
def test_bins_are_symmetric_sorted_and_evenly_spaced_by_symlog(count: int) -> None:
    bins = symexp_bins(20.0, count)
    assert len(bins) == count and torch.equal(bins, -bins.flip(0)) and (bins.diff() > 0).all()
    assert bins[-1].item() == pytest.approx(4.8516519e8, rel=1e-6)
    torch.testing.assert_close(symlog(bins), torch.linspace(-20, 20, count), atol=1e-4, rtol=1e-5)


def test_the_mean_over_both_bins_is_the_number() -> None:
    dense = weights(NUMBERS, BINS)
    assert ((dense > 0).sum(-1) <= 2).all() and (dense >= 0).all()
    torch.testing.assert_close(dense.sum(-1), torch.ones(len(NUMBERS)))
    torch.testing.assert_close((dense.double() * BINS.double()).sum(-1).float(), NUMBERS, rtol=1e-4, atol=1e-5)


def test_a_number_on_a_bin_has_that_bin_alone_and_beyond_the_ends_the_last() -> None:
    bins = torch.tensor([-4.0, -1.0, 0.0, 1.0, 4.0])
    expected = torch.eye(5)
    torch.testing.assert_close(weights(bins, bins), expected)
    torch.testing.assert_close(weights(torch.tensor([-9.0, 9.0]), bins), expected[[0, 4]])


def test_two_hot_golden(golden: dict[str, Any]) -> None:
    """TD-MPC2 spaces its bins evenly and squeezes the number instead."""
    case = golden["tdmpc2_two_hot"]
    y, expected = torch.tensor(case["x"]).squeeze(-1), torch.tensor(case["out"])
    torch.testing.assert_close(weights(symlog(y), torch.linspace(-5, 5, 11)), expected, atol=1e-5, rtol=1e-5)


def test_cross_entropy_equals_the_dense_one_and_is_least_at_the_target() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(NUMBERS), 255, generator=generator)
    expected = -(weights(NUMBERS, BINS) * logits.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(two_hot_cross_entropy(logits, NUMBERS, BINS), expected, rtol=1e-5, atol=1e-5)
    logits = weights(NUMBERS, BINS).double().requires_grad_()
    loss = two_hot_cross_entropy((logits + 1e-30).log(), NUMBERS.double(), BINS.double())
    torch.testing.assert_close(
        two_hot_mean((logits + 1e-30).log(), BINS.double()).float(), NUMBERS, rtol=1e-4, atol=1e-4
    )
    entropy = -torch.xlogy(logits, logits).sum(-1)
    torch.testing.assert_close(loss, entropy, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("count", [254, 255])
def test_equal_logits_mean_exactly_zero(count: int) -> None:
    """Summed from one end to the other, bins of 5e8 would leave a rest."""
    bins = symexp_bins(20.0, count)
    for level in (0.0, 3.7, -11.0):
        assert two_hot_mean(torch.full((3, count), level), bins).eq(0).all()


def test_the_mean_is_that_of_the_softmax() -> None:
    logits = torch.randn(6, 255, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = (logits.softmax(-1) * BINS.double()).sum(-1)
    torch.testing.assert_close(two_hot_mean(logits, BINS.double()), expected)
