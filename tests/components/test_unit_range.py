"""Numbers scaled to [-1, 1]."""

from __future__ import annotations

import pytest
import torch

from ludus.components.unit_range import UnitRange

CPU = torch.device("cpu")


def test_the_ends_of_a_range_become_one_and_narrow_ranges_are_only_moved() -> None:
    one = UnitRange(3, CPU)
    x = torch.tensor([[0.0, -3.0, 5.0], [4.0, 1.0, 5.00001]])
    assert torch.equal(one.scaled(x), x) and not one.known
    one.fit(x[0], x[1])
    torch.testing.assert_close(one.scaled(x), torch.tensor([[-1.0, -1.0, 0.0], [1.0, 1.0, 0.0]]), atol=1e-5, rtol=0)
    torch.testing.assert_close(one.restored(one.scaled(x)), x)
    assert float(one.scaled(torch.tensor([0.0, 0.0, 7.0]))[2]) == pytest.approx(2.0, abs=1e-4)


def test_a_range_comes_back_from_its_state_and_no_other_fits() -> None:
    one, two = UnitRange(2, CPU), UnitRange(2, CPU)
    one.fit(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 5.0]))
    two.load_state_dict(one.state_dict())
    assert two.known and torch.equal(two.low, one.low) and torch.equal(two.high, one.high)
    with pytest.raises(ValueError, match="a range of 2 numbers, not 3"):
        UnitRange(3, CPU).load_state_dict(one.state_dict())
    fresh = UnitRange(2, CPU)
    two.load_state_dict(fresh.state_dict())
    assert not two.known
