"""Weights that were taken over are the ones that act."""

from __future__ import annotations

import numpy as np

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
