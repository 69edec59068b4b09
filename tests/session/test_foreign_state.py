"""A checkpoint whose sums are right and whose numbers are wrong is refused before the first step."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from ludus.errors import DataError
from ludus.session.loading import restore
from support import build, config

WRONG: list[tuple[str, Any]] = [
    ("scheduler.progress.epochs", None),
    ("scheduler.phase_progress.updates", "many"),
    ("scheduler.position", 7),
    ("scheduler.position", -1),
    ("scheduler.index", -1),
    ("scheduler.index", 1.5),
    ("evaluation_due.env_steps", "never"),
    ("run.epoch_position", "here"),
    ("run.best.returns", ["high", "higher"]),
    ("collector.obs", np.zeros((3, 4), np.float32)),
    ("collector.first", np.zeros(3, bool)),
    ("collector.return", np.zeros(3)),
    ("collector.returns", ["high"]),
    ("collector.lengths", [None]),
    ("collector.episodes", "several"),
    ("collector.steps", None),
    ("collector.env.clock", "noon"),
    ("collector.env.random", []),
]
CONFIG = {"rollout_steps": 16, "epochs": 1, "name": "ppo"}


def experiment(total: int) -> Any:
    """Four environments of CartPole, evaluated on the way."""
    evaluation = {"every_steps": 64, "episodes": 2}
    return config(CONFIG, training={"total_timesteps": total, "evaluation": evaluation})


@pytest.fixture(scope="module")
def state() -> dict[str, Any]:
    """What a run of 128 steps saves."""
    run = build(experiment(128))
    run.run()
    run.close()
    return run.state_dict()


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[f"{path}={value}"[:40] for path, value in WRONG])
def test_a_wrong_number_is_refused(state: dict[str, Any], path: str, value: object) -> None:
    changed = deepcopy(state)
    *parents, name = path.split(".")
    part = changed
    for parent in parents:
        part = part[parent]
    part[name] = value
    run = build(experiment(192))
    with pytest.raises(DataError, match="does not fit"):
        restore(run, changed, "checkpoint")
    run.close()


def test_the_unchanged_one_goes_on(state: dict[str, Any]) -> None:
    run = build(experiment(192))
    restore(run, deepcopy(state), "checkpoint")
    run.run()
    run.close()
    assert run.progress.env_steps == 192
