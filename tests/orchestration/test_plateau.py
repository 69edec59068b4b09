"""Settings change when a metric stands still, within bounds, and the same way after a resume."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ludus.errors import ConfigError
from ludus.orchestration.callbacks.plateau import Plateau, PlateauConfig
from ludus.registry import CALLBACKS
from orchestration.settings_stand_in import StandIn
from support import config

KEY = "val/roll/ep_rew/mean"


def _plateau(**fields: Any) -> Plateau:
    actions = fields.pop("actions", [{"field": "lr", "multiply": 0.5}])
    return Plateau(PlateauConfig(actions=actions, **{"patience": 2, **fields}))


def _feed(plateau: Plateau, run: Any, *values: float) -> list[float]:
    """The learning rate after every value."""
    found = []
    for value in values:
        run.recorder.begin_epoch()
        run.recorder.record("val", {"roll/ep_rew/mean": value})
        plateau.on_epoch_end(run)
        found.append(run.settings.lr.start)
    return found


def test_it_is_chosen_by_name_in_a_config() -> None:
    chosen = {"type": "plateau", "patience": 3, "actions": [{"field": "lr", "multiply": 0.5, "min": 1e-5}]}
    (choice,) = config(training={"callbacks": [chosen]}).training.callbacks
    assert CALLBACKS[choice.name] is Plateau
    assert choice.config.actions[0].min == 1e-5


def test_progress_keeps_everything_as_it_is() -> None:
    run = StandIn(lr=1e-3)
    assert _feed(_plateau(), run, *range(20)) == [1e-3] * 20
    assert run.said == []


def test_standing_still_halves_the_rate_again_and_again() -> None:
    run, plateau = StandIn(lr=1e-3), _plateau()
    assert _feed(plateau, run, 5, 5, 4, 5, 5, 6, 5, 5) == [1e-3, 1e-3, *[5e-4] * 2, *[2.5e-4] * 3, 1.25e-4]
    assert plateau.seen.interventions == 3
    assert run.said[0] == f"plateau of {KEY}: no progress in 2 values; lr 0.001 -> 0.0005"


def test_epochs_without_the_metric_do_not_count() -> None:
    run, plateau = StandIn(lr=1e-3), _plateau()
    for value in (5, 5):
        _feed(plateau, run, value)
        for _ in range(5):
            run.recorder.begin_epoch()
            plateau.on_epoch_end(run)  # type: ignore[arg-type]
    assert run.settings.lr.start == 1e-3


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ({"field": "lr", "multiply": 0.1, "min": 5e-4}, {"lr": 1e-3}, 5e-4),
        ({"field": "lr", "multiply": 100, "max": 2e-3}, {"lr": 1e-3}, 2e-3),
        ({"field": "entropy_coef", "add": 0.01}, {"entropy_coef": 0.0}, 0.01),
        ({"field": "clip", "set": 0.1}, {"clip": 0.2}, 0.1),
        ({"field": "epochs", "multiply": 0.5}, {"epochs": 5}, 2),
        ({"field": "lr", "multiply": 0.5}, {"lr": "lin_0.001"}, "lin_0.0005"),
    ],
)
def test_ways_to_change_a_field(action: dict[str, Any], before: dict[str, Any], after: Any) -> None:
    run = StandIn(**before)
    _feed(_plateau(actions=[action]), run, 5, 5, 5)
    assert getattr(run.settings, action["field"]) == getattr(
        StandIn(**{action["field"]: after}).settings, action["field"]
    )


def test_at_its_bound_it_rests() -> None:
    run, plateau = StandIn(lr=1e-3), _plateau(actions=[{"field": "lr", "multiply": 0.5, "min": 5e-4}])
    _feed(plateau, run, *[5] * 20)
    assert (plateau.seen.interventions, len(run.said)) == (1, 1)


def test_the_cooldown_counts_nothing() -> None:
    run = StandIn(lr=1e-3)
    rates = _feed(_plateau(cooldown=3), run, *[5] * 9)
    assert rates == [1e-3, 1e-3, *[5e-4] * 5, *[2.5e-4] * 2]


def test_less_can_be_better_and_small_progress_none() -> None:
    run = StandIn(lr=1e-3)
    assert _feed(_plateau(better="down"), run, 9, 8, 7, 6)[-1] == 1e-3
    run = StandIn(lr=1e-3)
    assert _feed(_plateau(min_delta=0.5), run, 1.0, 1.1, 1.2)[-1] == 5e-4


def test_a_change_that_made_it_worse_is_undone_for_good() -> None:
    run, plateau = StandIn(lr=1e-3), _plateau(revert_on_worse=True)
    rates = _feed(plateau, run, 5, 5, 5, 1, 1, *[1] * 10)
    assert rates == [1e-3, 1e-3, 5e-4, 5e-4, *[1e-3] * 11]
    assert "1 on average after the change, 5 before it; lr 0.0005 -> 0.001" in run.said[-1]
    run, plateau = StandIn(lr=1e-3), _plateau(revert_on_worse=True)
    assert _feed(plateau, run, 5, 5, 5, 5, 5)[-1] == 2.5e-4  # not worse: on it goes


def test_a_resumed_run_acts_at_the_same_values() -> None:
    values = [5, 5, 5, 1, 6, 6, 2, 2, 2, 1, 1, 1, 1]
    whole, plateau = StandIn(lr=1e-3), _plateau(revert_on_worse=True, cooldown=1)
    expected = _feed(plateau, whole, *values)
    for cut in range(len(values)):
        run, first, second = StandIn(lr=1e-3), *(_plateau(revert_on_worse=True, cooldown=1) for _ in range(2))
        begun = _feed(first, run, *values[:cut])
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert begun + _feed(second, run, *values[cut:]) == expected


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"field": "lrr", "multiply": 0.5}, "no field 'lrr'; did you mean 'lr'"),
        ({"field": "optimizer", "multiply": 0.5}, "fixed for the whole run"),
        ({"field": "target_kl", "multiply": 0.5}, "is None, not a number"),
        ({"field": "normalize_advantage", "set": 0}, "not a number"),
    ],
)
def test_what_can_never_be_done_fails_at_the_start(action: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _plateau(actions=[action]).on_start(StandIn())  # type: ignore[arg-type]


@pytest.mark.parametrize("action", [{"field": "lr"}, {"field": "lr", "multiply": 0.5, "add": 1.0}])
def test_an_action_does_one_thing(action: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one of multiply, add and set"):
        _plateau(actions=[action])


def test_a_change_the_algorithm_refuses_does_not_end_the_run() -> None:
    run = StandIn(rollout_steps=32, batch_size=64)
    plateau = _plateau(actions=[{"field": "batch_size", "set": 60}])
    _feed(plateau, run, *[5] * 9)
    assert run.settings.batch_size == 64
    assert len(run.said) == 1
    assert "is not possible" in run.said[0]
