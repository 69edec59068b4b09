"""What MinAtar's games show: observations written into memory that is there, and frames for people.

A painter sets the cells that the core's own `state()` sets, in an image [C, 10, 10] of zeros; `cells` are its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ludus.types import Array

Core = Any
"""A game of MinAtar: its class `Env`."""
Painter = Callable[[Core, memoryview, Array], None]
PLANE = 100
"""Cells of a channel."""
OXYGEN, DIVERS = 200, 9
"""Seaquest's full tank, and the column where its row of divers ends."""
PIXELS = 32
"""Side of a cell in a frame."""


def breakout(core: Core, cells: memoryview, image: Array) -> None:
    """Paddle, ball, where the ball was, bricks."""
    cells[90 + core.pos] = 1
    cells[100 + 10 * core.ball_y + core.ball_x] = 1
    cells[200 + 10 * core.last_y + core.last_x] = 1
    image[3] = core.brick_map


def asterix(core: Core, cells: memoryview, _: Array) -> None:
    """Player, enemies, where things were, gold."""
    cells[10 * core.player_y + core.player_x] = 1
    for thing in core.entities:
        if thing is not None:
            x, y, rightwards, gold = thing
            cells[(300 if gold else 100) + 10 * y + x] = 1
            _trail(cells, 200, x, y, rightwards)


def freeway(core: Core, cells: memoryview, _: Array) -> None:
    """Chicken, cars, and where the cars were in one channel for each speed."""
    cells[10 * core.pos + 4] = 1
    for x, y, _timer, speed in core.cars:
        cells[100 + 10 * y + x] = 1
        cells[100 + PLANE * abs(speed) + 10 * y + (x - 1 if speed > 0 else x + 1) % 10] = 1


def seaquest(core: Core, cells: memoryview, image: Array) -> None:
    """Front and back of the submarine, its bullets, where things were, the enemies, both gauges, divers."""
    x, row = core.sub_x, 10 * core.sub_y
    cells[row + x] = 1
    cells[100 + row + (x - 1 if core.sub_or else x + 1)] = 1
    image[7, 9, : max(0, core.oxygen) * 10 // OXYGEN] = 1
    image[8, 9, DIVERS - core.diver_count : DIVERS] = 1
    for plane, bullets in ((200, core.f_bullets), (400, core.e_bullets)):
        for x, y, _ in bullets:
            cells[plane + 10 * y + x] = 1
    for plane, swimmers in ((500, core.e_fish), (600, core.e_subs), (900, core.divers)):
        for x, y, rightwards, *_ in swimmers:
            cells[plane + 10 * y + x] = 1
            _trail(cells, 300, x, y, rightwards)


def space_invaders(core: Core, cells: memoryview, image: Array) -> None:
    """Cannon, aliens, the same by their direction, bullets of both sides."""
    cells[90 + core.pos] = 1
    image[1] = core.alien_map
    image[2 if core.alien_dir < 0 else 3] = core.alien_map
    image[4] = core.f_bullet_map
    image[5] = core.e_bullet_map


def _trail(cells: memoryview, plane: int, x: int, y: int, rightwards: bool) -> None:
    behind = x - 1 if rightwards else x + 1
    if 0 <= behind <= 9:
        cells[plane + 10 * y + behind] = 1


PAINTERS: dict[str, Painter] = {
    painter.__name__: painter for painter in (asterix, breakout, freeway, seaquest, space_invaders)
}
"""By the names that MinAtar gives its games."""


def picture(image: Array) -> Array:
    """uint8 [320, 320, 3] of an observation; of several objects in one cell the last channel is seen, as in MinAtar."""
    channels = len(image)
    top = (image * np.arange(1, channels + 1, dtype=np.uint8)[:, None, None]).max(0)
    return palette(channels)[top].repeat(PIXELS, 0).repeat(PIXELS, 1)


def palette(channels: int) -> Array:
    """Black, then a colour for each channel: MinAtar's, which are a cubehelix (Green, 2011), without the darkest."""
    light = np.linspace(0.3, 0.95, channels)[:, None]
    angle = 2 * np.pi * (0.5 / 3 - 1.5 * light)
    swing = np.cos(angle) * [-0.14861, -0.29227, 1.97294] + np.sin(angle) * [1.78277, -0.90649, 0.0]
    colours = (light + light * (1 - light) / 2 * swing).clip(0, 1)
    return np.vstack([np.zeros(3), colours * 255]).astype(np.uint8)
