"""Targets of action values against known answers and brute force."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.math import values
from ludus.math.values import chosen, n_step_rows, project, q_target

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "golden_vectors.json").read_text())


def close(a, b, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def tensors(vectors, *names):
    return [torch.tensor(vectors[name]) for name in names]


def test_q_learning_and_double_q_learning() -> None:
    case = {k: torch.tensor(v) for k, v in GOLDEN["q_learning"].items() if k != "oracle"}
    value = chosen(case["q_tm1"], case["a"])
    single = q_target(case["r"], case["discount"], case["q_t"]) - value
    double = q_target(case["r"], case["discount"], case["q_t"], case["q_t_selector"]) - value
    torch.testing.assert_close(single, case["td"], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(double, case["double_td"], atol=1e-6, rtol=1e-5)


def test_categorical_projection() -> None:
    case = {k: torch.tensor(v) for k, v in GOLDEN["c51_projection"].items() if k != "oracle"}
    found = project(case["z_p"], case["probs"], case["z_q"])
    torch.testing.assert_close(found, case["out"], atol=1e-6, rtol=1e-5)


def test_a_projection_keeps_mass_and_within_the_range_the_mean() -> None:
    atoms = torch.linspace(-2, 2, 9)
    support, probabilities = torch.rand(5, 3, 9) * 3 - 1.5, torch.randn(5, 3, 9).softmax(-1)
    found = project(support, probabilities, atoms)
    torch.testing.assert_close(found.sum(-1), torch.ones(5, 3))
    torch.testing.assert_close((found * atoms).sum(-1), (support * probabilities).sum(-1), atol=1e-5, rtol=1e-4)


def test_a_projection_keeps_what_lies_beyond_the_range_at_its_ends() -> None:
    atoms = torch.linspace(-2, 2, 5)
    found = project(torch.tensor([-7.0, 0.5, 9.0]), torch.tensor([0.2, 0.3, 0.5]), atoms)
    torch.testing.assert_close(found, torch.tensor([0.2, 0.0, 0.15, 0.15, 0.5]))


@given(T=st.integers(1, 7), N=st.integers(1, 3), n=st.integers(1, 5), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_n_step_rows_are_brute_force(T: int, N: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((T, N)) < 0.8
    reward = np.where(mask, rng.normal(size=(T, N)), 0).astype(np.float32)
    last = np.roll(~mask, -1, 0)
    last[-1] = False
    terminated = mask & last & (rng.random((T, N)) < 0.5)  # an episode's last step is followed by a row without a step
    total, discount, row = n_step_rows(reward, terminated, mask, n, 0.9)
    for t in range(T):
        for b in np.flatnonzero(mask[t]):
            m = 1
            while m < n and t + m < T and mask[t + m, b]:
                m += 1
            np.testing.assert_allclose(total[t, b], sum(0.9**k * reward[t + k, b] for k in range(m)), rtol=1e-5)
            assert row[t, b] == t + m
            np.testing.assert_allclose(discount[t, b], 0 if terminated[t + m - 1, b] else 0.9**m, rtol=1e-6)


def test_lambda_returns_golden(golden):
    g = golden["lambda_returns"]
    close(values.lambda_returns(*tensors(g, "r_t", "discount_t", "v_t"), g["lam"]), g["out"])


def test_n_step_golden(golden):
    g = golden["n_step"]
    close(values.n_step_returns(*tensors(g, "r_t", "discount_t", "v_t"), 3), g["out"])


def test_vtrace_golden(golden):
    g = golden["vtrace"]
    value, *rest = tensors(g, "v_tm1", "v_t", "r_t", "discount_t", "rho")
    target, advantage = values.vtrace(value, *rest, lam=0.95)
    close(target - value, g["errors"])
    close(advantage, g["pg_advantage"])


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_n_step_equals_brute_force_over_batches(n):
    generator = torch.Generator().manual_seed(n)
    reward, value = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    discount = 0.9 * (torch.rand(6, 4, generator=generator, dtype=torch.float64) > 0.3)
    out = values.n_step_returns(reward, discount, value, n)
    for t in range(6):
        expected, weight = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
        for k in range(t, min(t + n, 6)):
            expected, weight = expected + weight * reward[k], weight * discount[k]
        torch.testing.assert_close(out[t], expected + weight * value[min(t + n, 6) - 1])


def test_lambda_returns_carry_gradients():
    reward, value = torch.randn(2, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    discount = torch.full((7, 3), 0.9, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (reward, discount, value)]
    assert torch.autograd.gradcheck(lambda r, d, v: values.lambda_returns(r, d, v, 0.8), inputs)


def test_replayed_lambda_returns_golden(golden):
    """DreamerV3's own function; it has no return for the last row."""
    g = golden["dreamerv3_lambda_return"]
    reward, last, terminal, boot = (torch.tensor(g[name]).T for name in ("rew", "last", "term", "boot"))
    found = values.replayed_lambda_returns(reward, last, terminal, boot, g["disc"], g["lam"])
    assert torch.equal(found[-1], boot[-1])
    close(found[: len(torch.tensor(g["out"]).T)].T, g["out"])


def test_imagined_returns_are_replayed_ones_without_an_end(golden):
    g = golden["dreamerv3_lambda_return"]
    reward, boot = (torch.tensor(g[name]).T for name in ("rew", "boot"))
    never = torch.zeros_like(reward, dtype=torch.bool)
    found = values.replayed_lambda_returns(reward, never, never, boot, 0.9, 0.8)
    discount = torch.full_like(reward[1:], 0.9)
    close(found[:-1], values.lambda_returns(reward[1:], discount, boot[1:], 0.8))


def test_replayed_returns_stop_at_ends_and_differ_by_their_kind():
    """Nothing after an end counts; a truncated episode goes on with its bootstrap value, a terminated one does not."""
    reward, boot = torch.tensor([0.0, 1.0, 2.0, 0.0, 50.0]), torch.tensor([7.0, 7.0, 10.0, 99.0, 99.0])
    last = torch.tensor([False, False, True, False, False])
    for terminal, rest in ((last, 0.0), (torch.zeros_like(last), 0.5 * 10.0)):
        found = values.replayed_lambda_returns(reward, last, terminal, boot, 0.5, 1.0)
        close(found[:2], [1 + 0.5 * (2 + rest), 2 + rest])
