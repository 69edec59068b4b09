"""The bandit and its threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.config.schema import Environment
from ludus.envs.make import make_env, make_vector
from ludus.errors import EnvironmentFailed


def bandit(id: str = "Bandit-v0", **kwargs: Any) -> Any:
    return make_env(Environment(id=id, kwargs=kwargs)).unwrapped


def returns(share: float, episodes: int = 200, **kwargs: Any) -> tuple[float, float]:
    """Mean return of a player who takes the best arm that often and any other one else; and the threshold."""
    rng = np.random.default_rng(0)
    with make_vector(Environment(id="Bandit-v0", num_envs=episodes, kwargs=kwargs)) as env:
        env.reset(range(episodes))
        best, total = bandit(**kwargs).best_arm, np.zeros(episodes)
        while True:
            other = (best + rng.integers(1, env.action_space.n, episodes)) % env.action_space.n  # type: ignore[attr-defined]
            result = env.step(np.where(rng.random(episodes) < share, best, other))
            total += result.reward
            if (result.terminated | result.truncated).all():
                assert env.reward_threshold is not None
                return float(total.mean()), env.reward_threshold


@pytest.mark.parametrize(
    "kwargs", [{}, {"kind": "bernoulli"}, {"arms": 4, "seed": 7}, {"means": [0.2, 0.8], "std": 1.0}]
)
def test_the_threshold_is_the_best_arm_in_95_of_100_pulls(kwargs: dict[str, Any]) -> None:
    for share, passes in ((0.99, True), (0.9, False)):
        mean, threshold = returns(share, **kwargs)
        assert (mean >= threshold) == passes


def test_arms() -> None:
    assert bandit().means.max() == 1.0 and bandit().action_space.n == 10
    np.testing.assert_array_equal(bandit().means, bandit().means)
    np.testing.assert_array_equal(bandit(arms=5, seed=3).means, bandit(arms=5, seed=3).means)
    assert (bandit(arms=5, seed=3).means != bandit(arms=5, seed=4).means).all()
    env = bandit(means=[0.1, 0.9], kind="bernoulli")
    env.reset(seed=0)
    pulls = [env.step(1) for _ in range(500)]
    assert {pull[1] for pull in pulls} == {0.0, 1.0} and np.mean([pull[1] for pull in pulls]) == pytest.approx(
        0.9, abs=0.05
    )
    assert pulls[0][4] == {"best_arm": 1, "regret": 0.0} and env.step(0)[4]["regret"] == pytest.approx(0.8)


def test_episodes() -> None:
    once = bandit("Bandit/OnePull-v0")
    once.reset(seed=0)
    assert once.step(0)[2:4] == (True, False)
    env = bandit(steps=3)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize("id", ["Bandit-v0", "Bandit/Bernoulli-v0", "Bandit/TwoArms-v0", "Bandit/OnePull-v0"])
def test_variants(id: str) -> None:
    with make_vector(Environment(id=id, num_envs=2)) as env:
        env.reset([0, 1])
        assert env.step(np.array([0, 1])).obs.tolist() == [0, 0]


def test_bad_arguments() -> None:
    bad: list[dict[str, Any]] = [{"arms": 1}, {"kind": "x"}, {"means": [2, 1], "kind": "bernoulli"}, {"steps": 0}]
    for kwargs in bad:
        with pytest.raises(EnvironmentFailed, match="making it raised ValueError"):
            bandit(**kwargs)
