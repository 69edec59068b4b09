"""The running range of values."""

from __future__ import annotations

import pytest
import torch

from ludus.components.value_scale import ValueScale, moved_scale


def test_it_moves_a_hundredth_towards_the_range_of_percentiles() -> None:
    values = torch.linspace(-50, 50, 101)
    found = moved_scale(torch.tensor(1.0), values)
    assert found.item() == pytest.approx(1 + 0.01 * (90 - 1))
    assert moved_scale(found, values, rate=1.0).item() == pytest.approx(90)


def test_a_narrow_range_counts_as_one() -> None:
    """Small values are not blown up, outliers count for little."""
    narrow = torch.cat([torch.zeros(99), torch.tensor([1e6])])
    assert moved_scale(torch.tensor(1.0), narrow).item() == pytest.approx(1.0)
    assert moved_scale(torch.tensor(3.0), torch.zeros(10), rate=0.5).item() == pytest.approx(2.0)


def test_its_number_is_saved() -> None:
    scale, other = ValueScale(torch.device("cpu")), ValueScale(torch.device("cpu"))
    assert scale.value.item() == 1.0
    scale.value = torch.tensor(7.5)
    other.load_state_dict(scale.state_dict())
    assert other.value.item() == 7.5
