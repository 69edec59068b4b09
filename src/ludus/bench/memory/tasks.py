"""The tasks and memory cores of the benchmark; every core trains with the PPO settings of the task's config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ludus.errors import ConfigError
from ludus.text import did_you_mean


@dataclass(frozen=True)
class BenchTask:
    """An environment with its PPO; every core gets the same settings."""

    name: str
    spec: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskSize:
    """Width of a core in multiples of its grain, and the value of the field that fine-tunes its size."""

    grains: int
    trim: int | None = None


@dataclass(frozen=True)
class Core:
    """A memory core, or the same policy without one."""

    name: str
    memory: str
    stack: int = 1
    """Number of stacked observations."""
    grain: int = 1
    """The width is a multiple of this, so that attention heads divide it."""
    trim: str | None = None
    """Config field that fine-tunes the number of parameters where the grain is coarse."""

    def sized(self, size: TaskSize) -> tuple[str, ...]:
        """Overrides that give the core this size."""
        units = size.grains * self.grain
        if self.memory == "none":
            return tuple(f"network.{head}.hidden_dims=[{units},{units}]" for head in ("actor", "critic"))
        trimmed = () if size.trim is None else (f"network.memory.{self.trim}={size.trim}",)
        return (f"network.memory.hidden_dim={units}", *trimmed)


CORES = {
    core.name: core
    for core in (
        Core("ppo-1", "none"),
        Core("ppo-4", "none", stack=4),
        Core("lstm", "lstm"),
        Core("gru", "gru"),
        Core("min_gru", "min_gru"),
        Core("trxl", "trxl", grain=4, trim="feedforward_dim"),
        Core("gtrxl", "gtrxl", grain=4, trim="feedforward_dim"),
        Core("mamba", "mamba", trim="state_dim"),
        Core("mamba2", "mamba2", grain=16, trim="state_dim"),
    )
}
REFERENCE = CORES["lstm"]
"""All other cores get the same number of parameters as this one."""


def _masked(env: str, hidden: Sequence[int], num_envs: int) -> BenchTask:
    """The environment with some entries of the observation hidden; eight batches of whole sequences of 128 steps."""
    return BenchTask(
        f"{env}-masked",
        f"{env}:ppo",
        (
            f"environment.wrappers=[{{id: mask_observation, indices: {list(hidden)}}}]",
            f"environment.num_envs={num_envs}",
            "algorithm.rollout_steps=128",
            "algorithm.batch_size=0.125",
        ),
    )


_CARTPOLE = BenchTask("CartPole-v1-masked", "CartPole-v1:ppo_gru_masked")
_PENDULUM = _masked("Pendulum-v1", [2], 32)
_LANDER = _masked("LunarLander-v3", [2, 3, 5], 32)
_CHEETAH = _masked("HalfCheetah-v5", range(8, 17), 16)
# the variants without memory: the other variants have settings for one core
_PROOF = BenchTask("ProofOfMemory-v0", "ProofOfMemory-v0:ppo_forgetful")
# a rollout is longer than an episode, so that gradients reach back to what has to be remembered
_LENGTHS = tuple(
    BenchTask(
        f"ProofOfMemory-{length}",
        "ProofOfMemory-v0:ppo_forgetful",
        (f"environment.kwargs.length={length}", f"algorithm.rollout_steps={steps}"),
    )
    for length, steps in ((16, 128), (64, 128), (256, 384))
)
_MAZE = BenchTask("TMaze-v0", "TMaze-v0:ppo_forgetful")
_CARDS = BenchTask("RepeatPreviousEasy", "Recall-RepeatPreviousEasy-v0:ppo_forgetful")
_GRIDS = tuple(BenchTask(f"MiniGrid-{name}", f"MiniGrid-{name}-v0:ppo") for name in ("MemoryS7", "MemoryS11"))
_GAMES = tuple(BenchTask(f"ALE-{name}", f"ALE-{name}-v5:ppo") for name in ("Pong", "Breakout"))
PRESETS: dict[str, tuple[BenchTask, ...]] = {
    "classic-masked": (_CARTPOLE, _PENDULUM, _LANDER),
    "proof-of-memory": (_PROOF, _MAZE),
    "minigrid": _GRIDS,
    "atari": _GAMES,
    "mujoco": (_CHEETAH,),
    "study": (_CARTPOLE, _PENDULUM, _LANDER, _GRIDS[0], *_LENGTHS, _MAZE, _CARDS, _GAMES[0], _CHEETAH),
}
TASKS = {task.name: task for tasks in PRESETS.values() for task in tasks}


def pick_tasks(words: Sequence[str]) -> list[BenchTask]:
    """Tasks by preset, by name, or any `Env:variant`."""
    found: dict[str, BenchTask] = {}
    for word in words:
        tasks = PRESETS.get(word) or ((TASKS[word],) if word in TASKS else ())
        if not tasks and ":" in word:
            tasks = (BenchTask(word.replace("/", "-").replace(":", "-"), word),)
        if not tasks:
            raise ConfigError(f"--env {word}", "no such task", did_you_mean(word, [*PRESETS, *TASKS]))
        found |= {task.name: task for task in tasks}
    return list(found.values())


def pick_cores(words: Sequence[str]) -> list[Core]:
    """Cores by name; all of them if no name is given."""
    unknown = [word for word in words if word not in CORES]
    if unknown:
        raise ConfigError(f"--cores {unknown[0]}", "no such core", did_you_mean(unknown[0], list(CORES)))
    return [CORES[word] for word in dict.fromkeys(words)] or list(CORES.values())
