"""Which suite an environment id belongs to and what it needs; imports neither Gymnasium nor the suite."""

from __future__ import annotations

import importlib.util
import re
from typing import NamedTuple

from ludus.envs import catalog

OURS = "Ludus"
OTHER = "other"


class Family(NamedTuple):
    """Environments that come together."""

    name: str
    extra: str = ""
    """The extra that installs it."""
    modules: tuple[str, ...] = ()
    """What has to be importable; none: it is always there."""
    install: str = ""
    """How to get it when it is in no extra."""

    @property
    def installed(self) -> bool:
        """Whether everything it needs can be imported."""
        return all(_importable(module) for module in self.modules)

    @property
    def remedy(self) -> str:
        """How to install it."""
        return self.install or f"pip install 'ludus[{self.extra}]'"


GYMNASIUM = (
    (r"(CartPole|MountainCar|MountainCarContinuous|Acrobot|Pendulum)-v\d+", Family("classic control")),
    (r"(Blackjack|FrozenLake8?x?8?|CliffWalking|CliffWalkingSlippery|Taxi)-v\d+", Family("toy text")),
    (r"(LunarLander|LunarLanderContinuous|BipedalWalker|BipedalWalkerHardcore|CarRacing)-v\d+",
     Family("Box2D", "box2d", ("Box2D", "pygame"))),
    (r"(Reacher|Pusher|InvertedPendulum|InvertedDoublePendulum|HalfCheetah|Hopper|Swimmer|Walker2d|Ant|Humanoid"
     r"|HumanoidStandup)-v\d+", Family("MuJoCo", "mujoco", ("mujoco",))),
)  # fmt: skip
"""Gymnasium's own ids by pattern."""
TITLES = {
    "ludus": OURS,
    "ale_py": "Atari",
    "minigrid": "MiniGrid",
    "dm_control": "DM Control",
    "shimmy": "DM Control",
    "vizdoom": "ViZDoom",
    "stable_retro": "Retro",
    "memory_gym": "Memory Gym",
    "popgym": "POPGym",
    "brax": "Brax",
}
"""Names of the suites by the package they come from."""


def family(id: str) -> Family:
    """The family of an id; what nobody knows is `other`."""
    for suite in catalog.SUITES:
        if id.startswith(suite.prefix):
            module = (suite.package or suite.module).split(".")[0]
            needed = () if module == "ludus" else (module,)
            return Family(TITLES.get(module, module), suite.extra, needed, suite.install)
    for pattern, known in GYMNASIUM:
        if re.fullmatch(pattern, id):
            return known
    return Family(OTHER)


def spelled(id: str) -> str:
    """An id whose `/` was written as `-`, as it is registered."""
    for suite in catalog.SUITES:
        written = suite.prefix.replace("/", "-")
        if written != suite.prefix and id.startswith(written):
            return suite.prefix + id[len(written) :]
    return id


def order(name: str) -> int:
    """Where a family stands in a list: Gymnasium's own first, then the suites, then the rest."""
    names = [*(known.name for _, known in GYMNASIUM), *TITLES.values()]
    return names.index(name) if name in names else len(names)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # a module that is half there
        return False
