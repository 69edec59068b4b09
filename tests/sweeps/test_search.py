"""The search by itself: it learns, and it depends on nothing but what is known."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from ludus.reports.statistics import stratified_bootstrap
from ludus.sweeps.search import Judged, Search
from ludus.sweeps.store import Trial
from sweeps.toy import spec_of

SPACE = ("algorithm.lr=loguniform(1e-5,1e-1)", "algorithm.clip=uniform(0.05,0.4)", "algorithm.gae_lambda=uniform(0,1)")


def toy(latent: Any) -> float:
    """Best, with 0, at a learning rate of 3e-3, a clip of 0.2 and a lambda of 0.9."""
    rate = (math.log10(latent["algorithm.lr"]) + 2.5) ** 2
    return -rate - 20 * (latent["algorithm.clip"] - 0.2) ** 2 - 4 * (latent["algorithm.gae_lambda"] - 0.9) ** 2


def best_of(method: str, sampler: str, seed: int, trials: int = 30) -> float:
    """The best value that a search finds."""
    search = Search(spec_of(*SPACE, method=method, sampler=sampler, trials=trials, seed=seed))
    known: list[Judged] = []
    for number in range(trials):
        told = search.told(known)
        latent = search.ask(known)
        known.append(Judged(Trial(number, latent, told), "complete", toy(latent)))
    return max(one.value or -math.inf for one in known)


def test_tpe_beats_random_search_over_twenty_repeats() -> None:
    gains = [best_of("bayes", "tpe", seed) - best_of("random", "tpe", seed) for seed in range(20)]
    low, high = stratified_bootstrap([gains], lambda values, axis: values.mean(axis=axis))
    print(f"TPE - random, best of 30: {statistics.fmean(gains):.3f}, 95 % interval {low:.3f} to {high:.3f}")
    assert low > 0


def test_the_seed_of_a_search_decides_it() -> None:
    first, same, other = (Search(spec_of(*SPACE, method="random", trials=5, seed=seed)).ask([]) for seed in (1, 1, 2))
    assert first == same != other


@pytest.mark.parametrize("state", ["open", "failed", "pruned"])
def test_a_trial_without_a_value_does_no_harm(state: Any) -> None:
    search = Search(spec_of(*SPACE, method="bayes", trials=20))
    known: list[Judged] = [Judged(Trial(0, {}), "complete", 5.0)]
    for number in range(1, 14):
        latent = search.ask(known)
        bad = number % 3 == 0
        known.append(
            Judged(Trial(number, latent), state if bad else "complete", None if bad else toy(latent), {1: 0.0})
        )
    assert set(search.ask(known)) == set(search.distributions)
