"""Console games through stable-retro: `Retro/<Game>-<System>`.

The library allows one emulator per process. Environments of one process take turns: the state of the last one is saved
and that of the next one loaded. That is exact but slow, so `vectorization: auto` starts a worker for each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
import stable_retro as retro

from ludus.envs import Action, Frame, Info, Options, ResetReturn, StepReturn
from ludus.envs.suites import register
from ludus.errors import ConfigError, Missing
from ludus.text import did_you_mean
from ludus.types import Array

Buttons = Literal["filtered", "all", "discrete", "multi_discrete"]


class Retro(gym.Env):
    """A game from its default state or from another saved state; every episode begins the same way."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 60.0}

    def __init__(
        self,
        game: str,
        state: str | None = None,
        scenario: str | None = None,
        actions: Buttons = "filtered",
        observations: Literal["image", "ram"] = "image",
        render_mode: str | None = None,
    ) -> None:
        """`filtered`: any buttons at once that make sense (MultiBinary); `discrete`: one action per combination."""
        if actions not in get_args(Buttons) or observations not in ("image", "ram"):
            raise ValueError(f"unknown actions {actions!r} or observations {observations!r}")
        self.game, self.render_mode = game, render_mode
        self._setup = (game, state, scenario, actions, observations)
        self._saved: bytes | None = None
        self._seen: Array = np.zeros(0, np.uint8)
        _require_files(game, state, scenario)
        _slot.users += 1
        try:
            machine = _slot.insert(self)
        except BaseException:
            _slot.users -= 1
            raise
        self._open = True
        self.observation_space, self.action_space = machine.observation_space, machine.action_space
        self.buttons: tuple[str, ...] = tuple(machine.buttons)
        """Names of the buttons of the console."""
        self._frame = machine.get_screen()

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode in the emulator."""
        super().reset(seed=seed)
        machine = _slot.insert(self)
        self._seen, info = machine.reset()
        self._keep_frame(machine)
        return self._seen, info

    def step(self, action: Action) -> StepReturn:
        """One frame of the game."""
        machine = _slot.insert(self)
        self._seen, reward, ended, cut, info = machine.step(action)
        self._keep_frame(machine)
        return self._seen, float(reward), ended, cut, info

    def render(self) -> Frame:
        """uint8 [H, W, 3]."""
        return self._frame

    def close(self) -> None:
        """Give up the emulator."""
        if self._open:
            self._open = False
            _slot.leave(self)

    def snapshot_state(self) -> Info:
        """The state of the emulator, and what was seen last."""
        state = _slot.insert(self).em.get_state()
        return {"emulator": np.frombuffer(state, np.uint8), "seen": self._seen, "frame": self._frame.copy()}

    def restore_state(self, state: Info) -> None:
        """Continue from a snapshot, at the next turn."""
        _slot.drop(self)
        self._saved = state["emulator"].astype(np.uint8).tobytes()
        self._seen, self._frame = state["seen"], state["frame"]

    def _keep_frame(self, machine: Any) -> None:
        if self.render_mode is not None:
            self._frame = self._seen if self._seen.ndim == 3 else machine.get_screen()


class _Slot:
    """The one emulator of this process, and the environment whose turn it is."""

    def __init__(self) -> None:
        self.users = 0
        self._setup: tuple[Any, ...] | None = None
        self._machine: Any = None
        self._player: Retro | None = None

    def insert(self, player: Retro) -> Any:
        """The emulator in the state of `player`."""
        if player is self._player:
            return self._machine
        if self._player is not None:
            self._player._saved, self._player = self._machine.em.get_state(), None
        if player._setup != self._setup:
            self._eject()
            self._machine, self._setup = _machine(*player._setup), player._setup
        if player._saved is not None:
            self._machine.em.set_state(player._saved)
            self._machine.data.update_ram()
        self._machine.img = player._seen  # without an image it would ask for a reset
        self._player = player
        return self._machine

    def drop(self, player: Retro) -> None:
        """End a turn without saving."""
        if self._player is player:
            self._player = None

    def leave(self, player: Retro) -> None:
        """End a turn for good; the last environment closes the emulator."""
        self.drop(player)
        player._saved = None
        self.users -= 1
        if self.users == 0:
            self._eject()

    def _eject(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._machine = self._setup = None


_slot = _Slot()


def _machine(game: str, state: str | None, scenario: str | None, actions: str, observations: str) -> Any:
    machine = retro.RetroEnv(
        game,
        state=state or retro.State.DEFAULT,
        scenario=scenario,
        use_restricted_actions=retro.Actions[actions.upper()],
        obs_type=retro.Observations[observations.upper()],
        render_mode="rgb_array",
    )
    if machine.initial_state is None:  # then a reset returns to the state after power-on
        machine.initial_state = machine.em.get_state()
    return machine


def _require_files(game: str, state: str | None, scenario: str | None) -> None:
    """Refuse a game without its ROM, which the user has to bring, and unknown states or scenarios.

    A game is one of those that are installed, never a folder from elsewhere: scenarios may contain programs.
    """
    if game != Path(game).name:
        raise ConfigError("environment.kwargs.game", f"'{game}' is no name of a game", "leave it to environment.id")
    try:
        retro.data.get_romfile_path(game)
    except FileNotFoundError as error:
        problem = f"the ROM of '{game.removesuffix('-v0')}' is not there and may not be shipped"
        remedy = "import your own with `python -m stable_retro.import FOLDER`"
        raise Missing("environment.id", problem, remedy) from error
    states, scenarios = retro.data.list_states(game), retro.data.list_scenarios(game)
    for name, value, known in (("state", state, states), ("scenario", scenario, scenarios)):
        if value is not None and value not in known:
            raise ConfigError(f"environment.kwargs.{name}", f"'{game}' has no '{value}'", did_you_mean(value, known))


for _folder in sorted(Path(retro.data.path(), "stable").iterdir()):
    _id = f"Retro/{_folder.name.removesuffix('-v0')}"
    if _folder.is_dir():
        register(_id, f"{__name__}:Retro", kwargs={"game": _folder.name})
