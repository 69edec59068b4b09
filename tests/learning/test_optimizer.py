"""The step that is compiled equals the step in place."""

from __future__ import annotations

import pytest
import torch

from ludus.learning.optimizer import Optimizer, OptimizerConfig
from ludus.learning.traced import corrections, pure


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_the_pure_step_equals_the_one_in_place(kind: str, decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(50, generator=generator)
    ours = Optimizer(OptimizerConfig(type=kind, weight_decay=decay), start.clone())
    theta, state, lr = start.clone(), [torch.zeros_like(start) for _ in ours.tensors], torch.tensor(0.01)
    for _ in range(5):
        grad = torch.randn(50, generator=generator)
        factors = [torch.tensor(number) for number in corrections(ours)]
        theta, state = pure(ours, theta, state, factors, grad, lr)
        ours.step(grad, 0.01)
        torch.testing.assert_close(theta, ours.theta, atol=1e-6, rtol=1e-5)
    for ours_pure, kept in zip(state, ours.tensors, strict=True):
        torch.testing.assert_close(ours_pure, kept, atol=1e-6, rtol=1e-5)
