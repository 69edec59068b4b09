"""A trained policy as a function, `policy(obs) -> action`: for robots, games and notebooks; needs no environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ludus.errors import ConfigError
from ludus.types import Array, Spaces, Tree, space_tree, tree_index, tree_leaves, tree_map, tree_paths

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.archive.store import RunFolder
    from ludus.config.schema import ExperimentConfig
    from ludus.envs.deployment import Deployment, Pipeline
    from ludus.envs.recipe import WrapperCall
    from ludus.session.player import Player


class Policy:
    """Calls like a function of observations; carries memory, normaliser, frame stack and clipping along.

    `policy(obs)` takes what the environment gives and returns what it takes: one observation, or a batch of them (one
    per environment, always the same number). Call `reset()` when an episode ends; of a batch `reset(done)`.
    """

    def __init__(
        self, config: ExperimentConfig, cut: Deployment, player: Player, *, deterministic: bool, name: str = "policy"
    ) -> None:
        from ludus.play import policy_of

        self.config, self.name, self.deterministic = config, name, deterministic
        self.observation_space: gym.Space = cut.observation
        self.action_space: gym.Space = cut.action
        self.info: Mapping[str, Array] = {}
        """Facts about the newest decision (`value`, `probabilities`, `q`, ...), one row per environment."""
        self.player = player
        """The network and its normaliser."""
        self._cut, self._act = cut, policy_of(player.algorithm, player.normalizer, deterministic=deterministic)
        self._size, self._state = 0, None
        self._pipelines: list[Pipeline] = []
        self._last: list[Array | None] = []
        self._first = np.ones(0, bool)

    def __call__(self, obs: Tree) -> Any:
        """The action for one observation, or the actions for a batch."""
        batch, single = self._as_batch(obs)
        if self._size not in (0, size := len(tree_leaves(batch)[0])):
            problem = f"{size} observations after {self._size}"
            raise ConfigError("policy(obs)", problem, "give one for every environment, or call policy.reset() first")
        if not self._size:
            self._start(size)
        rows = [self._pipelines[i].observe(tree_index(batch, i), self._last[i]) for i in range(size)]
        result = self._act(tree_map(lambda *parts: np.stack(parts), *rows), self._state, self._first)
        self._state, self.info, self._last = result.state, result.info, list(result.action)
        self._first = np.zeros(size, bool)
        actions = [pipeline.act(action) for pipeline, action in zip(self._pipelines, result.action, strict=True)]
        return actions[0] if single else np.stack(actions)

    @property
    def network_spaces(self) -> Spaces:
        """Observations and actions as the network sees them, behind the wrappers that the policy carries along."""
        from ludus.envs.deployment import Pipeline

        border = Pipeline(self.config.environment, self._cut)
        return Spaces(border.observation_space, border.action_space)

    @property
    def wrappers(self) -> list[WrapperCall]:
        """The wrappers that the policy carries along, the innermost first."""
        from ludus.envs.deployment import carried_wrappers

        return carried_wrappers(self.config.environment, self._cut)

    def reset(self, done: Array | bool | None = None) -> None:
        """Begin new episodes: of all environments, or of those where `done` is true."""
        if done is None or not self._size:
            self._size, self._state = 0, None
            return
        if np.shape(done) not in ((), (self._size,)):
            problem = f"{np.shape(done)} is the shape of done, there are {self._size} environments"
            raise ConfigError("policy.reset(done)", problem, "give one truth for every environment")
        for i in np.flatnonzero(np.broadcast_to(done, self._size)):
            self._first[i], self._last[i] = True, None

    def _start(self, size: int) -> None:
        from ludus.envs.deployment import Pipeline

        self._size, self._first = size, np.ones(size, bool)
        self._pipelines = [Pipeline(self.config.environment, self._cut) for _ in range(size)]
        self._last = [None] * size

    def _as_batch(self, obs: Tree) -> tuple[Tree, bool]:
        """Observations as arrays [B, ...], and whether there is only the one."""
        spaces = space_tree(self.observation_space)
        try:
            arrays = tree_map(_array, spaces, _like(spaces, obs))
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise self._misfit(f"does not fit {self.observation_space} ({error})") from None
        shapes = [
            (np.shape(leaf), space.shape) for leaf, space in zip(*map(tree_leaves, (arrays, spaces)), strict=True)
        ]
        if all(shape == own for shape, own in shapes):
            return tree_map(lambda leaf: leaf[None], arrays), True
        if all(shape[1:] == own and any(shape[:1]) for shape, own in shapes) and len({s[0] for s, _ in shapes}) == 1:
            return arrays, False
        names = tree_paths(spaces)
        wrong = next(f"{name or 'obs'} has shape {s}" for name, (s, own) in zip(names, shapes, strict=True) if s != own)
        raise self._misfit(f"{wrong}, the environment's observations are {self.observation_space}")

    def _misfit(self, problem: str) -> ConfigError:
        return ConfigError("policy(obs)", problem, "give it observations of ludus.make_env(run)")

    def __repr__(self) -> str:
        habit = "greedy" if self.deterministic else "sampling"
        return f"<Policy {self.name}, {habit}: {self.observation_space} -> {self.action_space}>"


def _like(spaces: Tree, obs: Tree) -> Tree:
    """Observations with the structure of their spaces: mappings as dicts without further keys, sequences as tuples."""
    if isinstance(spaces, dict):
        return {key: _like(space, obs[key]) for key, space in spaces.items()}
    if isinstance(spaces, tuple):
        return tuple(_like(space, part) for space, part in zip(spaces, obs, strict=True))
    return obs


def _array(space: gym.Space, value: object) -> Array:
    """An observation in the type of its space; one that the type cannot hold, such as a float image, is refused."""
    from gymnasium import spaces

    with np.errstate(invalid="ignore", over="ignore"):
        found = np.asarray(value, space.dtype)
    if not np.isfinite(found).all():
        raise ValueError("a number is not finite")
    if found.dtype.kind != "f" and not np.array_equal(found, np.asarray(value)):
        raise ValueError(f"a number is no {space.dtype}")
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):  # -1 would be read from the end of a table
        place, count = found - space.start, space.n if isinstance(space, spaces.Discrete) else space.nvec
        if not ((place >= 0) & (place < count)).all():
            raise ValueError("a number is none of its choices")
    return found


def load_policy(
    run: str | Path = "@last",
    *,
    checkpoint: str | None = None,
    deterministic: bool | None = None,
    seed: int | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path = "runs",
) -> Policy:
    """The policy of a run: `@last`, `@best`, an id or its folder; `checkpoint` is best, last or step=N.

    It acts as in evaluation unless `deterministic` says how; `seed` is that of sampled actions. `plugins` are files and
    modules instead of those that the run was made with.
    """
    from ludus.archive.run_plugins import load_for
    from ludus.archive.store import find_run
    from ludus.session.player import checkpoint_name

    folder = find_run(run, runs_dir)
    load_for(folder, plugins)
    return policy_of_run(folder, checkpoint_name(folder, checkpoint), deterministic, seed)


def policy_of_run(folder: RunFolder, step: str, deterministic: bool | None, seed: int | None) -> Policy:
    """The policy of one checkpoint."""
    from ludus.archive import checkpoint
    from ludus.envs.deployment import Pipeline
    from ludus.play import greedy
    from ludus.session.border import cut_of
    from ludus.session.player import player_of, saved_config, seeded

    config = seeded(saved_config(folder), seed)
    cut = cut_of(folder, config)
    border = Pipeline(config.environment, cut)
    player = player_of(
        config, checkpoint.find(folder.path, step), Spaces(border.observation_space, border.action_space)
    )
    habit = greedy(player.algorithm, deterministic, config.training.evaluation.deterministic)
    return Policy(config, cut, player, deterministic=habit, name=f"{folder.id}/{step}")
