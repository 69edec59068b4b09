"""Mish against torch's."""

from __future__ import annotations

import torch
from torch.nn import functional

from ludus.kernels.mish import mish

NUMBERS = torch.cat([torch.linspace(-30, 30, 601), torch.tensor([-200.0, -90.0, 90.0, 200.0])])


def test_values_and_gradients_equal_those_of_torch() -> None:
    x, y = (NUMBERS.clone().requires_grad_() for _ in range(2))
    torch.testing.assert_close(mish(NUMBERS), functional.mish(NUMBERS), atol=2e-6, rtol=1e-5)
    weight = torch.linspace(-1, 2, len(NUMBERS))
    ours, theirs = mish(x), functional.mish(y)
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-5)
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=2e-6, rtol=1e-5)
    x = torch.randn(20, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mish, [x])
