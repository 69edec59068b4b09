"""Keys become actions; with a virtual screen there is a window that is not black."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from ludus.cli.keyboard import keys_for
from ludus.errors import ConfigError

Box, Discrete = gym.spaces.Box, gym.spaces.Discrete


@pytest.mark.parametrize(
    ("count", "labels", "held", "action"),
    [
        (2, [], ["left"], 0),
        (2, [], ["right"], 1),
        (2, [], [], None),  # nothing to do nothing with: wait
        (3, [], [], 1),
        (3, [], ["right"], 2),
        (4, [], ["up"], 3),
        (4, [], ["down"], 1),
        (4, ["do nothing", "fire left engine", "fire main engine", "fire right engine"], [], 0),
        (4, ["do nothing", "fire left engine", "fire main engine", "fire right engine"], ["up"], 2),
        (4, ["do nothing", "fire left engine", "fire main engine", "fire right engine"], ["right"], 3),
        (6, ["noop", "fire", "right", "left", "rightfire", "leftfire"], ["space"], 1),
        (10, [], ["7"], 7),
        (10, [], ["left", "x"], None),
        (2, [], ["left", "right"], 1),
    ],
)
def test_keys_of_choices(count: int, labels: list[str], held: list[str], action: int | None) -> None:
    assert keys_for(Discrete(count), labels).action(held) == action


def test_keys_of_vectors() -> None:
    keys = keys_for(Box(np.array([-2.0, 0.0, -np.inf]), np.array([2.0, 1.0, np.inf]), dtype=np.float64), [])
    assert keys.action([]).tolist() == [0.0, 0.0, 0.0]
    assert keys.action(["left", "up", "d"]).tolist() == [-2.0, 1.0, 1.0]
    assert keys.action([]).tolist() == [0.0, 0.0, 0.0]  # nothing sticks
    assert keys.action([]).dtype == np.float32


def test_help_names_keys_and_actions() -> None:
    assert keys_for(Discrete(2), ["push left", "push right"]).help(["push left", "push right"]) == (
        "left: push left  right: push right  0: push left  1: push right  esc: end"
    )
    assert keys_for(Box(-1, 1, (1,)), []).help([]) == "left: 0-  right: 0+  esc: end"


@pytest.mark.parametrize("space", [gym.spaces.MultiDiscrete([2, 2]), Box(-1, 1, (9,)), Box(0, 255, (8, 8), np.uint8)])
def test_spaces_without_keys(space: gym.Space) -> None:
    with pytest.raises(ConfigError, match="--user: there are no keys for"):
        keys_for(space, [])


class Screen:
    """A virtual screen whose pixels are a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "Xvfb_screen0"
        reader, writer = os.pipe()
        command = ["Xvfb", "-displayfd", str(writer), "-screen", "0", "800x600x24", "-fbdir", str(folder)]
        self.process = subprocess.Popen(
            [*command, "-nolisten", "tcp"], pass_fds=[writer], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(writer)
        with os.fdopen(reader) as answer:
            self.display = f":{answer.readline().strip()}"

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SDL_")}
        return {**kept, "DISPLAY": self.display, "SDL_AUDIODRIVER": "dummy"}

    def lit(self) -> int:
        """Pixels that are not black: the file is an X window dump, whose header says its own size."""
        data = self.file.read_bytes()
        header, colours = struct.unpack(">I", data[:4])[0], struct.unpack(">I", data[76:80])[0]
        pixels = np.frombuffer(data[header + 12 * colours :], np.uint32)
        return int(np.count_nonzero(pixels & 0xFFFFFF))


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    if shutil.which("Xvfb") is None:
        pytest.skip("no Xvfb")
    pytest.importorskip("pygame")
    screen = Screen(tmp_path)
    yield screen
    screen.process.terminate()
    screen.process.wait(10)


@pytest.mark.slow
def test_a_window_shows_the_episode(screen: Screen, tmp_path: Path) -> None:
    assert screen.lit() == 0
    command = [sys.executable, "-m", "ludus", "play", "CartPole-v1:ppo", "--random", "--render", "human"]
    done = subprocess.Popen(
        [*command, "--episodes", "1", "--fps", "8", "--seed", "1"],
        env=screen.environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    most = 0
    while done.poll() is None:
        most = max(most, screen.lit())
        time.sleep(0.05)
    assert done.returncode == 0, done.stderr.read() if done.stderr else ""
    assert most > 100_000  # a white CartPole window of 600 x 400


_PLAY = """
import sys, threading, time
import pygame
from ludus.cli.play import play_yourself
from ludus.config.schema import Environment
from ludus.envs.make import make_vector

def press():
    while not pygame.display.get_init() or pygame.display.get_surface() is None:
        time.sleep(0.01)
    for key in [pygame.K_RIGHT] * 40:
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))
        time.sleep(0.03)
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE))

threading.Thread(target=press, daemon=True).start()
with make_vector(Environment(id="CartPole-v1"), num_envs=1, render_mode="rgb_array", vectorization="sync") as env:
    print(play_yourself(env, episodes=2, seed=1, fps=60, say=print))
print("driver", pygame.display.get_init())
"""


def test_a_person_plays_and_leaves(screen: Screen, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PLAY],
        env=screen.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("esc: end")
    episodes = [line for line in lines if line.startswith("episode")]
    assert episodes
    assert all(8 <= int(line.split()[5]) <= 11 for line in episodes)  # always right: the pole falls in about ten steps
    assert lines[-1] == "driver False"


_OPEN = """
from gymnasium.spaces import Discrete
from ludus.cli.keyboard import KeyboardWindow, keys_for
KeyboardWindow(keys_for(Discrete(2), []), "x", 30)
"""


@pytest.mark.parametrize("driver", [{"DISPLAY": ":987"}, {"SDL_VIDEODRIVER": "dummy"}])
def test_a_screen_that_is_not_there_is_one_line(tmp_path: Path, driver: dict[str, str]) -> None:
    pytest.importorskip("pygame")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SDL_", "WAYLAND_", "DISPLAY"))}
    environment = {**kept, "XDG_RUNTIME_DIR": str(tmp_path), **driver}
    done = subprocess.run([sys.executable, "-c", _OPEN], env=environment, capture_output=True, text=True, timeout=30)
    assert done.stderr.splitlines()[-1].startswith("ludus.errors.ConfigError: --user: no window can be opened")
