"""A window that shows frames and turns keys into actions, for `ludus play --user`.

Not Gymnasium's `play`: that one imports matplotlib, loses keys that are tapped between two steps, and steps an
environment itself instead of the vector environment that counts our episodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.envs import Action
from ludus.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.types import Array

WHERE = "--user"
HEIGHT = 480
"""Least height of the window; smaller frames are enlarged by a whole factor."""
UNSEEN = ("dummy", "offscreen")
"""Drivers of SDL without a visible window."""
_WORDS = {"left": "left", "right": "right", "up": "up", "down": "down", "main": "up", "fire": "space", "jump": "space"}
_IDLE = ("noop", "no-op", "nothing", "idle", "coast", "don't", "stay")
_ORDERS = {2: ("left", "right"), 3: ("left", None, "right"), 4: ("left", "down", "right", "up")}
"""Usual orders of unlabelled actions; four are those of grid worlds."""
_AXES = (("left", "right"), ("down", "up"), ("a", "d"), ("s", "w"))


class Quit(Exception):
    """The player closed the window or pressed Escape."""


@dataclass(frozen=True)
class Keys:
    """Which key does what; without an idle action the game waits for a key."""

    actions: dict[str, Any]
    """Key name -> action, or for vectors (entry, value)."""
    idle: Action = None
    vector: bool = False

    def action(self, held: Sequence[str]) -> Action:
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
        if self.vector:
            meanings = {key: f"{i}{'+' if value > 0 else '-'}" for key, (i, value) in self.actions.items()}
        else:
            meanings = {key: labels[i] if labels else str(i) for key, i in self.actions.items()}
        return "  ".join(f"{key}: {meaning}" for key, meaning in meanings.items()) + "  esc: end"


def keys_for(space: gym.Space, labels: Sequence[str]) -> Keys:
    """Keys by the labels of the actions if there are any, otherwise by custom."""
    import numpy as np
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return _discrete(int(space.n), labels)
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and len(space.low) <= len(_AXES):
        low = np.where(np.isfinite(space.low), space.low, -1.0).astype(np.float32)
        high = np.where(np.isfinite(space.high), space.high, 1.0).astype(np.float32)
        actions: dict[str, Any] = {}
        for i, (down, up) in enumerate(_AXES[: len(low)]):
            actions |= {down: (i, float(low[i])), up: (i, float(high[i]))}
        return Keys(actions, np.clip(np.zeros_like(low), low, high), vector=True)
    raise ConfigError(WHERE, f"there are no keys for {space}", "watch the trained policy or --random instead")


def _discrete(count: int, labels: Sequence[str]) -> Keys:
    idle = next((i for i, label in enumerate(labels) if any(word in label.lower() for word in _IDLE)), None)
    named: dict[str, int] = {}
    for i, label in enumerate(labels):
        word = next((word for word in _WORDS if word in label.lower().split()), None)
        if word is not None:
            named.setdefault(_WORDS[word], i)
    if not named and count in _ORDERS:
        named = {name: i for i, name in enumerate(_ORDERS[count]) if name is not None}
        idle = 1 if count == 3 and idle is None else idle
    return Keys({**named, **{str(i): i for i in range(min(count, 10))}}, idle)


class KeyboardWindow:
    """Shows frames and reads keys."""

    def __init__(self, keys: Keys, title: str, fps: float) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError:
            raise MissingExtra(WHERE, "video") from None
        from ludus.envs.catalog import headless

        self.keys, self.fps, self._pygame = keys, fps, pygame
        headless("human")  # undoes the setting of environments that render off-screen
        pygame.display.quit()
        self._opened(pygame.display.init)
        if pygame.display.get_driver() in UNSEEN:  # SDL falls back to these when the display does not answer
            raise ConfigError(WHERE, "no window can be opened: the display does not answer", "check DISPLAY")
        pygame.display.set_caption(title)
        self._clock = pygame.time.Clock()

    def show(self, frame: Array) -> None:
        """Draw a frame [H, W, 3]."""
        pygame = self._pygame
        height, width = frame.shape[:2]
        factor = max(1, -(-HEIGHT // height))
        size, screen = (width * factor, height * factor), pygame.display.get_surface()
        if screen is None or screen.get_size() != size:
            screen = self._opened(pygame.display.set_mode, size)
        pygame.transform.scale(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), size, screen)
        pygame.display.flip()

    def _opened(self, call: Callable[..., Any], *args: object) -> Any:
        try:
            return call(*args)
        except self._pygame.error as error:
            raise ConfigError(WHERE, f"no window can be opened: {error}", "it needs a display") from None

    def action(self) -> Action:
        """Wait for the next tick, and for a key if there is no idle action."""
        while True:
            self._clock.tick(self.fps)
            action = self.keys.action(self._held())
            if action is not None:
                return action

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()

    def _held(self) -> list[str]:
        """Keys that are down now, or were pressed since the last call."""
        pygame = self._pygame
        down = []
        for event in pygame.event.get():
            if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                raise Quit
            if event.type == pygame.KEYDOWN:
                down.append(pygame.key.name(event.key))
        pressed = pygame.key.get_pressed()
        return [*(name for name in self.keys.actions if pressed[pygame.key.key_code(name)]), *down]
