"""Schedules: every spelling, and their values (requirements E07-E12)."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from ludus.config.compose import parse
from ludus.config.schedule import PositiveSchedule, Schedule, UnitSchedule

TOTAL = 1_000


def lr(**flat: object) -> Schedule:
    data = {"env_id": "CartPole-v1", "algo_id": "ppo", **flat}
    return parse(data, "test").algorithm.config.lr


def test_values_at_five_points():
    schedule = Schedule.model_validate({"start": 0.2, "end": 0.05, "from": 0.5, "to": 0.9})
    points = [schedule.at(step, TOTAL) for step in (0, 500, 700, 900, 1_000)]
    assert points == pytest.approx([0.2, 0.2, 0.125, 0.05, 0.05])


def test_the_short_form_falls_to_zero_over_the_run():
    short, long = Schedule.model_validate("lin_0.001"), Schedule.model_validate({"start": 0.001, "end": 0.0})
    assert short == long
    assert [short.at(step, TOTAL) for step in (0, 250, 1_000)] == pytest.approx([0.001, 0.00075, 0.0])


def test_a_warm_up_rises_to_the_schedule():
    rising = Schedule.model_validate({"start": 1.0, "warmup": 0.1})
    assert rising.end == 1.0 and not rising.constant
    assert [rising.at(step, TOTAL) for step in (0, 49, 99, 500, 1_000)] == pytest.approx([0.01, 0.5, 1.0, 1.0, 1.0])
    assert Schedule.model_validate({"start": 1.0, "warmup": 100}).at(49, TOTAL) == pytest.approx(0.5)
    falling = lr(policy_lr="lin_0.001", policy_lr_schedule_warmup=0.5)
    assert [falling.at(step, TOTAL) for step in (0, 249, 750)] == pytest.approx([2e-6, 0.000751 * 0.5, 0.00025])
    assert Schedule.model_validate(falling.model_dump()) == falling


def test_positions_up_to_one_are_fractions_and_larger_ones_steps():
    fraction = Schedule.model_validate({"start": 1, "end": 0, "from": 0.5, "to": 1.0})
    steps = Schedule.model_validate({"start": 1, "end": 0, "from": 500, "to": 1_000})
    late = Schedule.model_validate({"start": 1, "end": 0, "from": 0.5, "to": 2_000})
    for step in (0, 500, 600, 1_000):
        assert fraction.at(step, TOTAL) == steps.at(step, TOTAL)
    assert fraction.at(1_000, TOTAL) == 0.0 and late.at(1_000, TOTAL) == pytest.approx(2 / 3)
    assert fraction.at(5_000, 10_000) == 1.0, "a fraction moves with the budget"


def test_shapes():
    cosine = Schedule.model_validate({"start": 1, "end": 0, "schedule": "cosine"})
    exponential = Schedule.model_validate({"start": 1, "end": 0.01, "schedule": "exponential"})
    assert cosine.at(500, TOTAL) == pytest.approx(0.5) and cosine.at(250, TOTAL) == pytest.approx(0.853553, rel=1e-5)
    assert exponential.at(500, TOTAL) == pytest.approx(0.1)


def test_flat_keys_are_the_mapping():
    flat = lr(
        policy_lr_schedule="linear",
        policy_lr_schedule_start_value=0.2,
        policy_lr_schedule_end_value=0.05,
        policy_lr_schedule_start=0.5,
        policy_lr_schedule_end=0.9,
    )
    assert flat == lr(policy_lr={"start": 0.2, "end": 0.05, "from": 0.5, "to": 0.9})
    assert lr(policy_lr=0.001, policy_lr_schedule="linear") == lr(policy_lr="lin_0.001")
    assert lr(learning_rate=0.001, learning_rate_schedule="cosine").schedule == "cosine"
    assert lr(policy_lr=0.001, policy_lr_schedule="linear", policy_lr_schedule_start_value=0.001).start == 0.001


def test_flat_keys_that_disagree_with_the_number():
    with pytest.raises(Exception, match=r"both set algorithm\.lr\.start") as caught:
        lr(policy_lr=0.001, policy_lr_schedule_start_value=0.002, policy_lr_schedule="linear")
    assert "policy_lr'" in str(caught.value) and "policy_lr_schedule" in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "lin_x",
        "abc",
        "",
        True,
        float("nan"),
        float("inf"),
        {"start": 1},
        {"start": 1, "end": 0, "from": 0.9, "to": 0.5},
        {"start": 1, "end": 0, "schedule": "exponential"},
        {"start": 1, "end": 0, "til": 3},
        [1, 0],
    ],
)
def test_nonsense_is_refused(value):
    with pytest.raises(ValidationError):
        Schedule.model_validate(value)


def test_ranges_hold_for_both_ends_but_a_positive_one_may_end_at_zero():
    positive, unit = TypeAdapter(PositiveSchedule), TypeAdapter(UnitSchedule)
    assert positive.validate_python("lin_0.2").end == 0.0
    for bad in (0, -1, {"start": 1, "end": -1}):
        with pytest.raises(ValidationError):
            positive.validate_python(bad)
    for bad in (1.5, {"start": 1, "end": 2}):
        with pytest.raises(ValidationError):
            unit.validate_python(bad)


def test_a_dumped_schedule_reads_back():
    for value in (0.5, "lin_0.001", {"start": 0.2, "end": 0.05, "from": 0.5, "to": 900, "schedule": "cosine"}):
        schedule = Schedule.model_validate(value)
        assert Schedule.model_validate(schedule.model_dump()) == schedule
