"""Diffusion against other people's code, and what has to hold for any noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.math.diffusion import ddim_step, ddpm_step, descent, noised, squared_cosine, without


def numbers(golden: dict[str, Any], *names: str) -> list[torch.Tensor]:
    return [torch.tensor(golden["diffusion"][name]) for name in names]


def test_schedule_noise_and_a_ddim_step_equal_the_golden_vectors(golden: dict[str, Any]) -> None:
    """diffusers 0.42.1; of ten sampling steps the one from time 50 to time 40."""
    signal, x, noise, time, mixed, after = numbers(golden, "alphas_cumprod", "x0", "eps", "t", "x_t", "ddim_step_t50")
    ours = squared_cosine(100)
    torch.testing.assert_close(ours, signal, rtol=2e-5, atol=0)
    torch.testing.assert_close(noised(x, noise, ours[time].unsqueeze(1)), mixed)
    torch.testing.assert_close(ddim_step(x, noise, ours[50], ours[40]), after)


def test_sampling_times_are_evenly_spaced_and_end_without_noise() -> None:
    signal = squared_cosine(100)
    plan = descent(signal, 10)
    assert plan.time.tolist() == [90, 80, 70, 60, 50, 40, 30, 20, 10, 0]
    assert torch.equal(plan.signal, signal[plan.time])
    assert torch.equal(plan.after, torch.cat([signal[plan.time[1:]], torch.ones(1)]))
    assert descent(signal, 100).time.tolist() == [*range(99, -1, -1)]
    assert descent(signal, 8).time.tolist() == [12 * i for i in range(7, -1, -1)]


def test_whoever_knows_the_noise_gets_the_sample_back() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(5, 3, generator=rng) * 2 - 1
    plan = descent(squared_cosine(100), 10)
    found = torch.randn(5, 3, generator=rng)
    for signal, after in zip(plan.signal, plan.after, strict=True):
        noise = (found - signal.sqrt() * x) / (1 - signal).sqrt()
        assert torch.allclose(without(noise, found, signal), x, atol=1e-3)
        found = ddim_step(found, noise, signal, after)
    torch.testing.assert_close(found, x, atol=1e-4, rtol=0)


def test_samples_are_clipped_to_the_range_of_the_data() -> None:
    signal = squared_cosine(100)
    large = torch.full((2, 2), 30.0)
    assert torch.equal(without(torch.zeros(2, 2), large, signal[50]), torch.ones(2, 2))
    assert torch.equal(ddim_step(-large, torch.zeros(2, 2), signal[0], torch.ones(())), -torch.ones(2, 2))


@pytest.mark.parametrize("steps", [100, 20])
def test_a_ddpm_step_draws_from_the_posterior(steps: int) -> None:
    """Mean and variance of p(x_after | x_now, x) by Bayes' rule; none of it is random in the last step."""
    plan = descent(squared_cosine(100).double(), steps)
    x, now = torch.tensor([0.3], dtype=torch.float64), torch.tensor([-0.2], dtype=torch.float64)
    for i in (0, steps // 2, steps - 1):
        signal, after = plan.signal[i].double(), plan.after[i].double()
        noise = (now - signal.sqrt() * x) / (1 - signal).sqrt()
        mean, high = (ddpm_step(now, noise, signal, after, torch.full_like(x, z)) for z in (0.0, 1.0))
        kept = signal / after  # x_now given x_after: sqrt(kept) x_after + sqrt(1 - kept) noise
        precision = kept / (1 - kept) + 1 / (1 - after) if after < 1 else torch.tensor(torch.inf, dtype=torch.float64)
        expected = x
        if after < 1:
            expected = (kept.sqrt() / (1 - kept) * now + after.sqrt() / (1 - after) * x) / precision
        torch.testing.assert_close(mean, expected, atol=1e-9, rtol=1e-6)
        torch.testing.assert_close(high - mean, (1 / precision).sqrt().expand(1), atol=1e-9, rtol=1e-6)
