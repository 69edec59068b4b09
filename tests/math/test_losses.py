"""PPO's loss terms."""

from __future__ import annotations

import pytest
import torch

from ludus.math import losses


@pytest.mark.parametrize("clip", [0.2, torch.tensor(0.2)])
def test_clipped_surrogate_golden(golden, clip):
    g = golden["ppo_clip"]
    loss = losses.clipped_surrogate(torch.tensor(g["ratios"]), torch.tensor(g["advantages"]), clip)
    assert loss.item() == pytest.approx(g["loss"], abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"), [(1.5, 1.0, 0.0), (0.5, -1.0, 0.0), (1.5, -1.0, 1.0), (0.5, 1.0, -1.0)]
)
def test_the_clip_only_stops_moves_that_would_gain(ratio, advantage, slope):
    r = torch.tensor([ratio], requires_grad=True)
    losses.clipped_surrogate(r, torch.tensor([advantage]), 0.2).backward()
    assert r.grad.item() == slope


def test_clipped_value_loss_takes_the_worse_of_both():
    value, old, target = torch.tensor([2.0, 0.0, 0.05]), torch.zeros(3), torch.tensor([3.0, 1.0, 0.0])
    # 2.0 is pulled to 0.1: (0.1 - 3)^2; the others stay where they are
    expected = (2.9**2 + 1 + 0.05**2) / 3
    assert losses.clipped_value_loss(value, old, target, 0.1).item() == pytest.approx(expected, rel=1e-6)


def test_advantages_are_normalised_and_a_single_one_is_nothing() -> None:
    advantage = torch.tensor([1.0, 4.0, -2.0, 7.0])
    torch.testing.assert_close(losses.normalized(advantage), (advantage - 2.5) / advantage.std())
    assert losses.normalized(torch.tensor([[3.0]])).tolist() == [[0.0]]
    weight = torch.tensor([2.0, 0.0, 2.0, 0.0])  # what weighs nothing counts neither in the mean nor in the deviation
    found = losses.normalized(advantage, weight)
    torch.testing.assert_close(found[[0, 2]], losses.normalized(advantage[[0, 2]]))
    assert losses.normalized(advantage, torch.tensor([1.0, 0.0, 0.0, 0.0]))[0] == 0
    assert torch.isfinite(losses.normalized(advantage, torch.zeros(4))).all()


def test_weights_leave_steps_out() -> None:
    x, weight = torch.tensor([1.0, 5.0, 3.0]), torch.tensor([1.5, 0.0, 1.5])
    assert losses.weighted_mean(x, None) == 3
    assert losses.weighted_mean(x, weight) == 2
    old, target = torch.zeros(3), torch.tensor([2.0, 9.0, 2.0])
    expected = torch.maximum((x - target).square(), (x.clamp(-0.5, 0.5) - target).square())[[0, 2]].mean()
    torch.testing.assert_close(losses.clipped_value_loss(x, old, target, 0.5, weight), expected)
