"""The one place that steps training environments: autoreset, truncation, memory state, episode statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ludus.data import collector_state
from ludus.data.episodes import Episodes
from ludus.data.finite import bad_action, check_rollout, is_finite
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.data.rollout import Ends, Rollout
from ludus.data.rollout_arrays import RolloutArrays
from ludus.errors import EnvironmentFailed
from ludus.types import Acted, Array, State, StepResult, Tree, tree_index, tree_leaves, tree_map

if TYPE_CHECKING:
    from ludus.envs.vector import VectorEnv


class Acts(Protocol):
    """The part of a behaviour that the collector needs."""

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""

    def act(self, obs_B: Tree, state: Tree, first_B: Array) -> Acted:
        """Actions for one step."""


class Collector:
    """Steps one vector environment; holds memory, open episodes and statistics from rollout to rollout."""

    def __init__(
        self,
        env: VectorEnv,
        seeds: list[int],
        *,
        normalizer: ObservationNormalizer | None = None,
        reward_normalizer: RewardNormalizer | None = None,
        will_checkpoint: bool = False,
    ) -> None:
        self.will_checkpoint = will_checkpoint
        self.normalizer, self.reward_normalizer = normalizer, reward_normalizer
        self.episodes = Episodes()
        self.steps = 0
        self.under_way = 0
        """Steps of each environment in the rollout that is being collected."""
        self._storage: RolloutArrays | None = None
        self.switch(env, seeds)

    def switch(self, env: VectorEnv, seeds: list[int]) -> None:
        """Start over in other environments of the same spaces."""
        self.env, self.num_envs = env, env.num_envs
        self._storage = None
        if self.will_checkpoint:
            env.choose_snapshot_method()  # before the first reset: `replay` has to record the episode from its start
        self.barrier_seeds = seeds
        self._begin(tree_map(np.array, env.reset(seeds)))

    def _begin(self, obs: Tree) -> None:
        self.newest_obs = obs
        """[B, ...], not normalised."""
        self.first = np.ones(self.num_envs, bool)
        self.state: Tree = None
        self.episodes.begin(self.num_envs)
        if self.reward_normalizer is not None:
            self.reward_normalizer.cut()

    def collect(self, behaviour: Acts, steps: int) -> Rollout:
        """`steps` steps of every environment; the next call overwrites the arrays."""
        if self._storage is None or len(self._storage.reward) < steps:
            self._storage = RolloutArrays(self.env, steps, self.normalizer)
        store = self._storage
        if self.state is None:
            self.state = behaviour.initial_state(self.num_envs)
        start_state = state = self.state
        first = self.first
        obs = self._put(store, 0, self.newest_obs)
        ends: list[tuple[Array, ...]] = []
        extras: list[dict[str, Array]] = []
        store.first[0] = first
        for t in range(steps):
            acted, result = self._step(behaviour, obs, state, first, t)
            state, first = acted.state, result.done
            store.action[t], store.reward[t] = acted.action, result.reward
            if acted.extras:
                extras.append(acted.extras)
            store.terminated[t], store.truncated[t], store.first[t + 1] = result.terminated, result.truncated, first
            store.broken[t] = False if result.broken is None else result.broken
            self.episodes.open_return += result.raw_reward
            self.episodes.open_length += 1
            if (ended := first.nonzero()[0]).size:
                ends.append(self._end_episodes(t, result, ended, state))
            obs = self._put(store, t + 1, result.obs)
            self.under_way = t + 1
        self.state, self.first, self.under_way = state, first, 0
        self.newest_obs = tree_map(np.copy, store.raw_rows[steps])
        check_rollout(self.env.id, store.columns(steps))
        rollout = self._rollout(store, steps, start_state, ends, extras)
        self.steps += steps
        return rollout

    def _step(self, behaviour: Acts, obs: Tree, state: Tree, first: Array, t: int) -> tuple[Acted, StepResult]:
        """The decision of the behaviour and the answer of the environments."""
        acted = self._decide(behaviour, obs, state, first, t)
        return acted, self.env.step(acted.env_action)

    def _decide(self, behaviour: Acts, obs: Tree, state: Tree, first: Array, t: int) -> Acted:
        acted = behaviour.act(obs, state, first)
        if acted.env_action.dtype.kind == "f" and not np.isfinite(acted.env_action).all():
            if t and self._storage is not None:
                check_rollout(self.env.id, self._storage.columns(t))  # a bad observation is the cause of a bad action
            raise bad_action(self.env.id, acted.env_action)
        return acted

    def _put(self, store: RolloutArrays, t: int, raw_obs: Tree) -> Tree:
        tree_map(np.copyto, store.raw_rows[t], raw_obs)
        if self.normalizer is not None:
            tree_map(np.copyto, store.obs_rows[t], self.normalizer.apply(raw_obs))
        return store.obs_rows[t]

    def _end_episodes(self, t: int, result: StepResult, ended: Array, state: Tree) -> tuple[Any, ...]:
        """Count the finished episodes; returns what `Ends` holds of them."""
        broken = result.broken
        self.episodes.end(result.over, broken)
        assert result.final_obs is not None, "a finished episode without its final observation"
        bootstrap = result.truncated & ~result.terminated
        if broken is not None:
            bootstrap &= ~broken
        rows = tree_index((bootstrap, result.final_obs, state), ended)
        return np.full(len(ended), t), ended, *rows

    def _ends(self, ends: list[tuple[Any, ...]]) -> Ends | None:
        if not ends:
            return None
        t, b, bootstrap, obs, state = tree_map(_concatenate, *ends)
        if not all(map(is_finite, tree_leaves(obs))):
            raise EnvironmentFailed(self.env.id, "a final observation is not finite", "check the environment")
        seen = obs if self.normalizer is None else self.normalizer.apply(obs)
        return Ends(t=t, b=b, obs=seen, raw_obs=obs, state=state, bootstrap=bootstrap)

    def _rollout(self, store: RolloutArrays, steps: int, state: Tree, ends: list[Any], extras: list[Any]) -> Rollout:
        reward, raw_obs = store.reward[:steps], tree_index(store.raw, slice(steps + 1))
        if self.reward_normalizer is not None:
            reward = self.reward_normalizer.apply(reward, store.first[1 : steps + 1])
        rollout = Rollout(
            obs=tree_index(store.obs, slice(steps + 1)),
            action=store.action[:steps],
            reward=reward,
            terminated=store.terminated[:steps],
            truncated=store.truncated[:steps],
            first=store.first[: steps + 1],
            state=state,
            last_state=self.state,
            ends=self._ends(ends),
            raw_obs=raw_obs,
            raw_reward=store.reward[:steps],
            start=self.steps,
            extras={name: np.stack([step[name] for step in extras]) for name in (extras[0] if extras else ())},
            broken=store.broken[:steps] if store.broken[:steps].any() else None,
        )
        if self.normalizer is not None:  # after use: one rollout sees one set of statistics
            self.normalizer.update(tree_map(lambda leaf: leaf[:steps].reshape(-1, *leaf.shape[2:]), raw_obs))
        return rollout

    def statistics(self) -> dict[str, float]:
        """Returns and lengths of the newest finished episodes, raw rewards; of several ranks, of all their episodes."""
        return self.episodes.statistics()

    # ---- saving ----------------------------------------------------------------------------------

    @property
    def resets_at_checkpoints(self) -> bool:
        """Whether the environments have no snapshots, so that they are reset at every checkpoint and resume."""
        return self.env.choose_snapshot_method() in ("barrier", "none")

    def barrier(self, seeds: list[int]) -> None:
        """Reset all environments; the open episodes count as truncated, where the last rollout bootstrapped."""
        self.barrier_seeds = seeds
        self._begin(tree_map(np.array, self.env.reset(seeds)))

    def state_dict(self) -> State:
        """Environments, memory, open episodes and statistics."""
        return collector_state.state_of(self)

    def load_state_dict(self, state: State) -> None:
        """Go on exactly where the state was taken."""
        collector_state.load(self, state)

    def close(self) -> None:
        """Shut the environments down."""
        self.env.close()


def _concatenate(*leaves: Any) -> Any:
    if isinstance(leaves[0], np.ndarray):
        return np.concatenate(leaves)
    import torch

    return torch.cat(leaves)
