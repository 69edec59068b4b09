"""Environments of this process are given up after a while; what is late and can be interrupted is named."""

from __future__ import annotations

import contextlib
import math
import signal
import time

import numpy as np
import pytest

from envs.conftest import Make
from ludus.envs import deadline
from ludus.envs.deadline import raised
from ludus.errors import EnvironmentFailed


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "LEAST", 0.5)
    monkeypatch.setattr(deadline, "GRACE", 60.0)  # it ends the process


def test_late_code_is_interrupted_and_named(soon: None) -> None:
    expected = r"^here: waiting did not come to an end within 0\.5 s; raise env"
    with pytest.raises(EnvironmentFailed, match=expected), deadline.Within(0.1, "here", "waiting"):
        time.sleep(3)


def test_code_that_catches_exceptions_is_interrupted_too(soon: None) -> None:
    with pytest.raises(EnvironmentFailed, match="did not come to an end"), deadline.Within(0.1, "here", "waiting"):
        with contextlib.suppress(Exception):  # as environments do
            time.sleep(3)
        time.sleep(3)


def test_signs_of_life_are_counted(soon: None) -> None:
    with deadline.Within(0.1, "here", "working") as watch:
        for _ in range(6):
            time.sleep(0.2)
            watch.beat()


def test_what_is_inside_is_a_sign_of_life(soon: None) -> None:
    with deadline.Within(0.1, "here", "working"):
        for _ in range(6):
            with deadline.Within(0.1, "there", "working"):
                time.sleep(0.2)


def test_none_is_left_open(soon: None) -> None:
    with pytest.raises(ValueError, match="own"), deadline.Within(1.0, "here", "working"):
        raise ValueError("own")
    with deadline.Within(math.inf, "here", "working"):
        assert deadline._watch.open == []
    assert deadline._watch.open == []


def test_a_reset_in_the_middle_of_training_has_a_deadline(make: Make, soon: None) -> None:
    env = make("Probe/Sleeper-v0", num_envs=2, step_deadline=0.2)
    env.reset([1, 2])
    with pytest.raises(EnvironmentFailed, match=r"environment 0 \(Probe/Sleeper-v0, seed 1\): reset did not come"):
        for _ in range(20):
            env.step(np.zeros(2, int))


def test_ctrl_c_is_the_users_where_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            raised("here", "step", KeyboardInterrupt())
        signal.signal(signal.SIGINT, lambda *_: None)
        assert "step raised KeyboardInterrupt" in raised("here", "step", KeyboardInterrupt()).line()
    finally:
        signal.signal(signal.SIGINT, before)
