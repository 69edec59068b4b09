"""All suites of environments in one table: their ids, the packages they need and the module that defines them.

This module imports neither Gymnasium nor a suite, so that `ludus env list` answers at once.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

OURS = "Ludus"
"""Title of the suites that come with this package."""
LOCAL = "local/"
"""How the ids of environments begin that a Python program handed in."""


@dataclass(frozen=True)
class Suite:
    """Environments that are installed together."""

    title: str
    module: str = ""
    """Importing it registers the ids. For Gymnasium's own suites: the package that holds their entry points."""
    prefixes: tuple[str, ...] = ()
    """How the ids begin."""
    extra: str = ""
    """The extra of Ludus that installs what the suite may need."""
    needs: tuple[str, ...] = ()
    """Packages that must be importable; empty: the suite is always there."""
    install: str = ""
    """How to install the packages when no extra does."""
    observe: str = ""
    """Wrapper that converts its observations to supported spaces, unless the config names another one that does."""
    arguments: tuple[str, ...] = ()
    """The only arguments that a config may give: with others these environments would start any program."""
    alone: bool = False
    """A process can hold one environment only: `auto` starts a worker for each."""

    @property
    def builtin(self) -> bool:
        """Whether Gymnasium registers the ids itself."""
        return self.module.startswith("gymnasium.")

    @property
    def installed(self) -> bool:
        """Whether every package it needs can be imported."""
        return all(_importable(module) for module in self.needs)

    @property
    def remedy(self) -> str:
        """How to install it."""
        return self.install or f"pip install 'ludus-rl[{self.extra}]'"


SUITES = (
    Suite("classic control", "gymnasium.envs.classic_control",
          ("CartPole-v", "MountainCar-v", "MountainCarContinuous-v", "Acrobot-v", "Pendulum-v"), "video"),
    Suite("toy text", "gymnasium.envs.toy_text",
          ("Blackjack-v", "FrozenLake-v", "FrozenLake8x8-v", "CliffWalking-v", "CliffWalkingSlippery-v", "Taxi-v"),
          "video"),
    Suite("Box2D", "gymnasium.envs.box2d",
          ("LunarLander-v", "LunarLanderContinuous-v", "BipedalWalker-v", "BipedalWalkerHardcore-v", "CarRacing-v"),
          "box2d", ("Box2D", "pygame")),
    Suite("MuJoCo", "gymnasium.envs.mujoco",
          ("Ant-v", "HalfCheetah-v", "Hopper-v", "Humanoid-v", "HumanoidStandup-v", "InvertedDoublePendulum-v",
           "InvertedPendulum-v", "Pusher-v", "Reacher-v", "Swimmer-v", "Walker2d-v"), "mujoco", ("mujoco",)),
    Suite(OURS, "ludus.envs.suites.small",
          ("Bandit", "TMaze", "LookAndFeel", "ProofOfMemory", "PocMemoryEnv", "PoMEnv")),
    Suite(OURS, "ludus.envs.suites.recall", ("Recall/",)),
    Suite(OURS, "ludus.envs.suites.two_ways", ("TwoWays-",)),
    Suite(OURS, "ludus.envs.suites.pomdp", ("Tiger-", "RiverSwim-", "SparseRewardPOMDP-")),
    Suite("Atari", "ludus.envs.suites.atari", ("ALE/",), "atari", ("ale_py",)),
    Suite("MinAtar", "ludus.envs.suites.minatar", ("MinAtar/",), "minatar", ("minatar",)),
    Suite("MiniGrid", "minigrid", ("MiniGrid-", "BabyAI-"), "minigrid", ("minigrid",), observe="minigrid_symbols"),
    Suite("DM Control", "ludus.envs.suites.dmc", ("dmc/",), "dmc", ("dm_control",)),
    Suite("DM Control", "shimmy", ("dm_control/",), "dmc", ("shimmy",)),
    Suite("ViZDoom", "ludus.envs.suites.vizdoom", ("VizDoom-",), "vizdoom", ("vizdoom",)),
    Suite("ViZDoom", "vizdoom.gymnasium_wrapper", ("Vizdoom",), "vizdoom", ("vizdoom",), arguments=(
        "frame_skip", "max_buttons_pressed", "treat_episode_timeout_as_truncation", "use_multi_binary_action_space")),
    Suite("Retro", "ludus.envs.suites.retro", ("Retro/",), "retro", ("stable_retro",), alone=True),
    Suite("Memory Gym", "ludus.envs.suites.memory_gym", ("MemoryGym/",), needs=("memory_gym",),
          install="pip install 'ludus-rl[video]' and then pip install --no-deps memory-gym, which pins old versions"),
    Suite("Brax", "ludus.envs.suites.brax", ("brax/",), "brax", ("brax",)),
)  # fmt: skip
"""In the order in which lists show them."""
OTHER = Suite("other")
"""The suite of ids that no row of the table knows."""


def suite_of(id: str) -> Suite:
    """The suite an environment id belongs to."""
    return next((suite for suite in SUITES if id.startswith(suite.prefixes)), OTHER)


def spelled(id: str) -> str:
    """The registered spelling of an id whose `/` was written as `-`."""
    for prefix in (prefix for suite in SUITES for prefix in suite.prefixes):
        written = prefix.replace("/", "-")
        if written != prefix and id.startswith(written):
            return prefix + id[len(written) :]
    return id


def register(id: str, entry_point: Any, **fields: Any) -> None:
    """Register an id with Gymnasium, once per process: a module may be imported again."""
    import gymnasium as gym

    if id not in gym.registry:
        gym.register(id, entry_point, **fields)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # a module that is half there
        return False
