"""Brax behind Gymnasium's interface. Compiling takes a minute, so all but the line without it are slow tests."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ludus.config.schema import Environment
from ludus.envs.make import make_vector
from ludus.errors import MissingExtra


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brax", None)
    monkeypatch.delitem(sys.modules, "ludus.envs.suites.brax", raising=False)
    with pytest.raises(MissingExtra, match=r"brax/inverted_pendulum: .* pip install 'ludus-rl\[brax\]'"):
        make_vector(Environment(id="brax/inverted_pendulum"))


@pytest.mark.slow
def test_episodes_follow_from_seeds_and_are_saved() -> None:
    pytest.importorskip("brax")
    with make_vector(Environment(id="brax/inverted_pendulum", num_envs=2, vectorization="sync")) as env:
        assert env.choose_snapshot_method() == "api", env.refused
        first = env.reset([0, 1]).copy()
        assert first.shape == (2, 4) and (first[0] != first[1]).any()
        np.testing.assert_array_equal(env.reset([0, 1]), first)
        actions = np.random.default_rng(0).uniform(-1, 1, (60, 2, 1)).astype(np.float32)
        assert sum(int(env.step(action).terminated.sum()) for action in np.ones_like(actions)) > 1  # it falls
        state = env.snapshot()
        expected = [env.step(action).obs.copy() for action in actions]
        env.restore(state)
        np.testing.assert_array_equal([env.step(action).obs.copy() for action in actions], expected)
