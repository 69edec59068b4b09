"""The running range of returns and values."""

from __future__ import annotations

import pytest
import torch

from ludus.components.running_range import RunningRange, moved_ends, moved_width


def test_it_moves_a_hundredth_towards_the_range_of_percentiles() -> None:
    values = torch.linspace(-50, 50, 101)
    found = moved_width(torch.tensor(1.0), values)
    assert found.item() == pytest.approx(1 + 0.01 * (90 - 1))
    assert moved_width(found, values, rate=1.0).item() == pytest.approx(90)


def test_a_narrow_range_counts_as_one() -> None:
    """Small values are not blown up, outliers count for little."""
    narrow = torch.cat([torch.zeros(99), torch.tensor([1e6])])
    assert moved_width(torch.tensor(1.0), narrow).item() == pytest.approx(1.0)
    assert moved_width(torch.tensor(3.0), torch.zeros(10), rate=0.5).item() == pytest.approx(2.0)


def test_its_number_is_saved() -> None:
    scale, other = RunningRange(torch.ones(())), RunningRange(torch.ones(()))
    assert scale.value.item() == 1.0
    scale.value = torch.tensor(7.5)
    other.load_state_dict(scale.state_dict())
    assert other.value.item() == 7.5


def test_both_ends_move_a_hundredth_of_the_way() -> None:
    returns = torch.linspace(-10, 10, 101)
    torch.testing.assert_close(moved_ends(torch.zeros(2), returns), torch.tensor([-0.09, 0.09]))
    torch.testing.assert_close(moved_ends(torch.tensor([-9.0, 9.0]), returns), torch.tensor([-9.0, 9.0]))
