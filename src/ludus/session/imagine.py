"""What the world model of a checkpoint imagines of episodes that its policy plays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ludus.algorithms import Algorithm
from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.components.encoder import largest
from ludus.components.implicit_model import ImplicitModelConfig
from ludus.components.vision_memory import VisionMemoryConfig
from ludus.components.world_model import WorldModelConfig
from ludus.data.buffers.rows import led
from ludus.data.normalizer import make_reward_normalizer
from ludus.envs.facts import observation_labels
from ludus.envs.make import make_vector
from ludus.errors import ConfigError
from ludus.imagination import Episode, Imagination, World, dream
from ludus.networks.encoders.mlp import vector_dim
from ludus.play import PlayedStep, greedy, policy_of
from ludus.play import episodes as play_episodes
from ludus.registry import ALGORITHMS
from ludus.seeding import Streams
from ludus.session.player import Player, player_of, run_config, seeded
from ludus.spaces import scale_from
from ludus.types import Spaces, space_tree, tree_index, tree_leaves, tree_map, tree_paths

DEFAULT_HORIZON = 45
LEARN_WORLDS = (WorldModelConfig, ImplicitModelConfig, VisionMemoryConfig)
MOST_STEPS = 2_000
"""Steps of a game that are looked at."""


def imagined(
    run: RunFolder, step: str, episodes: int, context: int, horizon: int | None, seed: int, env_id: str | None = None
) -> Imagination:
    """Play episodes with a checkpoint as an evaluation does, and imagine them; the default horizon fits them."""
    config = seeded(run_config(run, env_id), seed)
    path = checkpoint.find(run.path, step)
    with make_vector(config.environment, num_envs=episodes) as env:
        player = player_of(config, path, Spaces(env.observation_space, env.action_space))
        world = world_of(player.algorithm, config.algorithm.name)
        habit = greedy(player.algorithm, config.training.evaluation.deterministic)
        act = policy_of(player.algorithm, player.normalizer, deterministic=habit)
        seeds = Streams(seed).integers("imagine", episodes)
        steps = list(play_episodes(act, env, seeds, episodes, max_steps=MOST_STEPS))
    found = as_learned([rows(part, b) for b in range(episodes) for part in parts(steps, b)], player, world, path)
    horizon = fitting_horizon(found, context, horizon)
    schedule, budget = config.algorithm.config.discount, config.training.total_timesteps or 0
    told = 1.0 if schedule is None else schedule.at(checkpoint.position(step)[0], budget)
    discount = told if player.algorithm.discount is None else player.algorithm.discount
    long = [one for one in found if len(one) > context]
    dreams = [dream(world, one, context, horizon, discount, player.algorithm.value_of) for one in long]
    images, labels = part_names(world, observation_labels(config.environment.id))
    binary = frozenset(f"image{i}" for i, leaf in world.observed.images.items() if largest(leaf) == 1)
    return Imagination(dreams, context, horizon, labels, images, binary)


def world_of(algorithm: Algorithm, name: str) -> World:
    """Its world model; an algorithm without one is refused."""
    if algorithm.world is None:
        have = [name for name in ALGORITHMS.names() if issubclass(ALGORITHMS[name].Config, LEARN_WORLDS)]
        raise ConfigError("run", f"{name} learns no world model", f"train one of {', '.join(have)}")
    return algorithm.world


def parts(steps: Sequence[PlayedStep], b: int) -> Iterator[Sequence[PlayedStep]]:
    """The first game of environment `b`, cut where its episodes end; one that was lost with its worker is left out."""
    begun = 0
    for t, step in enumerate(steps):
        over = any(end.env == b for end in step.ended)
        if over or step.terminated[b]:  # a lost life ends an episode, not the game
            yield steps[begun : t + 1]
        if over:
            return
        if step.terminated[b] or step.truncated[b]:
            begun = t + 1
    if len(steps) - begun > 1:
        yield steps[begun:]


def rows(steps: Sequence[PlayedStep], b: int) -> Episode:
    """The steps of environment `b` as rows, with what the environment itself takes and gives."""
    end = steps[-1]
    seen = [tree_index(step.obs, b) for step in steps]
    if end.terminated[b] or end.truncated[b]:
        assert end.final_obs is not None
        seen.append(tree_index(end.final_obs, b))
    else:  # nobody saw where the last step led to
        steps = steps[:-1]
    action, reward, terminal = (
        led(np.stack([column[b] for column in columns]))
        for columns in zip(*((step.action, step.learned, step.terminated) for step in steps), strict=True)
    )
    return Episode(tree_map(lambda *leaves: np.stack(leaves), *seen), action, reward, terminal)


def as_learned(found: Sequence[Episode], player: Player, world: World, path: Path) -> list[Episode]:
    """Episodes as the run learned from them: actions in the unit box, what is to be normalised normalised."""
    unit, normalizer, scale = (
        scale_from(world.spaces.action),
        player.normalizer,
        make_reward_normalizer(player.config, 1),
    )
    if scale is not None:
        scale.load_state_dict(checkpoint.load(path)["reward_normalizer"])
    return [
        Episode(
            obs=one.obs if normalizer is None else normalizer.apply(one.obs),
            action=unit(one.action),
            reward=one.reward if scale is None else scale.scaled(one.reward),
            terminal=one.terminal,
        )
        for one in found
    ]


def fitting_horizon(found: Sequence[Episode], context: int, wanted: int | None) -> int:
    """The horizon; one that no episode is long enough for is refused."""
    longest = max(map(len, found), default=0)
    problem = f"the longest of {len(found)} episodes has {longest} observations"
    if longest <= context:
        raise ConfigError(f"--context {context}", problem, f"use {longest - 1}" if longest > 1 else "train it further")
    if wanted is not None and wanted > longest - context:
        raise ConfigError(f"--horizon {wanted}", problem, f"use at most {longest - context} with --context {context}")
    return wanted or min(DEFAULT_HORIZON, longest - context)


def part_names(world: World, known: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """(names of images by part, labels of the vector's numbers): `known` ones if they fit."""
    observed, tree = world.observed, space_tree(world.spaces.observation)
    paths, leaves = tree_paths(tree), tree_leaves(tree)
    images = {f"image{i}": paths[i] or "image" for i in observed.images}
    if len(known) == observed.vector_dim:
        return images, known
    labels = []
    for i in observed.others:
        size, name = vector_dim(leaves[i]), paths[i] or "observation"
        labels += [name] if size == 1 else [f"{name}[{k}]" for k in range(size)]
    return images, tuple(labels)
