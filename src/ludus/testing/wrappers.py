"""The contract of environment wrappers: by registered name and settings, as a config has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ludus.config.schema import Environment
from ludus.envs.make import make_vector
from ludus.envs.snapshots import UNSAVED
from ludus.envs.vector import VectorEnv
from ludus.types import Array, tree_index, tree_leaves, tree_map

SEEDS = (1, 2)


class WrapperContract:
    """Inherit and set `wrapper`, its `id` and settings, and `environment`, the fields of what it wraps."""

    wrapper: Mapping[str, object]
    environment: Mapping[str, object] = {"id": "CartPole-v1"}

    def _made(self, vectorization: str = "sync") -> VectorEnv:
        fields = {"num_envs": 2, "max_episode_steps": 20, "vectorization": vectorization, "wrappers": [self.wrapper]}
        return make_vector(Environment.model_validate({**fields, **self.environment}))

    def _played(self, env: VectorEnv, steps: int, seed: int = 0) -> list[Array]:
        """Arrays of the next steps, with actions that depend on the seed; checks that observations fit the space."""
        env.action_space.seed(seed)
        shown: list[Array] = []
        for _ in range(steps):
            result = env.step(np.stack([np.asarray(env.action_space.sample()) for _ in SEEDS]))
            last = tree_index(result.obs if result.final_obs is None else result.final_obs, result.done)
            assert np.isfinite(result.reward).all()
            for obs, count in ((result.obs, len(SEEDS)), (last, result.done.sum())):
                assert all(env.observation_space.contains(tree_index(obs, b)) for b in range(count)), obs
            shown += tree_leaves(tree_map(np.array, (result.obs, last, result.reward, result.raw_reward, result.done)))
        return shown

    def test_seeds_decide_everything_on_every_backend(self) -> None:
        """The same seeds and actions give the same steps, on the backend that `auto` picks too."""
        found = []
        for backend in ("sync", "sync", "auto"):
            with self._made(backend) as env:
                found.append([*tree_leaves(tree_map(np.array, env.reset(SEEDS))), *self._played(env, 45)])
        for one, *others in zip(*found, strict=True):
            assert all(np.array_equal(one, other) for other in others)

    def test_a_snapshot_holds_its_state(self) -> None:
        """Other environments that restore it give the same steps from there on."""
        with self._made() as env, self._made() as other:
            if env.choose_snapshot_method() not in UNSAVED:
                env.reset(SEEDS)
                self._played(env, 7)
                other.restore(env.snapshot())
                for ours, theirs in zip(*(self._played(one, 30, seed=1) for one in (env, other)), strict=True):
                    np.testing.assert_array_equal(ours, theirs)
