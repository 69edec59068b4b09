"""A window that shows frames and turns keys into actions, for `ludus play --user`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.types import Array

WHERE = "--user"
HEIGHT = 480
"""Least height of the window; smaller frames are enlarged by a whole factor."""
UNSEEN = ("dummy", "offscreen")
"""Drivers nobody can see anything with."""
_WORDS = {"left": "left", "right": "right", "up": "up", "down": "down", "main": "up", "fire": "space", "jump": "space"}
_IDLE = ("noop", "no-op", "nothing", "idle", "coast", "don't", "stay")
_ORDERS = {2: ("left", "right"), 3: ("left", None, "right"), 4: ("left", "down", "right", "up")}
"""Usual orders of unlabelled actions; four are those of grid worlds."""
_AXES = (("left", "right"), ("down", "up"), ("a", "d"), ("s", "w"))


class Quit(Exception):
    """The player has seen enough."""


@dataclass(frozen=True)
class Keys:
    """Which key does what; without an idle action the game waits for a key."""

    actions: dict[str, Any]
    """Key name -> action, or for vectors (number, value)."""
    idle: Any = None
    vector: bool = False

    def action(self, held: Sequence[str]) -> Any:
        """The action of the keys that are down; None: wait."""
        found = [self.actions[name] for name in held if name in self.actions]
        if not self.vector:
            return found[-1] if found else self.idle
        action = self.idle.copy()
        for index, value in found:
            action[index] = value
        return action

    def help(self, labels: Sequence[str]) -> str:
        """One line that says what to press."""
        told = {name: f"{i}{'+' if v > 0 else '-'}" if self.vector else (labels[i] if labels else i)
                for name, (i, v) in ((n, a if self.vector else (a, 0)) for n, a in self.actions.items())}  # fmt: skip
        return "  ".join(f"{name}: {what}" for name, what in told.items()) + "  esc: end"


def keys_for(space: gym.Space, labels: Sequence[str]) -> Keys:
    """Keys by the labels of the actions where there are any, else by custom."""
    import numpy as np
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return _discrete(int(space.n), labels)
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and len(space.low) <= len(_AXES):
        low = np.where(np.isfinite(space.low), space.low, -1.0).astype(np.float32)
        high = np.where(np.isfinite(space.high), space.high, 1.0).astype(np.float32)
        pairs = zip(_AXES, zip(low, high, strict=True), strict=False)
        actions = {
            key: (i, float(v)) for i, (axis, ends) in enumerate(pairs) for key, v in zip(axis, ends, strict=True)
        }
        return Keys(actions, np.clip(np.zeros_like(low), low, high), vector=True)
    raise ConfigError(WHERE, f"there are no keys for {space}", "watch the trained policy or --random instead")


def _discrete(count: int, labels: Sequence[str]) -> Keys:
    digits: dict[str, Any] = {str(i): i for i in range(min(count, 10))}
    idle = next((i for i, label in enumerate(labels) if any(word in label.lower() for word in _IDLE)), None)
    named: dict[str, Any] = {}
    for i, label in enumerate(labels):
        word = next((word for word in _WORDS if word in label.lower().split()), None)
        if word is not None:
            named.setdefault(_WORDS[word], i)
    if not named and count in _ORDERS:
        named = {name: i for i, name in enumerate(_ORDERS[count]) if name is not None}
        idle = 1 if count == 3 and idle is None else idle
    return Keys({**named, **digits}, idle)


class Window:
    """Frames on the screen, keys from it."""

    def __init__(self, keys: Keys, title: str, fps: float) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError:
            raise MissingExtra(WHERE, "video") from None
        from ludus.envs.catalog import headless

        self.keys, self.fps, self._pygame = keys, fps, pygame
        headless("human")  # environments that draw off the screen have asked for none
        try:
            pygame.display.quit()
            pygame.display.init()
        except pygame.error as error:
            raise ConfigError(WHERE, f"no window can be opened: {error}", "it needs a display") from None
        if pygame.display.get_driver() in UNSEEN:  # what SDL falls back to when the display does not answer
            raise ConfigError(WHERE, "no window can be opened: the display does not answer", "check DISPLAY")
        pygame.display.set_caption(title)
        self._screen: Any = None
        self._clock = pygame.time.Clock()

    def show(self, frame: Array) -> None:
        """Draw a frame [H, W, 3]."""
        pygame = self._pygame
        height, width = frame.shape[:2]
        factor = max(1, -(-HEIGHT // height))
        size = (width * factor, height * factor)
        if self._screen is None or self._screen.get_size() != size:
            try:
                self._screen = pygame.display.set_mode(size)
            except pygame.error as error:
                raise ConfigError(WHERE, f"no window can be opened: {error}", "it needs a display") from None
        picture = pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        self._screen.blit(pygame.transform.scale(picture, size), (0, 0))
        pygame.display.flip()

    def action(self) -> Any:
        """Wait for the next tick, and for a key if there is no idle action."""
        while True:
            self._clock.tick(self.fps)
            action = self.keys.action(self._held())
            if action is not None:
                return action

    def close(self) -> None:
        """Give the screen back."""
        self._pygame.display.quit()

    def _held(self) -> list[str]:
        """Keys that are down now, or went down since the last look."""
        pygame = self._pygame
        down = []
        for event in pygame.event.get():
            if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                raise Quit
            if event.type == pygame.KEYDOWN:
                down.append(pygame.key.name(event.key))
        pressed = pygame.key.get_pressed()
        return [*(name for name in self.keys.actions if pressed[pygame.key.key_code(name)]), *down]
