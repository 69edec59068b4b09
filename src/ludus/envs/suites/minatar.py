"""MinAtar (Young and Tian, 2019): five Atari games on 10 x 10 cells, one channel of 0 and 1 for each kind of object.

The rules are the package's own cores. Around them is what its `Environment` does, with one difference: an episode
begins without an action to repeat, so that it follows from its seed. The cores are loaded from their files: importing
the package imports matplotlib and seaborn, or warns that they are missing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from ludus.envs.snapshots.values import pack_generator, unpack_generator
from ludus.envs.suites.minatar_cells import PAINTERS, Core, picture
from ludus.envs.vector.tasks import VectorTask, register_task
from ludus.spaces import Image
from ludus.text import did_you_mean
from ludus.types import Array, State, Tree

SIDE = 10
ACTIONS = 6
"""Nothing, left, up, right, down, fire."""
NOTHING = 0
LIMIT = 5_000
"""Steps after which an episode is truncated; MinAtar has no limit, and a good player never ends."""
FIXED = ("channels", "action_map", "ramping", "random")
"""Attributes of a core that are no part of its state; its generator is saved apart."""


class MinAtar(VectorTask):
    """Cores side by side; each has a random stream of its own, seeded when an episode begins."""

    state = ()
    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(
        self,
        num: int,
        game: str,
        use_minimal_action_set: bool = True,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
    ) -> None:
        """With `sticky_action_prob` a step repeats the last action; `difficulty_ramping`: games become harder."""
        if game not in PAINTERS:
            raise ValueError(f"unknown game '{game}'; {did_you_mean(game, PAINTERS)}")
        if not 0 <= sticky_action_prob <= 1:
            raise ValueError(f"sticky_action_prob is a probability, got {sticky_action_prob}")
        core = CORES[game]
        self._cores: list[Core] = [core(ramping=difficulty_ramping) for _ in range(num)]
        self._actions = self._cores[0].minimal_action_set() if use_minimal_action_set else list(range(ACTIONS))
        shape = (len(self._cores[0].channels), SIDE, SIDE)
        super().__init__(num, Image(0, 1, shape, np.uint8), Discrete(len(self._actions)))
        self._sticky, self._last = sticky_action_prob, [NOTHING] * num
        self._paint = PAINTERS[game]
        # Single numbers are written faster through a memoryview than through an array.
        self._cells = [(image.data.cast("B"), image) for image in self.obs]
        self._rewards, self._ends = self.reward.data, self.terminated.data

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Seed the core of a row and set up its game."""
        core = self._cores[i]
        core.random.seed(int(rng.integers(2**32)))
        core.reset()
        self._last[i] = NOTHING
        self.obs[i] = 0
        self._paint(core, *self._cells[i])

    def step(self, action: Array) -> None:
        """Play every core with the action given or, by chance, with its last one."""
        actions, last, sticky, paint = self._actions, self._last, self._sticky, self._paint
        rewards, ends = self._rewards, self._ends
        self.obs.fill(0)
        for i, (core, (cells, image), choice) in enumerate(zip(self._cores, self._cells, action.tolist(), strict=True)):
            if core.random.random_sample() >= sticky:
                last[i] = actions[choice]
            rewards[i], ends[i] = core.act(last[i])
            paint(core, cells, image)

    def frame(self, obs: Tree) -> Array:
        """The cells in colours."""
        return picture(obs)

    def save(self) -> State:
        """Every core with its random stream, the last actions and the observations."""
        cores = [
            {name: _plain(value) for name, value in vars(core).items() if name not in FIXED} for core in self._cores
        ]
        random = [pack_generator(core.random) for core in self._cores]
        return {**super().save(), "cores": cores, "random": random, "last": [*self._last]}

    def load(self, saved: State) -> None:
        """Go on from a saved state."""
        super().load(saved)
        for core, values, random in zip(self._cores, saved["cores"], saved["random"], strict=True):
            if unknown := values.keys() ^ (vars(core).keys() - {*FIXED}):
                raise ValueError(f"other games have {', '.join(sorted(unknown))}")
            vars(core).update({name: _plain(value) for name, value in values.items()}, random=_generator(random))
        self._last[:] = saved["last"]


def _generator(packed: State) -> np.random.RandomState:
    generator = unpack_generator("legacy", packed)
    assert isinstance(generator, np.random.RandomState)
    return generator


def _plain(value: Any) -> Any:
    """A copy, with Python's integers for numpy's."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.copy()
    return int(value) if isinstance(value, np.integer) else value


def _core(game: str) -> Any:
    """The class `Env` of a game's file."""
    package = importlib.util.find_spec("minatar")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'minatar'", name="minatar")
    path = Path(package.submodule_search_locations[0], "environments", f"{game}.py")
    spec = importlib.util.spec_from_file_location(f"{__name__}.{game}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Env


CORES = {game: _core(game) for game in PAINTERS}
for _game in PAINTERS:
    for _version in range(2):  # as in MinAtar's own registration, 1 has the actions that matter in the game, 0 has all
        register_task(
            f"MinAtar/{_game.title().replace('_', '')}-v{_version}",
            MinAtar,
            max_episode_steps=LIMIT,
            kwargs={"game": _game, "use_minimal_action_set": bool(_version)},
        )
