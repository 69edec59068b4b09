"""Scripted experts act in the environments that they name; how well `lunar_lander` does is in tests/session."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.config.schema import Environment
from ludus.envs.make import make_vector
from ludus.registry import EXPERTS
from ludus.types import tree_map

KWARGS = {"lunar_lander": [{"continuous": True}, {"continuous": False}]}
NEEDS = {"lunar_lander": "Box2D"}
CASES = [(name, kwargs) for name in EXPERTS.names() for kwargs in KWARGS.get(name, [{}])]


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
def test_it_acts_in_every_environment_that_it_knows(name: str, kwargs: dict[str, bool]) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    kind = EXPERTS[name]
    with make_vector(Environment(id=kind.ids[0], kwargs=kwargs, vectorization="sync"), num_envs=3) as env:
        expert, first = kind(env.action_space, np.random.default_rng(0)), np.ones(3, bool)
        obs = tree_map(np.array, env.reset([1, 2, 3]))
        for _ in range(20):
            action = expert.act(obs, first)
            assert all(env.action_space.contains(one) for one in action)
            result = env.step(action)
            obs, first = tree_map(np.array, result.obs), result.done.copy()
