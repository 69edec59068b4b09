"""The one place that steps training environments: autoreset, truncation, memory state, episode statistics."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.data.rollout import Finals, Raw, Rollout
from ludus.errors import EnvironmentFailed
from ludus.types import Acted, Array, Tree, tree_map

if TYPE_CHECKING:
    from ludus.envs.vector import StepResult, VectorEnv

WINDOW = 100
"""Episodes in the running statistics."""


class Acts(Protocol):
    """What the collector asks of a behaviour."""

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""

    def act(self, obs_B: Array, state: Tree, first_B: Array) -> Acted:
        """Actions for one step."""


class Told(Protocol):
    """What environments tell about their newest step besides its result."""

    raw_reward: Array
    broken: Array | None

    def over(self, done: Array) -> Array:
        """Of the episodes that are done, those that count as over."""


class Collector:
    """Steps one vector environment and keeps what has to survive from rollout to rollout."""

    def __init__(
        self,
        env: VectorEnv,
        seeds: list[int],
        *,
        normalizer: ObservationNormalizer | None = None,
        reward_normalizer: RewardNormalizer | None = None,
        savable: bool = False,
    ) -> None:
        self.savable = savable
        self.normalizer, self.reward_normalizer = normalizer, reward_normalizer
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.episodes = 0
        self.best_return = -np.inf
        self.keep_raw = False
        """Whether rollouts carry what buffers store."""
        self.steps = 0
        self._storage: _Storage | None = None
        self.switch(env, seeds)

    def switch(self, env: VectorEnv, seeds: list[int]) -> None:
        """Start over in other environments of the same spaces."""
        self.env, self.num_envs = env, env.num_envs
        self._told: Told = env
        self._storage = None
        if self.savable:
            env.choose_snapshot_method()  # before the first reset: `replay` must see an episode from its beginning
        self._barrier_seeds = seeds
        self._begin(np.array(env.reset(seeds)))

    def _begin(self, obs: Array) -> None:
        self._raw_obs = obs
        self.first = np.ones(self.num_envs, bool)
        self.state: Tree = None
        self._return, self._length = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        if self.reward_normalizer is not None:
            self.reward_normalizer.cut()

    @property
    def newest_obs(self) -> Array:
        """[B, ...]: what the environments showed last, not normalised."""
        return self._raw_obs

    def collect(self, behaviour: Acts, steps: int) -> Rollout:
        """`steps` steps of every environment; the arrays are overwritten by the next call."""
        store = self._store(steps)
        if self.state is None:
            self.state = behaviour.initial_state(self.num_envs)
        start_state = state = self.state
        first = self.first
        obs = self._put(store, 0, self._raw_obs)
        finals: list[tuple[int, Array, Array, Tree]] = []
        ends: list[tuple[int, Array, Array]] = []
        extras: list[dict[str, Array]] = []
        store.first[0] = first
        for t in range(steps):
            acted, result = self._step(behaviour, obs, state, first, t)
            state, first = acted.state, result.terminated | result.truncated
            store.action[t], store.reward[t] = acted.action, result.reward
            if acted.extras:
                extras.append(acted.extras)
            store.terminated[t], store.truncated[t], store.first[t + 1] = result.terminated, result.truncated, first
            store.broken[t] = False if self._told.broken is None else self._told.broken
            self._return += self._told.raw_reward
            self._length += 1
            if first.any():
                finals += self._end_episodes(t, result, first, state)
                if self.keep_raw:
                    ended = np.flatnonzero(first)
                    assert result.final_obs is not None
                    ends.append((t, ended, result.final_obs[ended]))
            obs = self._put(store, t + 1, result.obs)
        self.state, self.first = state, first
        self._raw_obs = store.raw[steps].copy()
        self._check_finite(store, steps)
        raw = self._raw(store, steps, ends) if self.keep_raw else None
        self.steps += steps
        return self._rollout(store, steps, start_state, finals, raw, extras)

    def _step(self, behaviour: Acts, obs: Array, state: Tree, first: Array, t: int) -> tuple[Acted, StepResult]:
        """What the behaviour decided and what the environments made of it."""
        acted = self._decide(behaviour, obs, state, first, t)
        return acted, self.env.step(acted.env_action)

    def _decide(self, behaviour: Acts, obs: Array, state: Tree, first: Array, t: int) -> Acted:
        acted = behaviour.act(obs, state, first)
        if acted.env_action.dtype.kind == "f" and not np.isfinite(acted.env_action).all():
            self._name_bad_action(t, acted.env_action)
        return acted

    def _put(self, store: _Storage, t: int, raw_obs: Array) -> Array:
        store.raw[t] = raw_obs
        if self.normalizer is None:
            return store.raw[t]
        store.obs[t] = self.normalizer.apply(raw_obs)
        return store.obs[t]

    def _end_episodes(
        self, t: int, result: StepResult, done: Array, state: Tree
    ) -> list[tuple[int, Array, Array, Tree]]:
        broken = self._told.broken
        for b in np.flatnonzero(self._told.over(done)):
            if broken is None or not broken[b]:
                self.returns.append(float(self._return[b]))
                self.lengths.append(int(self._length[b]))
                self.episodes, self.best_return = self.episodes + 1, max(self.best_return, self.returns[-1])
            self._return[b], self._length[b] = 0.0, 0
        goes_on = result.truncated & ~result.terminated
        cut = np.flatnonzero(goes_on if broken is None else goes_on & ~broken)
        if not len(cut):
            return []
        assert result.final_obs is not None, "a finished episode without its final observation"
        return [(t, cut, result.final_obs[cut].copy(), tree_map(lambda leaf: leaf[cut], state))]

    def _raw(self, store: _Storage, steps: int, ends: list[tuple[int, Array, Array]]) -> Raw:
        shape = store.raw.shape[2:]
        return Raw(
            obs=store.raw[: steps + 1],
            reward=store.reward[:steps],
            t=np.concatenate([np.full(len(b), t) for t, b, _ in ends]) if ends else np.zeros(0, np.int64),
            b=np.concatenate([b for _, b, _ in ends]) if ends else np.zeros(0, np.int64),
            final_obs=np.concatenate([obs for *_, obs in ends]) if ends else np.zeros((0, *shape), store.raw.dtype),
            start=self.steps,
        )

    def _rollout(
        self,
        store: _Storage,
        steps: int,
        start_state: Tree,
        finals: list[Any],
        raw: Raw | None,
        extras: list[dict[str, Array]],
    ) -> Rollout:
        reward = store.reward[:steps]
        done = store.first[1 : steps + 1]
        if self.reward_normalizer is not None:
            reward = self.reward_normalizer.apply(reward, done)
        rollout = Rollout(
            obs=(store.raw if self.normalizer is None else store.obs)[: steps + 1],
            action=store.action[:steps],
            reward=reward,
            terminated=store.terminated[:steps],
            truncated=store.truncated[:steps],
            first=store.first[: steps + 1],
            state=start_state,
            last_state=self.state,
            finals=self._stack(finals),
            raw=raw,
            extras={name: np.stack([step[name] for step in extras]) for name in (extras[0] if extras else ())},
            broken=store.broken[:steps] if store.broken[:steps].any() else None,
        )
        if self.normalizer is not None:  # after use: one rollout sees one set of statistics
            self.normalizer.update(store.raw[:steps].reshape(-1, *store.raw.shape[2:]))
        return rollout

    def _stack(self, finals: list[Any]) -> Finals | None:
        if not finals:
            return None
        obs = np.concatenate([entry[2] for entry in finals])
        if not _finite(obs):
            raise EnvironmentFailed(self.env.id, "a final observation is not finite", "check the environment")
        return Finals(
            t=np.concatenate([np.full(len(entry[1]), entry[0]) for entry in finals]),
            b=np.concatenate([entry[1] for entry in finals]),
            obs=obs if self.normalizer is None else self.normalizer.apply(obs),
            state=tree_map(_concatenate, *[entry[3] for entry in finals]),
        )

    def _check_finite(self, store: _Storage, steps: int) -> None:
        for name, values in (("reward", store.reward[:steps]), ("observation", store.raw[1 : steps + 1])):
            if not _finite(values):
                bad = ~np.isfinite(values).reshape(steps, self.num_envs, -1).all(-1)
                t, b = (int(i) for i in np.argwhere(bad)[0])
                problem = f"{name} is not finite at step {t} of this rollout"
                raise EnvironmentFailed(f"{self.env.id}: environment {b}", problem, "check the environment")

    def _name_bad_action(self, t: int, action: Array) -> None:
        if t and self._storage is not None:
            self._check_finite(self._storage, t)  # a bad observation is the cause of a bad action
        b = int(np.flatnonzero(~np.isfinite(action).reshape(self.num_envs, -1).all(-1))[0])
        where = f"{self.env.id}: environment {b}"
        raise EnvironmentFailed(where, "the policy's action is not finite", "lower algorithm.lr or max_grad_norm")

    def _store(self, steps: int) -> _Storage:
        if self._storage is None or len(self._storage.reward) < steps:
            self._storage = _Storage(self.env, steps, normalized=self.normalizer is not None)
        return self._storage

    def statistics(self) -> dict[str, float]:
        """Returns and lengths of the newest finished episodes, raw rewards."""
        if not self.returns:
            return {}
        return {
            "roll/ep_rew/mean": float(np.mean(self.returns)),
            "roll/ep_rew/last": self.returns[-1],
            "roll/ep_rew/best": float(self.best_return),
            "roll/ep_len/mean": float(np.mean(self.lengths)),
            "roll/episodes": float(self.episodes),
        }

    # ---- saving ----------------------------------------------------------------------------------

    @property
    def at_a_barrier(self) -> bool:
        """Whether these environments can only be resumed by resetting them at every checkpoint, here and there."""
        return self.env.rung in ("barrier", "none")

    def barrier(self, seeds: list[int]) -> None:
        """Cut every episode: the last rollout already bootstrapped there, so that it counts as truncated."""
        self._barrier_seeds = seeds
        self._begin(np.array(self.env.reset(seeds)))

    def state_dict(self) -> dict[str, Any]:
        """Environments, memory, open episodes and statistics."""
        return {
            "rung": self.env.rung,
            "env": None if self.at_a_barrier else self.env.snapshot(),
            "barrier_seeds": self._barrier_seeds if self.at_a_barrier else None,
            "obs": self._raw_obs,
            "first": self.first,
            "memory": self.state,
            "return": self._return,
            "length": self._length,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "episodes": self.episodes,
            "best_return": float(self.best_return),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where the state was taken."""
        if state["env"] is None:
            self.barrier(state["barrier_seeds"])
        else:
            self.env.restore(state["env"])
            self._raw_obs, self.first, self.state = np.array(state["obs"]), np.array(state["first"]), state["memory"]
            self._return, self._length = np.array(state["return"]), np.array(state["length"])
        self.returns, self.lengths = deque(state["returns"], WINDOW), deque(state["lengths"], WINDOW)
        self.episodes, self.best_return, self.steps = state["episodes"], state["best_return"], state["steps"]

    def close(self) -> None:
        """Shut the environments down."""
        self.env.close()


class _Storage:
    """Preallocated arrays of one rollout."""

    def __init__(self, env: VectorEnv, steps: int, *, normalized: bool) -> None:
        space, batch = env.observation_space, env.num_envs
        shape, dtype = space.shape or (), space.dtype
        self.raw = np.zeros((steps + 1, batch, *shape), dtype)
        self.obs = np.zeros((steps + 1, batch, *shape), np.float32) if normalized else self.raw
        action = env.action_space
        floating = np.issubdtype(action.dtype, np.floating)
        self.action = np.zeros((steps, batch, *(action.shape or ())), np.float32 if floating else np.int64)
        self.reward = np.zeros((steps, batch), np.float32)
        self.terminated, self.truncated, self.broken = np.zeros((3, steps, batch), bool)
        self.first = np.zeros((steps + 1, batch), bool)


def _finite(values: Array) -> bool:
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def _concatenate(*leaves: Any) -> Any:
    if isinstance(leaves[0], np.ndarray):
        return np.concatenate(leaves)
    import torch

    return torch.cat(leaves)
