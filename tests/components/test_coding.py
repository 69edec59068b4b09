"""Numbers as outputs of a network: known answers of TD-MPC2's own code, and exact targets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.components.coding import Number, SymlogBins
from ludus.math.symlog import symlog


def test_symlog_bins_golden(golden: dict[str, Any]) -> None:
    """11 bins from -5 to 5 after symlog: the loss is the cross-entropy with the reference's two-hot vectors."""
    case, coding = golden["tdmpc2_two_hot"], SymlogBins(11, 5.0)
    y, dense = torch.tensor(case["x"]).squeeze(-1), torch.tensor(case["out"])
    logits = torch.randn(len(y), 11, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(coding.loss(logits, y), -(dense * logits.log_softmax(-1)).sum(-1), atol=1e-5, rtol=1e-5)
    back = coding.mean((dense + 1e-12).log())
    torch.testing.assert_close(back, torch.tensor(case["inv_of_log"]).squeeze(-1), atol=1e-3, rtol=1e-4)


def test_the_bins_of_the_paper() -> None:
    """101 of them, 0.2 apart after symlog; equal logits mean zero, and numbers beyond the ends the last bin."""
    coding = SymlogBins(101, 10.0)
    assert coding.outputs == 101 and coding.bins.diff().tolist() == pytest.approx([0.2] * 100, abs=1e-5)
    assert coding.mean(torch.zeros(3, 101)).abs().max() < 1e-6
    far = coding.loss(torch.eye(101)[[100]] * 50, torch.tensor([1e9]))
    assert far.item() < 1e-6 and symlog(torch.tensor(1e9)) > 10


def test_cross_entropy_finds_the_number() -> None:
    """Gradient descent on logits ends at the target, over many orders of magnitude."""
    coding, y = SymlogBins(101, 10.0), torch.tensor([-800.0, -0.3, 0.0, 2.0, 5_000.0])
    logits = torch.zeros(5, 101, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.3)
    for _ in range(300):
        optimizer.zero_grad()
        coding.loss(logits, y).sum().backward()
        optimizer.step()
    torch.testing.assert_close(coding.mean(logits).detach(), y, rtol=0.03, atol=0.02)


def test_a_plain_number_has_squared_errors() -> None:
    coding, out = Number(), torch.tensor([[1.0], [3.0]])
    assert coding.loss(out, torch.tensor([0.5, 5.0])).tolist() == [0.25, 4.0] and coding.mean(out).tolist() == [1, 3]
