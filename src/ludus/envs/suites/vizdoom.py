"""ViZDoom's scenarios: pixels in, buttons out.

This replaces the package's own environment, which shows a black screen at the end of an episode, mixes buttons with
mouse movements and leaves files in the working directory.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary

from ludus.envs import Action, Frame, Options, ResetReturn, StepReturn
from ludus.envs.suites import register
from ludus.errors import ConfigError
from ludus.types import Array

FOLDER = "VIZDOOM_SCENARIOS_DIR"
PLACES = f"environment.kwargs.config_path, ${FOLDER} and the package vizdoom"
WHERE = "environment.kwargs.config_path"
Resolution = Literal["160x120", "200x150", "256x144", "320x240", "400x300", "640x480"]
_LITTER = Path("_vizdoom")
"""The engine creates this folder where it is started and never uses it."""


class VizDoom(gym.Env):
    """One engine in its own process, stepped `frame_skip` tics at a time.

    The time limit of a scenario truncates, with the screen of that moment. When the player dies or the scenario ends
    there is no screen, and the last one is shown again. Mouse buttons of a scenario are left out.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 35 / 4}

    def __init__(
        self,
        scenario: str = "basic",
        config_path: str | None = None,
        frame_skip: int = 4,
        actions: Literal["single", "combined"] = "single",
        resolution: Resolution = "160x120",
        doom_map: str | None = None,
        doom_skill: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """`single`: nothing or one button (Discrete); `combined`: any buttons at once (MultiBinary)."""
        if frame_skip < 1:
            raise ValueError(f"frame_skip must be at least 1, got {frame_skip}")
        if actions not in ("single", "combined"):
            raise ValueError(f"actions must be single or combined, got {actions!r}")
        self.render_mode, self._skip = render_mode, frame_skip
        self._own = tempfile.TemporaryDirectory(prefix="ludus-vizdoom-")  # the engine writes a file with its settings
        self.game = _game(find_scenario(scenario, config_path), resolution, self._own.name)
        if doom_map is not None:
            self.game.set_doom_map(doom_map)
        if doom_skill is not None:
            self.game.set_doom_skill(doom_skill)
        self._limit = self.game.get_episode_timeout()
        self.game.set_episode_timeout(0)  # we count, so that there is a screen when time is up
        self.buttons = _buttons(self.game)
        """Names of the buttons, in the order of the scenario."""
        count = len(self.buttons)
        self.action_space = Discrete(count + 1) if actions == "single" else MultiBinary(count)
        shape = (self.game.get_screen_height(), self.game.get_screen_width(), 3)
        self.observation_space = Box(0, 255, shape, np.uint8)
        self._screen: Array = np.zeros(shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode; the first one starts the engine."""
        super().reset(seed=seed)
        self.game.set_seed(int(self.np_random.integers(2**32)))
        if self.game.is_running():
            self.game.new_episode()
        else:
            self._start()
        return self._look(), {}

    def step(self, action: Action) -> StepReturn:
        """Hold the buttons for some tics."""
        game = self.game
        left = self._limit + game.get_episode_start_time() - game.get_episode_time() if self._limit else self._skip
        reward = game.make_action(self.pressed(action).tolist(), min(self._skip, left))
        ended = game.is_episode_finished()
        return self._look(), float(reward), ended, not ended and self._limit > 0 and left <= self._skip, {}

    def render(self) -> Frame:
        """uint8 [H, W, 3]."""
        return self._screen

    def close(self) -> None:
        """Stop the engine."""
        self.game.close()
        self._own.cleanup()

    def pressed(self, action: Action) -> Array:
        """Which buttons an action holds down, bool [buttons]."""
        if isinstance(self.action_space, Discrete):
            return np.arange(1, len(self.buttons) + 1) == action
        return np.asarray(action, bool)

    def variable(self, name: str) -> float:
        """The value of a game variable such as HEALTH or KILLCOUNT; ValueError for an unknown name."""
        return float(self.game.get_game_variable(game_variable(name)))

    def _look(self) -> Array:
        state = self.game.get_state()
        if state is not None:
            self._screen = state.screen_buffer
        return self._screen

    def _start(self) -> None:
        """Start the engine in a locked folder: one crashes if another one removes `_LITTER` meanwhile."""
        here = os.open(".", os.O_RDONLY)
        try:
            fcntl.flock(here, fcntl.LOCK_EX)
            try:
                self.game.init()
            finally:
                if _LITTER.is_dir() and not any(_LITTER.iterdir()):
                    _LITTER.rmdir()
        finally:
            os.close(here)  # which releases the lock


def game_variable(name: str) -> Any:
    """ViZDoom's game variable of a name."""
    import vizdoom

    known = vizdoom.GameVariable.__members__
    if name not in known:
        raise ValueError(f"variables: '{name}' is no game variable of ViZDoom")
    return known[name]


def find_scenario(name: str, config_path: str | None = None) -> Path:
    """The .cfg of a scenario: the path given, else the user's folder, else the package."""
    import vizdoom

    if config_path is not None:
        path = Path(config_path).expanduser()
        if path.is_file():
            return path.absolute()
        raise ConfigError(WHERE, f"there is no scenario {path}", f"looked in {PLACES}; give the path of a .cfg file")
    folders = [Path(os.environ[FOLDER]).expanduser()] if os.environ.get(FOLDER) else []
    for folder in (*folders, Path(vizdoom.scenarios_path)):
        path = folder / f"{name}.cfg"
        if path.is_file():
            return path.absolute()
    raise ConfigError(WHERE, f"there is no scenario '{name}'", f"looked in {PLACES}; put {name}.cfg in one of them")


def _game(path: Path, resolution: str, folder: str) -> Any:
    import vizdoom

    size = vizdoom.ScreenResolution.__members__.get(f"RES_{resolution.upper()}")
    if size is None:
        raise ValueError(f"resolution must be one that ViZDoom has, such as 160x120, got {resolution!r}")
    game = vizdoom.DoomGame()
    game.load_config(str(path))
    game.set_vizdoom_path(vizdoom.exe_path)  # a scenario may name another program
    wad = game.get_doom_scenario_path()
    if wad and not Path(wad).is_file():
        raise ConfigError(WHERE, f"{path.name} needs {wad}, which is not there", f"looked in {PLACES}")
    game.set_doom_config_path(os.path.join(folder, "vizdoom.ini"))  # noqa: PTH118 - the engine takes a string
    game.set_window_visible(False)
    game.set_sound_enabled(False)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_screen_resolution(size)
    for buffer in ("depth_buffer", "labels_buffer", "automap_buffer", "audio_buffer", "notifications_buffer"):
        getattr(game, f"set_{buffer}_enabled")(False)
    return game


def _buttons(game: Any) -> tuple[str, ...]:
    import vizdoom

    kept = [button for button in game.get_available_buttons() if not vizdoom.is_delta_button(button)]
    if not kept:
        raise ConfigError(
            WHERE, "the scenario has no buttons that are pressed or not", "name some as available_buttons"
        )
    game.set_available_buttons(kept)
    return tuple(button.name for button in kept)


LONGEST = 10_000
"""Time limit of scenarios that have none."""
SCENARIOS: dict[str, tuple[dict[str, Any], int]] = {
    "Basic": ({"scenario": "basic"}, 300),
    "DeadlyCorridor": ({"scenario": "deadly_corridor"}, 2100),
    "Deathmatch": ({"scenario": "deathmatch"}, 4200),
    "DefendTheCenter": ({"scenario": "defend_the_center"}, 2100),
    "DefendTheLine": ({"scenario": "defend_the_line"}, LONGEST),
    "E1M1": ({"scenario": "freedoom1", "doom_map": "E1M1", "actions": "combined"}, LONGEST),
    "HealthGathering": ({"scenario": "health_gathering"}, 2100),
    "HealthGatheringSupreme": ({"scenario": "health_gathering_supreme"}, 2100),
    "MyWayHome": ({"scenario": "my_way_home"}, 2100),
    "PredictPosition": ({"scenario": "predict_position"}, 300),
    "TakeCover": ({"scenario": "take_cover"}, LONGEST),
}
"""Arguments, and the time limit in tics, which episodes need in order to be replayed by snapshots."""
for _name, (_kwargs, _tics) in SCENARIOS.items():
    register(f"VizDoom-{_name}-v0", f"{__name__}:VizDoom", max_episode_steps=_tics, kwargs=_kwargs)
