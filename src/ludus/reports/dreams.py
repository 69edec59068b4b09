"""Draws what a world model imagined: a video of every image it predicts, a plot of every number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ludus.archive.video import write_video
from ludus.errors import MissingExtra
from ludus.imagination import Compared, DreamedEpisode, Imagination
from ludus.reports.plots import PALETTE, panels
from ludus.text import clean, safe_name
from ludus.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FPS = 8
MOST_VIDEO, MOST_PLOTTED, MOST_NUMBERS = 6, 4, 8
"""Episodes side by side in a video and in a plot; numbers of an observation in a plot."""
SIDE = 192
"""Pixels that the longer side of an image is enlarged to, roughly."""
BORDER, GAP, LEFT, TOP = 4, 6, 124, 30
PAPER, INK, SEEN, DREAMED, OVER = (22, 27, 34), (228, 233, 239), (110, 122, 137), (230, 159, 0), (44, 52, 62)
"""Colours of the video; the orange border says that the model sees nothing any more."""
KINDS = np.array(
    [(86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66), (213, 94, 0), (0, 114, 178)]
)
"""Colours of channels that say yes or no."""


def draw(found: Imagination, folder: Path) -> list[Path]:
    """Write all pictures into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for part, name in found.images.items():
        if part in found.dreams[0].shown:
            path = folder / f"{safe_name(name)}.mp4"
            write_video(path, frames(found, part), FPS)
            written.append(path)
    path = folder / "predictions.png"
    plot(found, path)
    return [*written, path]


# ---- video ---------------------------------------------------------------------------------------


def frames(found: Imagination, part: str) -> Iterator[Array]:
    """Frames [H, W, 3] of a video: the real images, the reconstructed and the predicted ones of several episodes."""
    shown = [one.shown[part] for one in found.dreams[:MOST_VIDEO]]
    tiles = [[pixels(column, part in found.binary) for column in one] for one in shown]
    height, width = tiles[0][0].shape[1] + 2 * BORDER, tiles[0][0].shape[2] + 2 * BORDER
    page = np.empty((TOP + 3 * (height + GAP), LEFT + max(len(tiles) * (width + GAP), 200), 3), np.uint8)
    page[:] = PAPER
    for i, row in enumerate(Compared._fields):
        write(page, row, TOP + i * (height + GAP) + height // 2 - 8, 10, INK)
    for t in range(max(len(one.real) for one in shown)):
        frame, ahead = page.copy(), t - found.context + 1
        told = f"observed {t + 1} of {found.context}" if ahead <= 0 else f"imagined {ahead} ahead"
        write(frame, told, 8, LEFT, INK if ahead <= 0 else DREAMED)
        for column, three in enumerate(tiles):
            for i, images in enumerate(three):
                y, x = TOP + i * (height + GAP), LEFT + column * (width + GAP)
                over = t >= len(images)
                frame[y : y + height, x : x + width] = OVER if over else DREAMED if i == 2 and ahead > 0 else SEEN
                image = images[-1] // 3 if over else images[t]
                frame[y + BORDER : y + height - BORDER, x + BORDER : x + width - BORDER] = image
        yield frame


def pixels(images: Array, binary: bool) -> Array:
    """Images [T, C, H, W] between 0 and 1 as enlarged colours [T, H, W, 3]; of a stack of images the newest."""
    channels, side = images.shape[1], max(images.shape[2:])
    if binary and channels > 1:
        colours = KINDS[np.arange(channels) % len(KINDS)] / 255
        rgb = np.einsum("tchw,cd->thwd", images.clip(0, 1), colours)
    else:
        newest = images[:, -3:] if channels % 3 == 0 else images[:, -1:].repeat(3, 1)
        rgb = np.moveaxis(newest, 1, -1)
    small = (rgb.clip(0, 1) * 255).round().astype(np.uint8)
    scale = max(1, round(SIDE / side))
    return small.repeat(scale, 1).repeat(scale, 2)


def write(page: Array, text: str, y: int, x: int, colour: tuple[int, int, int]) -> None:
    """Put a line of text into a picture."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError:
        raise MissingExtra("video", "video") from None
    pygame.font.init()
    drawn = pygame.font.Font(None, 20).render(text, True, colour, PAPER)
    image = pygame.surfarray.array3d(drawn).swapaxes(0, 1)[: page.shape[0] - y, : page.shape[1] - x]
    page[y : y + image.shape[0], x : x + image.shape[1]] = image


# ---- plot ----------------------------------------------------------------------------------------


def plot(found: Imagination, path: Path) -> None:
    """A panel for each number of an observation, for reward and for value; a column for each episode."""
    lines = [curves(one, found) for one in found.dreams[:MOST_PLOTTED]]
    names, columns = list(lines[0]), len(lines)
    with panels(path, len(names), columns, (1.8 + 2.7 * columns, 1.1 + 1.3 * len(names))) as (figure, axes):
        for row, name in enumerate(names):
            around = limits([one[name] for one in lines])
            for column, (axis, one) in enumerate(zip(axes[row], lines, strict=True)):
                draw_curves(axis, one[name], found.context)
                axis.set_xlim(0, found.context + found.horizon - 1)
                axis.set_ylim(around)
                axis.locator_params(axis="x", integer=True, prune="upper")
                axis.tick_params(labelleft=column == 0, labelbottom=row == len(names) - 1)
                if row == 0:
                    axis.set_title(f"episode {column + 1}")
            axes[row][0].set_ylabel(clean(name, 24), rotation=0, ha="right", va="center")
        figure.align_ylabels(axes[:, 0])
        figure.supxlabel("step of the episode", fontsize=10)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper right", ncols=4, frameon=False)


def curves(one: DreamedEpisode, found: Imagination) -> dict[str, Compared]:
    """What is plotted of an episode, by name."""
    rows, vector, told = slice(found.context + found.horizon), one.shown.get("vector"), {}
    if vector is not None:
        for i, label in enumerate(found.labels[:MOST_NUMBERS]):
            told[label] = Compared(*(part[:, i] for part in vector))
    told["reward"] = Compared(*(part[rows].copy() for part in one.reward))
    for part in told["reward"]:
        part[0] = np.nan  # nothing led to the first observation
    if one.value is not None:
        told["value"] = Compared(*(part[rows] for part in one.value))
    return told


def limits(lines: list[Compared]) -> tuple[float, float]:
    """The range of an axis: all of the real numbers, and predictions that are not far from them."""
    real = np.concatenate([one.real for one in lines])
    both = np.concatenate([real, *(one.predicted for one in lines)])
    low, high = float(np.nanmin(real)), float(np.nanmax(real))
    room = max(2 * (high - low), abs(low), abs(high)) or 1.0
    low, high = max(float(np.nanmin(both)), low - room), min(float(np.nanmax(both)), high + room)
    margin = max(0.05 * (high - low), 0.02 * room)
    return low - margin, high + margin


def draw_curves(axis: Axes, one: Compared, context: int) -> None:
    """Real, reconstructed and predicted numbers; the context is shaded."""
    steps = np.arange(len(one.real))
    axis.axvspan(0, context - 1, color="#EEF1F4", zorder=0, label="context")
    axis.plot(steps, one.real, color="#333333", linewidth=1.6, label="real", zorder=2)
    axis.plot(steps, one.reconstructed, color=PALETTE[5], linewidth=1.2, label="reconstructed", zorder=3)
    axis.plot(steps[context - 1 :], one.predicted[context - 1 :], color=PALETTE[1], linewidth=1.6, label="predicted",
              zorder=4)  # fmt: skip
