"""Episodes with a checkpoint, as an evaluation during training would play them: many, or one with every step."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.envs.make import make_vector
from ludus.orchestration.evaluator import MOST_ENVS, EvalResult
from ludus.play import episodes as play_episodes
from ludus.seeding import Streams
from ludus.session.player import policy_in, run_config, seeded
from ludus.types import Array, Tree, tree_index, tree_map


def evaluated(
    run: RunFolder, step: str, episodes: int, wish: bool | None, seed: int | None, env_id: str | None = None
) -> EvalResult:
    """The episodes of one checkpoint; the default seed is that of the run."""
    config = seeded(run_config(run, env_id), seed)
    start = time.monotonic()
    with make_vector(config.environment, num_envs=min(episodes, MOST_ENVS)) as env:
        act, habit = policy_in(config, run, step, env, wish)
        steps = play_episodes(act, env, Streams(config.experiment.seed).integers("evaluate", env.num_envs), episodes)
        env_steps = checkpoint.position(step)[0]
        return EvalResult.of(steps, env_steps=env_steps, start=start, deterministic=habit)


@dataclass(frozen=True, eq=False)
class PlayedEpisode:
    """One episode, step by step."""

    obs: Tree
    """[T, ...]: what the policy saw, before it was normalised."""
    action: Array
    """[T, ...]: as the environment took it."""
    reward: Array
    """[T]: raw, before any wrapper."""
    terminated: bool
    truncated: bool
    """How it ended."""

    @property
    def total(self) -> float:
        """Its return."""
        return float(self.reward.sum())

    def __len__(self) -> int:
        return len(self.reward)


def trajectory(
    run: RunFolder, step: str, wish: bool | None, seed: int | None, env_id: str | None = None
) -> PlayedEpisode:
    """One episode of a checkpoint: the first that an evaluation of one episode with this seed plays."""
    config = seeded(run_config(run, env_id), seed)
    with make_vector(config.environment, num_envs=1) as env:
        act, _ = policy_in(config, run, step, env, wish)
        steps = list(play_episodes(act, env, Streams(config.experiment.seed).integers("evaluate", 1), 1))
    rows = [tree_index((played.obs, played.action, played.reward), 0) for played in steps]
    obs, action, reward = tree_map(lambda *leaves: np.stack(leaves), *rows)
    return PlayedEpisode(obs, action, reward, bool(steps[-1].terminated[0]), bool(steps[-1].truncated[0]))
