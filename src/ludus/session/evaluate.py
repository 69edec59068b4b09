"""Many episodes with a checkpoint, as an evaluation during training would play them."""

from __future__ import annotations

import time

from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.envs.make import make_vector
from ludus.orchestration.evaluator import MOST_ENVS, EvalResult
from ludus.play import episodes as play_episodes
from ludus.seeding import Streams
from ludus.session.player import policy_in, run_config, seeded


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
