"""The cross-entropy method and path integral control on functions whose maximum is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.math.planning import cross_entropy_method, moved_on, path_integral

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


# ---- path integral control ---------------------------------------------------------------------------

HOW: dict[str, Any] = {"elites": 20, "max_std": 2.0, "min_std": 0.05, "temperature": 0.5}
BLANK = torch.zeros(2, 3, 2)


def test_path_integral_control_finds_the_maximum_of_a_quadratic() -> None:
    found = path_integral(lambda a: 40 * closeness(a), noise(), BLANK, **HOW)
    torch.testing.assert_close(found.mean, GOAL, atol=0.03, rtol=0)
    assert (found.std >= 0.05).all() and (found.std < 0.1).all()
    torch.testing.assert_close(found.value, (found.weight * 40 * closeness(found.best)).sum(1))


def test_a_better_sequence_weighs_exponentially_more() -> None:
    """One round written out; a temperature of zero is the cross-entropy method."""
    given = noise(rounds=1)
    found = path_integral(closeness, given, BLANK, **{**HOW, "temperature": 3.0})
    candidates = (2 * given[0]).clamp(-1, 1)
    for b in range(3):
        scores, order = closeness(candidates)[b].sort(descending=True)
        best = candidates[:, b, order[:20]]
        weight = (3.0 * (scores[:20] - scores[0])).exp()
        weight = weight / weight.sum()
        torch.testing.assert_close(found.weight[b], weight)
        mean = (best * weight[None, :, None]).sum(1)
        torch.testing.assert_close(found.mean[:, b], mean)
        spread = (weight[None, :, None] * (best - mean.unsqueeze(1)).square()).sum(1).sqrt()
        torch.testing.assert_close(found.std[:, b], spread.clamp(0.05, 2.0))
    plain = path_integral(closeness, given, BLANK, **{**HOW, "temperature": 0.0})
    mean, _ = cross_entropy_method(closeness, given, elites=20, init_std=2.0)
    torch.testing.assert_close(plain.mean, mean)


def test_the_search_begins_where_it_is_told() -> None:
    """With little noise, one round finds a goal that it begins at and does not find it from afar."""
    little = {**HOW, "max_std": 0.06}
    near, far = (path_integral(closeness, noise(rounds=1), start, **little).mean for start in (GOAL, BLANK))
    assert (near - GOAL).abs().max() < 0.06 < 0.5 < (far - GOAL).abs().max()


def test_proposals_compete_in_every_round() -> None:
    """A perfect one is the best sequence found, and pulls the mean; bad ones change nothing."""
    perfect, bad = GOAL.unsqueeze(2), torch.full((2, 3, 4, 2), -1.0)
    given = noise(rounds=3, candidates=30)
    helped, misled, alone = (
        path_integral(closeness, given, BLANK, **{**HOW, "elites": 5, "temperature": 9.0}, proposals=proposals)
        for proposals in (perfect, bad, None)
    )
    assert torch.equal(helped.best[:, :, 0], GOAL) and not torch.equal(alone.best[:, :, 0], GOAL)
    assert (helped.value > alone.value).all()
    assert torch.equal(misled.mean, alone.mean)


def test_momentum_keeps_a_share_of_the_old_mean() -> None:
    given, start = noise(rounds=1), torch.full_like(BLANK, 0.5)
    new, mixed = (path_integral(closeness, given, start, **HOW, momentum=share).mean for share in (0.0, 0.25))
    torch.testing.assert_close(mixed, 0.75 * new + 0.25 * start)


def test_plans_for_many_environments_equal_plans_for_each() -> None:
    given, start = noise(), 0.3 * GOAL
    whole = path_integral(closeness, given, start, **HOW)
    for b in range(3):
        at = slice(b, b + 1)
        own = path_integral(
            lambda a, at=at: -(a - GOAL[:, at].unsqueeze(2)).square().sum((0, 3)), given[:, :, at], start[:, at], **HOW
        )
        assert torch.equal(own.mean[:, 0], whole.mean[:, b]) and torch.equal(own.weight[0], whole.weight[b])


@pytest.mark.parametrize("horizon", [1, 4])
def test_the_next_plan_begins_one_step_later_and_a_first_step_with_nothing(horizon: int) -> None:
    plan = torch.arange(1.0, 2 * horizon * 3 + 1).view(2, horizon, 3)
    found = moved_on(plan, torch.tensor([False, True]))
    assert torch.equal(found[0, :-1], plan[0, 1:]) and not found[0, -1].any() and not found[1].any()
