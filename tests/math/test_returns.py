"""Returns against golden vectors, plain loops and episode-by-episode brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.math import returns


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
    np.testing.assert_allclose(returns.scan_TB(decay, x), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        returns.scan_tensor(*map(torch.from_numpy, (decay, x))), expected, rtol=1e-12, atol=1e-12
    )
    assert (decay == given_decay).all() and (x == given_x).all()


def test_gae_golden(golden):
    g = golden["gae"]
    reward, value, last, final = (np.float32(g[k]) for k in ("rewards", "values", "last_values", "final_obs_values"))
    terminated, truncated = (np.array(g[k], bool) for k in ("terminated", "truncated"))
    done = terminated | truncated
    assert done.any() and (truncated & ~terminated).any()
    next_value = np.where(done, final, np.concatenate([value[1:], last.reshape(1, -1)]))
    advantage, target = returns.gae(reward, value, next_value, terminated, done, g["gamma"], g["lam"])
    assert advantage.dtype == target.dtype == np.float32
    close(advantage, g["advantages"])
    close(target, g["returns"])


def test_lambda_returns_golden(golden):
    g = golden["lambda_returns"]
    close(returns.lambda_returns(*tensors(g, "r_t", "discount_t", "v_t"), g["lam"]), g["out"])


def test_n_step_golden(golden):
    g = golden["n_step"]
    close(returns.n_step_returns(*tensors(g, "r_t", "discount_t", "v_t"), 3), g["out"])


def test_discounted_returns_golden(golden):
    g = golden["discounted_returns"]
    reward, discount, value = (np.float32(g[k])[:, None] for k in ("r_t", "discount_t", "v_t"))
    terminated = discount == 0
    out = returns.reward_to_go(reward, value, terminated, terminated, float(discount[0, 0]))
    close(out[:, 0], g["out"])
    close(returns.lambda_returns(*tensors(g, "r_t", "discount_t", "v_t"), 1.0), g["out"])


def test_vtrace_golden(golden):
    g = golden["vtrace"]
    value, *rest = tensors(g, "v_tm1", "v_t", "r_t", "discount_t", "rho")
    target, advantage = returns.vtrace(value, *rest, lam=0.95)
    close(target - value, g["errors"])
    close(advantage, g["pg_advantage"])


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
    advantage, target = returns.gae(*rollout, gamma, lam)
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
    rtg, whole = returns.reward_to_go(*arguments), returns.episode_returns(*arguments)
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
    assert returns.reward_to_go(*arguments)[:, 0].tolist() == [2.75, 3.5, 3.0, 8.0]
    assert returns.episode_returns(*arguments)[:, 0].tolist() == [2.75, 2.75, 2.75, 8.0]


def test_termination_wins_over_truncation():
    one = np.ones((1, 1), np.float32)
    yes, no = np.ones((1, 1), bool), np.zeros((1, 1), bool)
    for terminated, expected in ((yes, 1.0), (no, 6.0)):
        advantage, _ = returns.gae(one, 0 * one, 10 * one, terminated, yes, 0.5, 0.9)
        assert advantage.item() == expected
        assert returns.reward_to_go(one, 10 * one, terminated, yes, 0.5).item() == expected


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_n_step_equals_brute_force_over_batches(n):
    generator = torch.Generator().manual_seed(n)
    reward, value = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    discount = 0.9 * (torch.rand(6, 4, generator=generator, dtype=torch.float64) > 0.3)
    out = returns.n_step_returns(reward, discount, value, n)
    for t in range(6):
        expected, weight = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
        for k in range(t, min(t + n, 6)):
            expected, weight = expected + weight * reward[k], weight * discount[k]
        torch.testing.assert_close(out[t], expected + weight * value[min(t + n, 6) - 1])


def test_lambda_returns_carry_gradients():
    reward, value = torch.randn(2, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    discount = torch.full((7, 3), 0.9, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (reward, discount, value)]
    assert torch.autograd.gradcheck(lambda r, d, v: returns.lambda_returns(r, d, v, 0.8), inputs)
