"""Demonstrations: episodes of a checkpoint, a scripted expert or random actions, as a data set on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ludus.archive.store import RunFolder
from ludus.config.schema import Environment, ExperimentConfig
from ludus.data.datasets.minari import MinariData
from ludus.data.datasets.statistics import Episode
from ludus.data.datasets.write import append_episodes, write_dataset
from ludus.envs.make import make_vector
from ludus.envs.vector import VectorEnv
from ludus.errors import ConfigError
from ludus.play import Act, PlayedStep, random_policy
from ludus.play import episodes as play_episodes
from ludus.registry import EXPERTS, UnknownName
from ludus.seeding import Streams
from ludus.session.imagine import parts
from ludus.session.player import policy_in
from ludus.types import ActResult, Array, Spaces, Tree, tree_index, tree_map

MOST_ENVS = 8
"""Environments that are played at once: each holds an episode in memory."""


def record(
    config: ExperimentConfig,
    out: Path,
    episodes: int,
    *,
    run: RunFolder | None = None,
    step: str = "",
    policy: str = "",
    deterministic: bool | None = None,
    append: bool = False,
) -> tuple[MinariData, list[float]]:
    """Play and write; (the data set, returns of the new episodes). Either a checkpoint of a run or `policy` plays.

    Every episode begins with a seed of its own, which is written down: it can be played again.
    """
    if out.exists() and not append:
        raise ConfigError(f"--out {out}", "exists already", "name another folder, or add to it: --append")
    streams, played = Streams(config.experiment.seed), list[float]()
    with make_vector(config.environment, num_envs=min(episodes, MOST_ENVS)) as env:
        if run is not None:
            act, habit = policy_in(config, run, step, env, deterministic)
            name, facts = f"{config.algorithm.name} of {run.id}/{step}", {"deterministic": habit}
        else:
            act, name, facts = scripted(policy, config.environment, env, streams), policy, {}
        spaces = Spaces(env.observation_space, env.action_space)
        seeds = streams.integers("record", episodes)
        found = counted(played_episodes(act, env, seeds), played)
        write = append_episodes if append else write_dataset
        about: dict[str, Any] = {"environment": config.environment.model_dump(mode="json", exclude_defaults=True)}
        return write(out, spaces, found, policy=name, seed=config.experiment.seed, **about, **facts), played


def scripted(policy: str, cfg: Environment, env: VectorEnv, streams: Streams) -> Act:
    """Random actions, or a scripted expert by its name."""
    if policy == "random":
        return random_policy(env, streams.integers("random policy", 1)[0])
    try:
        kind = EXPERTS[policy]
    except UnknownName as error:
        raise ConfigError(f"--policy {policy}", "no such expert", f"{error.remedy}, or use random") from None
    if cfg.id not in kind.ids or cfg.wrappers:
        problem = f"it only knows {' and '.join(kind.ids)} without wrappers"
        raise ConfigError(f"--policy {policy}", problem, "name one of them, or use random")
    expert = kind(env.action_space, streams.generator("expert"))

    def act(obs_B: Tree, _: Tree, first_B: Array) -> ActResult:
        return ActResult(expert.act(obs_B, first_B), None, {})

    return act


def played_episodes(act: Act, env: VectorEnv, seeds: Sequence[int]) -> Iterator[Episode]:
    """One episode for each seed, in their order; some environments at a time."""
    for begin in range(0, len(seeds), env.num_envs):
        some = list(seeds[begin : begin + env.num_envs])
        idle = env.num_envs - len(some)
        steps = list(play_episodes(act, env, some + some[:1] * idle, len(some)))
        for b, seed in enumerate(some):
            for i, part in enumerate(parts(steps, b)):
                yield as_episode(part, b, seed if i == 0 else None)


def as_episode(steps: Sequence[PlayedStep], b: int, seed: int | None) -> Episode:
    """The steps of environment `b`, with its rewards and the observations that the policy saw."""
    end = steps[-1]
    assert end.final_obs is not None
    seen = [*(tree_index(step.obs, b) for step in steps), tree_index(end.final_obs, b)]
    action, reward = (np.stack([column[b] for column in columns]) for columns in (
        [step.action for step in steps], [step.reward for step in steps]))  # fmt: skip
    return Episode(
        tree_map(lambda *leaves: np.stack(leaves), *seen),
        action,
        reward.astype(np.float32),
        bool(end.terminated[b]),
        None if seed is None else int(seed),
    )


def counted(episodes: Iterator[Episode], returns: list[float]) -> Iterator[Episode]:
    """The same episodes; their returns are added to a list."""
    for episode in episodes:
        returns.append(float(episode.reward.sum(dtype=np.float64)))
        yield episode
