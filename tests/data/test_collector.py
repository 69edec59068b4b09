"""The collector against environments that follow a plan: what it shows, stores, counts, normalises and forgets."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ludus.data.broken_rows import weight_of
from ludus.data.collector import Collector
from ludus.data.episodes import WINDOW
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.errors import EnvironmentFailed
from ludus.types import Acted
from vector_script import BOX, Counting, Planned

PLANS = [[(3, "terminated")], [(4, "truncated")], [(50, "terminated")]]


def collector(plans: Any = PLANS, *, normalized: bool = False, scaled: bool = False) -> Collector:
    env = Planned(plans)
    return Collector(
        env,
        list(range(env.num_envs)),
        normalizer=ObservationNormalizer("rolling", BOX) if normalized else None,
        reward_normalizer=RewardNormalizer(env.num_envs, 0.9) if scaled else None,
    )


# ---- normalisation ---------------------------------------------------------------------------------


def test_the_normaliser_learns_all_raw_observations_once() -> None:
    made, policy = collector(normalized=True), Counting()
    for steps in (5, 1, 7):
        made.collect(policy, steps)
    env = made.env
    acted_on = np.concatenate(env.shown[:13])  # the newest one was not acted on yet
    assert made.normalizer.parts.moments.count == 13 * 3
    np.testing.assert_allclose(made.normalizer.parts.moments.mean, acted_on.mean(0), rtol=1e-6)
    np.testing.assert_allclose(made.normalizer.parts.moments.var, acted_on.var(0), rtol=1e-5)


def test_one_rollout_sees_one_set_of_statistics() -> None:
    made, policy = collector(normalized=True), Counting()
    made.collect(policy, 6)
    made.collect(policy, 6)
    frozen = ObservationNormalizer("rolling", BOX)
    frozen.load_state_dict(made.normalizer.state_dict())
    policy.seen.clear()
    rollout = made.collect(policy, 6)
    np.testing.assert_allclose(rollout.obs, frozen.apply(rollout.raw_obs), rtol=1e-6)
    np.testing.assert_array_equal(rollout.obs[:6], np.stack([obs for obs, *_ in policy.seen]))
    np.testing.assert_array_equal(rollout.raw_obs, np.stack(made.env.shown[12:19]))


def test_final_observations_are_normalised_like_all_others() -> None:
    made, policy = collector(normalized=True), Counting()
    made.collect(policy, 6)
    frozen = ObservationNormalizer("rolling", BOX)
    frozen.load_state_dict(made.normalizer.state_dict())
    rollout = made.collect(
        policy, 6
    )  # steps 6 to 11: environment 1 is cut at 7 and 11, in its second and third episode
    assert (rollout.finals.t.tolist(), rollout.finals.b.tolist()) == ([1, 5], [1, 1])
    true = np.array([[1, 1, 4], [1, 2, 4]], np.float32)
    np.testing.assert_allclose(rollout.finals.obs, frozen.apply(true), rtol=1e-6)


def test_rewards_are_scaled_by_the_return_and_stored_as_they_are() -> None:
    made = collector(scaled=True)
    rollout = made.collect(Counting(), 8)
    running, seen = np.zeros(3), []
    for reward, done in zip(rollout.raw_reward, rollout.done, strict=True):
        running = running * 0.9 + reward
        seen.append(running.copy())
        running[done] = 0.0
    np.testing.assert_allclose(rollout.reward, rollout.raw_reward / np.sqrt(np.var(seen) + 1e-8), rtol=1e-5)
    assert rollout.raw_reward[0, 0] == pytest.approx(1.1)
    np.testing.assert_allclose(made.reward_normalizer.running, running, rtol=1e-6)


# ---- ends ------------------------------------------------------------------------------------------


def test_truncated_episodes_bring_their_true_end_and_terminated_ones_do_not() -> None:
    made = collector([[(2, "terminated")], [(2, "truncated")], [(2, "both")], [(9, "terminated")]])
    rollout = made.collect(Counting(), 3)
    np.testing.assert_array_equal(rollout.terminated[1], [True, False, True, False])
    np.testing.assert_array_equal(rollout.truncated[1], [False, True, True, False])
    np.testing.assert_array_equal(rollout.first, [[True] * 4, [False] * 4, [True, True, True, False], [False] * 4])
    assert (rollout.finals.t.tolist(), rollout.finals.b.tolist()) == ([1], [1])
    np.testing.assert_array_equal(rollout.finals.obs, [[1, 0, 2]])
    np.testing.assert_array_equal(rollout.obs[2, :, 1], [1, 1, 1, 0], err_msg="the next row begins the next episode")
    assert (rollout.ends.t.tolist(), rollout.ends.b.tolist()) == ([1, 1, 1], [0, 1, 2])
    np.testing.assert_array_equal(rollout.ends.raw_obs, [[0, 0, 2], [1, 0, 2], [2, 0, 2]])


def test_returns_are_raw_and_of_whole_episodes() -> None:
    """The policy is paid 1.1 and 1.2 where the environment pays 1 and 2."""
    made, policy = collector([[(4, "terminated")], [(2, "truncated")]]), Counting()
    for _ in range(3):
        made.collect(policy, 3)
    assert list(made.episodes.returns) == [3, 10, 3, 3, 10, 3]
    assert list(made.episodes.lengths) == [2, 4, 2, 2, 4, 2]
    found = made.statistics()
    assert found["roll/episodes"] == 6 and found["roll/ep_rew/best"] == 10 and found["roll/ep_rew/last"] == 3
    assert found["roll/ep_rew/mean"] == pytest.approx(32 / 6) and found["roll/ep_len/mean"] == pytest.approx(16 / 6)


def test_statistics_are_of_the_newest_hundred() -> None:
    made = collector([[(2, "terminated")] * 30 + [(1, "terminated")] * 300])
    assert made.statistics() == {}
    made.collect(Counting(), 60 + 40)
    assert made.statistics()["roll/ep_rew/mean"] == pytest.approx((30 * 3 + 40) / 70)
    made.collect(Counting(), 80)
    assert len(made.episodes.returns) == WINDOW == 100
    assert made.statistics()["roll/ep_rew/mean"] == 1
    assert made.episodes.count == 150


def test_a_lost_life_ends_an_episode_for_the_learner_only() -> None:
    made = collector([[(2, "life"), (3, "terminated")]])
    rollout = made.collect(Counting(), 5)
    np.testing.assert_array_equal(rollout.terminated[:, 0], [False, True, False, False, True])
    assert list(made.episodes.returns) == [1 + 2 + 1 + 2 + 3]
    assert list(made.episodes.lengths) == [5]


def test_a_broken_episode_is_no_transition_and_counts_nowhere() -> None:
    made = collector([[(3, "broken"), (2, "truncated")], [(4, "truncated")]])
    rollout = made.collect(Counting(), 6)
    assert rollout.broken is not None
    assert np.argwhere(rollout.broken).tolist() == [[2, 0]]
    assert (rollout.finals.t.tolist(), rollout.finals.b.tolist()) == ([3, 4], [1, 0])
    assert list(made.episodes.returns) == [10, 3]
    assert list(made.episodes.lengths) == [4, 2]
    weight = weight_of(rollout)
    assert weight is not None
    np.testing.assert_allclose(weight, np.where(rollout.broken, 0.0, 12 / 11), rtol=1e-6)
    assert made.collect(Counting(), 1).broken is None, "nothing was lost there"


# ---- memory ----------------------------------------------------------------------------------------


def test_memory_goes_from_step_to_step_and_from_rollout_to_rollout() -> None:
    made, policy = collector(), Counting()
    first = made.collect(policy, 5)
    np.testing.assert_array_equal(first.state[0][:, 0], [100, 100, 100])
    np.testing.assert_array_equal(first.last_state[0][:, 0], [2, 1, 5])
    np.testing.assert_array_equal(first.finals.state[0], [[4]], err_msg="memory after the step that was cut")
    second = made.collect(policy, 4)
    np.testing.assert_array_equal(second.state[0], first.last_state[0])
    np.testing.assert_array_equal(second.first[0], first.first[-1])
    memory = np.stack([state[:, 0] for _, state, _ in policy.seen])
    firsts = np.stack([begins for *_, begins in policy.seen])
    np.testing.assert_array_equal(memory[:, 2], [100, *range(1, 9)])
    np.testing.assert_array_equal(np.flatnonzero(firsts[:, 0]), [0, 3, 6])
    np.testing.assert_array_equal(np.flatnonzero(firsts[:, 1]), [0, 4, 8])


def test_a_barrier_cuts_everything() -> None:
    made, policy = collector(scaled=True), Counting()
    made.collect(policy, 5)
    assert made.reward_normalizer.running.any()
    known = made.reward_normalizer.moments.count
    made.barrier([7, 8, 9])
    assert made.env.seeds == [[0, 1, 2], [7, 8, 9]]
    np.testing.assert_array_equal(made.reward_normalizer.running, [0, 0, 0], err_msg="no return goes on")
    assert made.reward_normalizer.moments.count == known, "what was learned stays"
    rollout = made.collect(policy, 4)
    assert rollout.first[0].all()
    np.testing.assert_array_equal(rollout.state[0], policy.initial_state(3)[0])
    assert list(made.episodes.returns)[-2:] == [6, 10], "environment 0 and 1 from their new beginning on"
    assert list(made.episodes.lengths) == [3, 4, 3, 4]


def test_other_environments_begin_anew() -> None:
    made, policy = collector(scaled=True), Counting()
    made.collect(policy, 5)
    other = Planned([[(2, "terminated")]] * 3)
    made.switch(other, [4, 5, 6])
    assert other.seeds == [[4, 5, 6]]
    assert not made.reward_normalizer.running.any()
    rollout = made.collect(policy, 2)
    assert rollout.first[0].all() and rollout.terminated[1].all()
    assert list(made.episodes.returns)[-3:] == [3, 3, 3]


def test_a_rollout_may_be_shorter_or_longer_than_the_one_before() -> None:
    made, policy = collector(), Counting()
    for steps, start in ((4, 0), (2, 4), (6, 6)):
        rollout = made.collect(policy, steps)
        assert rollout.shape == (steps, 3) and rollout.env_steps == 3 * steps
        assert rollout.start == start
        np.testing.assert_array_equal(rollout.obs, np.stack(made.env.shown[start : start + steps + 1]))


# ---- what is not finite ----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_bad_numbers_of_an_environment_are_named(what: str) -> None:
    made, good = collector(), Planned.step

    def step(action: np.ndarray) -> Any:
        result = good(made.env, action)
        if made.env.t[2] == 3:
            bad = result.reward if what == "reward" else result.obs[:, 0]
            bad[2] = np.inf
        return result

    made.env.step = step
    with pytest.raises(EnvironmentFailed, match=rf"environment 2: {what} is not finite at step 2"):
        made.collect(Counting(), 5)


def test_a_bad_action_never_reaches_an_environment() -> None:
    env = Planned(PLANS, gym.spaces.Box(-1, 1, (1,), np.float32))

    class Bad(Counting):
        def act(self, obs: np.ndarray, state: Any, first: np.ndarray) -> Any:
            state = super().act(obs, state, first).state
            action = np.zeros((len(obs), 1), np.float32)
            action[1] = np.nan if len(self.seen) == 3 else 0.0
            return Acted(action, action, state, {})

    with pytest.raises(EnvironmentFailed, match="environment 1: the policy's action is not finite"):
        Collector(env, [1, 2, 3]).collect(Bad(), 5)
    assert len(env.shown) == 3, "two steps were taken"
