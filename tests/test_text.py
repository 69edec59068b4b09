"""What numbers, times, sparklines and untrusted text look like."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.text import BARS, ascii_only, clean, duration, number, points, rate, sparkline


@pytest.mark.parametrize(
    ("value", "precision", "text"),
    [
        (0.0, 3, "0.000"),
        (1234.5678, 2, "1,234.57"),
        (-0.5, 1, "-0.5"),
        (0.00001, 3, "1.0e-05"),
        (2.5e12, 1, "2.5e+12"),
        (math.nan, 2, "nan"),
        (-math.inf, 2, "-inf"),
    ],
)
def test_number(value: float, precision: int, text: str) -> None:
    assert number(value, precision) == text


@pytest.mark.parametrize(("value", "text"), [(0.2, "0.2"), (20.0, "20"), (0.0, "0"), (1000.0, "1,000")])
def test_number_trimmed(value: float, text: str) -> None:
    assert number(value, 4, trim=True) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.957812, "0.958"), (-9.4321, "-9.432"), (475.0, "475.0"), (-156.23, "-156.2")],
)
def test_a_score_near_zero_shows_what_decides(value: float, text: str) -> None:
    assert points(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (9.96, "10.0 s"), (187, "3:07"), (7387, "2:03:07"), (math.inf, "-:--")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("fps", "text"), [(870.4, "870"), (9_400, "9,400"), (14_210, "14.2k"), (1.3e6, "1.3M")])
def test_rate(fps: float, text: str) -> None:
    assert rate(fps) == text


def test_sparkline_shows_the_shape() -> None:
    assert sparkline(list(range(8)), 8) == BARS
    assert sparkline([5.0, 5.0], 8) == "▄▄"
    assert sparkline([0.0, math.nan, 1.0], 8) == "▁✗█"
    assert sparkline([], 8) == ""
    assert sparkline([0.0] * 50 + [1.0] * 50, 4) == "▁▁██"


@given(st.lists(st.floats(), max_size=200), st.integers(0, 60))
def test_sparkline_always_fits(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == min(len(values), width)


@given(st.text())
def test_clean_text_cannot_act(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.isprintable()
    assert len(cleaned) <= 200


def test_clean_shows_escapes_instead_of_sending_them() -> None:
    assert clean("\x1b[2Jrun\n") == "\\x1b[2Jrun\\n"


@given(st.text())
def test_ascii_keeps_the_width(text: str) -> None:
    plain = ascii_only(text)
    assert plain.isascii()
    assert len(plain) == len(text)
