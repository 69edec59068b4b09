"""What is compared: tasks that need memory, and the cores that may have it, all under the PPO of the task's config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ludus.errors import ConfigError
from ludus.text import did_you_mean


@dataclass(frozen=True)
class Task:
    """An environment with its PPO; every core gets the same settings."""

    name: str
    spec: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Size:
    """How large a core is made."""

    grains: int
    trim: int | None = None


@dataclass(frozen=True)
class Core:
    """What stands between encoder and heads."""

    name: str
    memory: str
    stack: int = 1
    """Observations an environment shows at once."""
    grain: int = 1
    """Widths come in multiples of this (whole heads)."""
    trim: str | None = None
    """What makes up for a coarse grain."""

    @property
    def remembers(self) -> bool:
        """Whether it knows more than the newest observation."""
        return self.memory != "none" or self.stack > 1

    def sized(self, size: Size) -> tuple[str, ...]:
        """The overrides that make it so large."""
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
"""Whose number of parameters the others are brought to."""


def _masked(env: str, hidden: Sequence[int], num_envs: int) -> Task:
    """The env's PPO without some numbers of the observation, in eight batches of whole sequences of 128 steps."""
    return Task(
        f"{env}-masked",
        f"{env}:ppo",
        (
            f"environment.wrappers=[{{id: mask_observation, indices: {list(hidden)}}}]",
            f"environment.num_envs={num_envs}",
            "algorithm.rollout_steps=128",
            "algorithm.batch_size=0.125",
        ),
    )


_CARTPOLE = Task("CartPole-v1-masked", "CartPole-v1:ppo_gru_masked")
_PENDULUM = _masked("Pendulum-v1", [2], 32)
_LANDER = _masked("LunarLander-v3", [2, 3, 5], 32)
_CHEETAH = _masked("HalfCheetah-v5", range(8, 17), 16)
# those without a memory: the others have settings for one core
_PROOF = Task("ProofOfMemory-v0", "ProofOfMemory-v0:ppo_forgetful")
_MAZE = Task("TMaze-v0", "TMaze-v0:ppo_forgetful")
_GRIDS = tuple(Task(f"MiniGrid-{name}", f"MiniGrid-{name}-v0:ppo") for name in ("MemoryS7", "MemoryS11"))
PRESETS: dict[str, tuple[Task, ...]] = {
    "classic-masked": (_CARTPOLE, _PENDULUM, _LANDER),
    "proof-of-memory": (_PROOF, _MAZE),
    "minigrid": _GRIDS,
    "atari": (Task("ALE-Pong", "ALE-Pong-v5:ppo"), Task("ALE-Breakout", "ALE-Breakout-v5:ppo")),
    "mujoco": (_CHEETAH,),
}
TASKS = {task.name: task for tasks in PRESETS.values() for task in tasks}


def pick_tasks(words: Sequence[str]) -> list[Task]:
    """Tasks by preset, by name, or any `Env:variant` of one's own."""
    found: dict[str, Task] = {}
    for word in words:
        tasks = PRESETS.get(word) or ((TASKS[word],) if word in TASKS else ())
        if not tasks and ":" in word:
            tasks = (Task(word.replace("/", "-").replace(":", "-"), word),)
        if not tasks:
            raise ConfigError(f"--env {word}", "no such task", did_you_mean(word, [*PRESETS, *TASKS]))
        found |= {task.name: task for task in tasks}
    return list(found.values())


def pick_cores(words: Sequence[str]) -> list[Core]:
    """Cores by name; none named are all of them."""
    unknown = [word for word in words if word not in CORES]
    if unknown:
        raise ConfigError(f"--cores {unknown[0]}", "no such core", did_you_mean(unknown[0], list(CORES)))
    return [CORES[word] for word in dict.fromkeys(words)] or list(CORES.values())
