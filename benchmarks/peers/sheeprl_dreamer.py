"""sheeprl's Dreamer 3 (`dreamer_v3_5`, the one of the Nature paper); argv: task, then overrides of its own config.

Runs in an interpreter of its own, which benchmarks/README.md says how to make.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from importlib.metadata import version
from typing import Any

import gymnasium as gym
import hydra
import numpy as np
import torch
from omegaconf import OmegaConf
from sheeprl import cli
from sheeprl.algos.dreamer_v3_5 import dreamer_v3_5 as dreamer
from sheeprl.algos.dreamer_v3_5.utils import Moments
from sheeprl.data.buffers import EnvIndependentReplayBuffer, SequentialReplayBuffer
from sheeprl.utils.utils import dotdict
from world_model_task import WARM_UP, ActingClock, UpdateClock, WorldModelTask

ACTIONS = 2
STORED = 2_048
END_EVERY = 50
"""Mean length of the random episodes."""


def config(task: WorldModelTask, logs: str) -> Any:
    """Its config of this size with the task's numbers; no logs, no checkpoints, environments in this process."""
    vector = task.observation == "vector"
    overrides = [
        "exp=dreamer_v3_5",
        f"algo=dreamer_v3_5_{task.size.upper()}",
        "env=gym",
        "env.id=CartPole-v1",
        "env.sync_env=true",
        "env.capture_video=false",
        f"env.num_envs={task.envs}",
        f"env.screen_size={task.side}",
        f"algo.mlp_keys.encoder={'[state]' if vector else '[]'}",
        f"algo.cnn_keys.encoder={'[]' if vector else '[rgb]'}",
        f"algo.per_rank_batch_size={task.batch}",
        f"algo.per_rank_sequence_length={task.length}",
        f"algo.horizon={task.horizon}",
        f"algo.total_steps={task.steps}",
        f"algo.learning_starts={2 * task.steps}",
        "algo.run_test=false",
        "buffer.memmap=false",
        "buffer.size=100000",
        "checkpoint.every=0",
        "checkpoint.save_last=false",
        "metric.log_level=0",
        "model_manager.disabled=true",
        f"log_root={logs}",
        f"seed={task.seed}",
        f"num_threads={task.threads}",
    ]
    with hydra.initialize_config_module("sheeprl.configs", version_base="1.3"):
        composed = hydra.compose("config", [*overrides, *sys.argv[2:]])
    return dotdict(OmegaConf.to_container(composed, resolve=True, throw_on_missing=True))


def act(task: WorldModelTask, cfg: Any) -> None:
    """Its own loop, which never comes to learning; it prepares the observations once per step of all environments."""
    clock, prepare, seen = ActingClock(task), dreamer.prepare_obs, itertools.count(step=task.envs)

    def marked(*args: Any, **kwargs: Any) -> Any:
        clock.mark(next(seen))
        return prepare(*args, **kwargs)

    dreamer.prepare_obs = marked
    cli.run_algorithm(cfg)
    clock.answer(version=version("sheeprl"), torch=torch.__version__)


def random_steps(task: WorldModelTask, cfg: Any) -> dict[str, np.ndarray]:
    """Columns of one environment, in the form its buffer keeps them."""
    rng, sizes = np.random.default_rng(task.seed), cfg.algo.world_model
    ends = rng.random((STORED, 1, 1)) < 1 / END_EVERY
    if task.observation == "vector":
        observation = {"state": rng.standard_normal((STORED, 1, 4), dtype=np.float32)}
    else:
        observation = {"rgb": rng.integers(0, 256, (STORED, 1, 3, task.side, task.side), dtype=np.uint8)}
    return observation | {
        "actions": np.eye(ACTIONS, dtype=np.float32)[rng.integers(0, ACTIONS, (STORED, 1))],
        "rewards": rng.standard_normal((STORED, 1, 1), dtype=np.float32),
        "terminated": ends.astype(np.float32),
        "truncated": np.zeros((STORED, 1, 1), np.float32),
        "is_first": np.roll(ends, 1, axis=0).astype(np.float32),
        "deter": np.zeros((STORED, 1, sizes.recurrent_model.recurrent_state_size), np.float16),
        "stoch": rng.integers(0, sizes.discrete_size, (STORED, 1, sizes.stochastic_size), dtype=np.uint8),
        dreamer.STEP_ID_KEY: np.stack([np.zeros((STORED, 1), np.int64), np.arange(STORED)[:, None]], axis=-1),
    }


def update(task: WorldModelTask, cfg: Any) -> None:
    """Draw, train, move the slow critic, write the latents back: all that its loop does for one gradient step."""
    torch.set_float32_matmul_precision(cfg.float32_matmul_precision)  # as its command line does
    torch.distributions.Distribution.set_default_validate_args(cfg.distribution.validate_args)
    fabric = hydra.utils.instantiate(cfg.fabric, _convert_="all")
    fabric.seed_everything(task.seed)
    spaces = {"state": gym.spaces.Box(-np.inf, np.inf, (4,)), "rgb": gym.spaces.Box(0, 255, (3, task.side, task.side))}
    steps = random_steps(task, cfg)
    observed = gym.spaces.Dict({key: space for key, space in spaces.items() if key in steps})
    world_model, actor, critic, slow, _ = dreamer.build_agent(fabric, (ACTIONS,), False, cfg, observed)
    modules = {"world_model": world_model, "actor": actor, "critic": critic}
    learned = [parameter for module in modules.values() for parameter in module.parameters()]
    optimizer = fabric.setup_optimizers(hydra.utils.instantiate(cfg.algo.optimizer, params=learned, _convert_="all"))
    scale = cfg.algo.actor.moments
    moments = Moments(scale.decay, scale.max, scale.percentile.low, scale.percentile.high)
    buffer = EnvIndependentReplayBuffer(STORED, n_envs=1, buffer_cls=SequentialReplayBuffer, seed=task.seed)
    buffer.add(steps)
    context = cfg.algo.replay_context

    def once() -> None:
        drawn, ids = dreamer.sample_sequences(buffer, task.batch, task.length + context, 1, fabric.device)
        batch = {key: column[0] for key, column in drawn.items()}
        parts = (world_model, actor, critic, slow, optimizer, moments, batch)
        latents = dreamer.train(fabric, cfg, *parts, None, (ACTIONS,))
        dreamer.update_target_critic(critic, slow, cfg.algo.critic.tau)
        dreamer.write_latent_states(buffer, [(ids[0, context:], *latents)], STORED)

    counts = {name: sum(weight.numel() for weight in module.parameters()) for name, module in modules.items()}
    clock = UpdateClock()
    for _ in range(WARM_UP + task.updates):
        once()
        clock.mark()
    clock.answer(counts, version=version("sheeprl"), torch=torch.__version__)


def main() -> None:
    """Run the task and answer."""
    task = WorldModelTask.from_argv()
    torch.set_num_threads(task.threads)
    with tempfile.TemporaryDirectory() as logs:
        (act if task.mode == "act" else update)(task, config(task, logs))


if __name__ == "__main__":
    main()
