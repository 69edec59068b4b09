"""Returns against golden vectors, plain loops and episode-by-episode brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.math import policy_gradient as pg
from ludus.math import values


def close(a, b, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def tensors(vectors, *names):
    return [torch.tensor(vectors[name]) for name in names]


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 8, 31, 32, 33, 100])
def test_scan_equals_a_loop(steps):
    rng = np.random.default_rng(steps)
    decay, x = rng.uniform(-1, 1, (steps, 3)), rng.standard_normal((steps, 3))
    given_decay, given_x = decay.copy(), x.copy()
    expected, carry = np.empty_like(x), np.zeros(3)
    for t in reversed(range(steps)):
        expected[t] = carry = x[t] + decay[t] * carry
    np.testing.assert_allclose(pg.scan_TB(decay, x), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(values.scan_tensor(*map(torch.from_numpy, (decay, x))), expected, rtol=1e-12, atol=1e-12)
    assert (decay == given_decay).all() and (x == given_x).all()


def test_gae_golden(golden):
    g = golden["gae"]
    reward, value, last, final = (np.float32(g[k]) for k in ("rewards", "values", "last_values", "final_obs_values"))
    terminated, truncated = (np.array(g[k], bool) for k in ("terminated", "truncated"))
    done = terminated | truncated
    assert done.any() and (truncated & ~terminated).any()
    next_value = np.where(done, final, np.concatenate([value[1:], last.reshape(1, -1)]))
    advantage, target = pg.gae(reward, value, next_value, terminated, done, g["gamma"], g["lam"])
    assert advantage.dtype == target.dtype == np.float32
    close(advantage, g["advantages"])
    close(target, g["returns"])


def test_discounted_returns_golden(golden):
    g = golden["discounted_returns"]
    reward, discount, value = (np.float32(g[k])[:, None] for k in ("r_t", "discount_t", "v_t"))
    terminated = discount == 0
    out = values.reward_to_go(reward, value, terminated, terminated, float(discount[0, 0]))
    close(out[:, 0], g["out"])
    close(values.lambda_returns(*tensors(g, "r_t", "discount_t", "v_t"), 1.0), g["out"])


@st.composite
def rollouts(draw):
    """Random data with every mix of termination, truncation and both at once."""
    steps, envs = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    reward, value, next_value = rng.standard_normal((3, steps, envs)).astype(np.float32)
    flags = st.lists(st.booleans(), min_size=steps * envs, max_size=steps * envs)
    terminated, truncated = (np.array(draw(flags), bool).reshape(steps, envs) for _ in range(2))
    done = terminated | truncated
    # inside an episode the next value is the following row's value
    next_value[:-1] = np.where(done[:-1], next_value[:-1], value[1:])
    return reward, value, next_value, terminated, done


def episodes(terminated, done):
    """(env, slice) of every episode, or part of one, in a rollout."""
    steps, envs = done.shape
    for b in range(envs):
        start = 0
        for t in range(steps):
            if done[t, b] or t == steps - 1:
                yield b, slice(start, t + 1)
                start = t + 1


@given(rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_exponential_average_of_n_step_advantages_of_each_episode(rollout, gamma, lam):
    reward, value, next_value, terminated, done = rollout
    advantage, target = pg.gae(*rollout, gamma, lam)
    for b, part in episodes(terminated, done):
        r, v, nv, end = reward[part, b], value[part, b], next_value[part, b], terminated[part.stop - 1, b]
        nv = np.append(nv[:-1], 0.0 if end else nv[-1])
        for t in range(len(r)):
            deltas = r[t:] + gamma * nv[t:] - v[t:]
            expected = sum((gamma * lam) ** k * delta for k, delta in enumerate(deltas))
            assert advantage[part, b][t] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    close(target, advantage + value)


@given(rollouts(), st.floats(0, 1))
def test_monte_carlo_returns_episode_by_episode(rollout, gamma):
    reward, _, next_value, terminated, done = rollout
    before = [x.copy() for x in rollout]
    arguments = (reward, next_value, terminated, done, gamma)
    rtg, whole = values.reward_to_go(*arguments), values.episode_returns(*arguments)
    for b, part in episodes(terminated, done):
        carry = 0.0 if terminated[part.stop - 1, b] else float(next_value[part.stop - 1, b])
        for t in reversed(range(part.start, part.stop)):
            carry = float(reward[t, b]) + gamma * carry
            assert rtg[t, b] == pytest.approx(carry, rel=1e-4, abs=1e-4)
        assert whole[part, b] == pytest.approx(carry, rel=1e-4, abs=1e-4)
    assert all((a == b).all() for a, b in zip(before, rollout, strict=True))


def test_monte_carlo_by_hand():
    """Rewards 1 2 3 | 4 with gamma 0.5, terminated after the third step, cut after the fourth at value 8."""
    reward = np.float32([[1], [2], [3], [4]])
    terminated = np.array([[0], [0], [1], [0]], bool)
    next_value = np.float32([[9], [9], [9], [8]])
    arguments = (reward, next_value, terminated, terminated.copy(), 0.5)
    assert values.reward_to_go(*arguments)[:, 0].tolist() == [2.75, 3.5, 3.0, 8.0]
    assert values.episode_returns(*arguments)[:, 0].tolist() == [2.75, 2.75, 2.75, 8.0]


def test_termination_wins_over_truncation():
    one = np.ones((1, 1), np.float32)
    yes, no = np.ones((1, 1), bool), np.zeros((1, 1), bool)
    for terminated, expected in ((yes, 1.0), (no, 6.0)):
        advantage, _ = pg.gae(one, 0 * one, 10 * one, terminated, yes, 0.5, 0.9)
        assert advantage.item() == expected
        assert values.reward_to_go(one, 10 * one, terminated, yes, 0.5).item() == expected


# ---- losses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.2, torch.tensor(0.2)])
def test_clipped_surrogate_golden(golden, clip):
    g = golden["ppo_clip"]
    loss = pg.clipped_surrogate(torch.tensor(g["ratios"]), torch.tensor(g["advantages"]), clip)
    assert loss.item() == pytest.approx(g["loss"], abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"), [(1.5, 1.0, 0.0), (0.5, -1.0, 0.0), (1.5, -1.0, 1.0), (0.5, 1.0, -1.0)]
)
def test_the_clip_only_stops_moves_that_would_gain(ratio, advantage, slope):
    r = torch.tensor([ratio], requires_grad=True)
    pg.clipped_surrogate(r, torch.tensor([advantage]), 0.2).backward()
    assert r.grad.item() == slope


def test_clipped_value_loss_takes_the_worse_of_both():
    value, old, target = torch.tensor([2.0, 0.0, 0.05]), torch.zeros(3), torch.tensor([3.0, 1.0, 0.0])
    # 2.0 is pulled to 0.1: (0.1 - 3)^2; the others stay where they are
    expected = (2.9**2 + 1 + 0.05**2) / 3
    assert pg.clipped_value_loss(value, old, target, 0.1).item() == pytest.approx(expected, rel=1e-6)


def test_advantages_are_normalised_and_a_single_one_is_nothing() -> None:
    advantage = torch.tensor([1.0, 4.0, -2.0, 7.0])
    torch.testing.assert_close(pg.normalized(advantage), (advantage - 2.5) / advantage.std())
    assert pg.normalized(torch.tensor([[3.0]])).tolist() == [[0.0]]
    weight = torch.tensor([2.0, 0.0, 2.0, 0.0])  # what weighs nothing counts neither in the mean nor in the deviation
    found = pg.normalized(advantage, weight)
    torch.testing.assert_close(found[[0, 2]], pg.normalized(advantage[[0, 2]]))
    assert pg.normalized(advantage, torch.tensor([1.0, 0.0, 0.0, 0.0]))[0] == 0
    assert torch.isfinite(pg.normalized(advantage, torch.zeros(4))).all()


def test_weights_leave_steps_out() -> None:
    x, weight = torch.tensor([1.0, 5.0, 3.0]), torch.tensor([1.5, 0.0, 1.5])
    assert pg.weighted_mean(x, None) == 3
    assert pg.weighted_mean(x, weight) == 2
    old, target = torch.zeros(3), torch.tensor([2.0, 9.0, 2.0])
    expected = torch.maximum((x - target).square(), (x.clamp(-0.5, 0.5) - target).square())[[0, 2]].mean()
    torch.testing.assert_close(pg.clipped_value_loss(x, old, target, 0.5, weight), expected)
