"""Players: the policy of a run's checkpoint, with nothing that could train."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ludus.algorithms import Algorithm, Context
from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.config.compose import parse
from ludus.config.read import read_file
from ludus.config.schema import ExperimentConfig
from ludus.data.normalizer import ObservationNormalizer, make_normalizer
from ludus.envs.make import number_of_envs
from ludus.envs.vector import VectorEnv
from ludus.errors import ConfigError, LudusError
from ludus.networks.precision import Precision
from ludus.play import Act, greedy, policy_of
from ludus.preflight import pick_device
from ludus.registry import ALGORITHMS
from ludus.seeding import Streams
from ludus.session.loading import MISFITS, misfit
from ludus.types import Spaces


def saved_config(run: RunFolder) -> ExperimentConfig:
    """The config that a run folder holds."""
    return parse(read_file(run.config_path), str(run.config_path))


def run_config(run: RunFolder, env: str | None = None) -> ExperimentConfig:
    """The config of a run that is to be played; `env` names an environment if the run has none of its own."""
    config = saved_config(run)
    if env is not None and config.environment.id not in ("", env):
        raise ConfigError("--env", f"the run has its own environment, {config.environment.id}", "leave it out")
    if not env and not config.environment.id:
        problem = "environment.id is not set: the run learned without an environment"
        raise ConfigError(str(run.config_path), problem, "name one: --env ID")
    named = config.environment.model_copy(update={"id": env or config.environment.id})
    return config.model_copy(update={"environment": named})


def seeded(config: ExperimentConfig, seed: int | None) -> ExperimentConfig:
    """The config with another seed, if one is given."""
    if seed is None:
        return config
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise ConfigError("seed", f"{seed!r} is no seed", "give a whole number from 0 on")
    return config.model_copy(update={"experiment": config.experiment.model_copy(update={"seed": int(seed)})})


def checkpoint_name(run: RunFolder, wanted: str | None) -> str:
    """Name of the checkpoint that --checkpoint or the reference asks for; the default is the best one, or the last."""
    if wanted and run.checkpoint and wanted != run.checkpoint:
        raise ConfigError("--checkpoint", f"says {wanted}, the reference {run.checkpoint}", "give one of them")
    return str(checkpoint.read_manifest(checkpoint.find(run.path, wanted or run.checkpoint))["name"])


def player_of(config: ExperimentConfig, path: Path, spaces: Spaces) -> Player:
    """The policy of a checkpoint; one that does not fit the config is refused."""
    state = checkpoint.load(path)
    try:
        return build_player(config, spaces, state)
    except MISFITS as error:
        raise misfit(str(path), error) from error


def policy_in(
    config: ExperimentConfig, run: RunFolder, step: str, env: VectorEnv, deterministic: bool | None
) -> tuple[Act, bool]:
    """The policy of a checkpoint and whether it is greedy; as in evaluation unless `deterministic` says how."""
    player = player_of(config, checkpoint.find(run.path, step), Spaces(env.observation_space, env.action_space))
    habit = greedy(player.algorithm, deterministic, config.training.evaluation.deterministic)
    return policy_of(player.algorithm, player.normalizer, deterministic=habit), habit


def present_policy(
    config: ExperimentConfig, run: RunFolder, wanted: str | None, env: VectorEnv, deterministic: bool | None
) -> tuple[Act, str]:
    """The policy of the checkpoint that is there now, and its name: a run that trains on replaces its checkpoints."""
    while True:
        step = checkpoint_name(run, wanted)
        try:
            return policy_in(config, run, step, env, deterministic)[0], step
        except LudusError:
            if checkpoint.checkpoints(run.path).get(step) is not None:
                raise


@dataclass(frozen=True)
class Player:
    """A trained policy off the training loop: play, video, inspector."""

    config: ExperimentConfig
    algorithm: Algorithm
    normalizer: ObservationNormalizer | None


def build_player(
    config: ExperimentConfig, spaces: Spaces, state: dict[str, Any] | None, rng: np.random.Generator | None = None
) -> Player:
    """The algorithm with the weights of a checkpoint (or untrained), and nothing that could train.

    `rng` draws what is random about its actions.
    """
    precision = Precision(config.runtime.precision)
    if state is not None and "precision" in state:
        precision.load_state_dict(state["precision"])
    streams = Streams(config.experiment.seed)
    context = Context(
        spaces=spaces,
        network=config.network,
        num_envs=number_of_envs(config.environment),
        device=pick_device(config.experiment.device),
        precision=precision,
        rng=streams.generator("play"),
        evaluation_rng=rng or streams.generator("play"),
    )
    with torch.random.fork_rng(devices=[]):  # the program around it may draw from torch's global generator
        torch.manual_seed(streams.integers("weights", 1)[0])
        algorithm: Algorithm = ALGORITHMS[config.algorithm.name](config.algorithm.config, context)
    normalizer = make_normalizer(config.environment, spaces.observation)
    if state is not None:
        for name, part in algorithm.state().items():
            part.load_state_dict(state["algorithm"][name])
        if normalizer is not None:
            normalizer.load_state_dict(state["normalizer"])
    return Player(config, algorithm, normalizer)
