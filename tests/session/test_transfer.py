"""Weights that were taken over are the ones that act."""

from __future__ import annotations

import numpy as np

from algorithms.test_world_models import phased
from ludus.config.schema import Experiment
from ludus.experiment import build
from ludus.session.loading import transfer
from support import close, config, run


def test_a_warm_started_policy_acts_by_the_weights_it_took_over() -> None:
    """Small policies act on copies of their weights, made before the others came."""
    trained, fresh = run(config("ppo")), build(config("ppo"))
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)

    def actions(one):
        return one.algorithm.act(obs, (), np.ones(64, bool), deterministic=True).action

    before = actions(fresh)
    transfer(fresh, trained.state_dict())
    assert (actions(fresh) == actions(trained)).all() and (before != actions(fresh)).any()
    close(fresh)


def test_a_warm_start_of_world_models_takes_over_the_evolved_controller() -> None:
    """With the standard of its features, and with a random stream of its own."""
    trained = run(phased(controller={"standardize": True}))
    fresh = build(phased(controller={"standardize": True}).model_copy(update={"experiment": Experiment(seed=7)}))
    ours, theirs = fresh.algorithm.evolution, trained.algorithm.evolution
    transfer(fresh, trained.state_dict())
    assert ours.generation == theirs.generation > 0 and theirs.mean.any()
    assert np.array_equal(ours.mean, theirs.mean) and ours.sigma == theirs.sigma
    obs = np.random.default_rng(0).integers(256, size=(8, 1, 12, 12), dtype=np.uint8)
    acted = [
        one.algorithm.behaviour.actor(obs, one.algorithm.initial_state(8), np.ones(8, bool))[0]("actor")
        for one in (trained, fresh)
    ]
    assert np.array_equal(*acted) and not np.array_equal(ours.ask(), theirs.ask())
    other = build(phased(controller={"hidden": 3}))
    assert transfer(other, trained.state_dict()).missing == ["evolution"]
    for one in (fresh, other):
        close(one)
