"""The step that is compiled equals the step in place; LaProp and adaptive clipping as they are published."""

from __future__ import annotations

import pytest
import torch

from ludus.learning.adaptive_clipping import clip_adaptively
from ludus.learning.optimizer import Optimizer, OptimizerConfig
from ludus.learning.traced import adaptively_clipped, corrections, pure


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["adam", "adamw", "laprop", "sgd"])
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


def test_laprop_normalises_before_it_averages() -> None:
    """Written out (world-models.md 4.10); Adam, which averages first, would go elsewhere."""
    start = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    grads = [torch.tensor(g, dtype=torch.float64) for g in ([1.0, 1e-6, -3.0], [-2.0, 3e-6, 0.0], [0.1, -1e-6, 5.0])]
    cfg = OptimizerConfig(type="laprop", eps=1e-20, betas=(0.9, 0.99))
    ours, adam = (
        Optimizer(c, start.clone()) for c in (cfg, OptimizerConfig(type="adam", eps=1e-20, betas=(0.9, 0.99)))
    )
    theta, m, v = start.clone(), torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for t, g in enumerate([*grads, *grads], 1):
        v = 0.99 * v + 0.01 * g**2
        m = 0.9 * m + 0.1 * g / ((v / (1 - 0.99**t)).sqrt() + 1e-20)
        theta = theta - 0.03 * m / (1 - 0.9**t)
        ours.step(g, 0.03)
        adam.step(g, 0.03)
        torch.testing.assert_close(ours.theta, theta, atol=1e-12, rtol=1e-9)
    assert (ours.theta - adam.theta).abs().max() > 1e-3


def test_laprop_stands_still_without_a_gradient() -> None:
    ours = Optimizer(OptimizerConfig(type="laprop", eps=1e-20), torch.ones(2))
    ours.step(torch.zeros(2), 0.1)
    assert ours.theta.tolist() == [1.0, 1.0]


def test_gradients_are_clipped_tensor_by_tensor() -> None:
    """To a share of each tensor's own norm; a tensor at zero may still begin to move."""
    thetas = [torch.tensor([3.0, 4.0]), torch.zeros(2), torch.tensor([10.0])]
    grads = [torch.tensor([0.0, 50.0]), torch.tensor([6.0, 8.0]), torch.tensor([2.0])]
    expected = torch.cat([torch.tensor([0.0, 1.5]), torch.tensor([0.6, 0.8]) * 3e-4, torch.tensor([2.0])])
    flat = adaptively_clipped(torch.cat(grads), torch.cat(thetas), [2, 2, 1], 0.3)
    clip_adaptively(grads, thetas, 0.3)
    torch.testing.assert_close(torch.cat(grads), expected)
    torch.testing.assert_close(flat, expected)
