"""The cross-entropy method on functions whose maximum is known."""

from __future__ import annotations

import torch

from ludus.math.planning import cross_entropy_method

GOAL = torch.tensor([[[0.3, -0.6], [-0.9, 0.1], [0.0, 0.8]], [[0.5, 0.5], [0.2, -0.2], [-0.4, 0.9]]])  # [H, B, A]


def noise(rounds: int = 12, candidates: int = 200, seed: int = 0) -> torch.Tensor:
    return torch.randn(rounds, 2, 3, candidates, 2, generator=torch.Generator().manual_seed(seed))


def closeness(actions_HBKA: torch.Tensor) -> torch.Tensor:
    return -(actions_HBKA - GOAL.unsqueeze(2)).square().sum((0, 3))


def test_it_finds_the_maximum_of_a_quadratic() -> None:
    mean, std = cross_entropy_method(closeness, noise(), elites=20)
    torch.testing.assert_close(mean, GOAL, atol=0.01, rtol=0)
    assert mean.shape == std.shape == (2, 3, 2) and (std < 0.02).all()


def test_candidates_stay_within_the_bounds() -> None:
    """A maximum outside the bounds is sought at the bounds."""
    seen = []

    def score(actions: torch.Tensor) -> torch.Tensor:
        seen.append(actions)
        return actions.sum((0, 3))

    mean, _ = cross_entropy_method(score, noise(), elites=10)
    assert torch.stack(seen).abs().max() == 1.0 and (mean > 0.95).all()


def test_environments_do_not_influence_each_other() -> None:
    """Neither another environment's noise nor its scores change a plan."""
    given = noise()
    whole, _ = cross_entropy_method(closeness, given, elites=20)
    given[:, :, 0] *= -0.5

    def other(actions: torch.Tensor) -> torch.Tensor:
        return torch.cat([100 * actions[:, :1].sum((0, 3)), closeness(actions)[1:]])

    changed, _ = cross_entropy_method(other, given, elites=20)
    assert torch.equal(whole[:, 1:], changed[:, 1:]) and not torch.equal(whole[:, 0], changed[:, 0])


def test_one_round_is_the_mean_and_deviation_of_the_best() -> None:
    given = noise(rounds=1)
    mean, std = cross_entropy_method(closeness, given, elites=7, init_std=0.5)
    candidates = (0.5 * given[0]).clamp(-1, 1)
    for b in range(3):
        best = closeness(candidates)[b].argsort(descending=True)[:7]
        torch.testing.assert_close(mean[:, b], candidates[:, b, best].mean(1))
        torch.testing.assert_close(std[:, b], (candidates[:, b, best].var(1, correction=0) + 1e-6).sqrt())
