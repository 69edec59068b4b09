"""A contact sheet of what a world model imagines: real, reconstructed and open-loop predicted images, as one small PNG.

python tools/dream_sheet.py RUNS_DIR RUN OUT.png        of the first image of its observations; errors go to stdout
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pygame

from ludus.archive.store import RunFolder
from ludus.imagination import Compared, Imagination, facts
from ludus.reports import dreams
from ludus.session.imagine import imagined
from ludus.session.player import checkpoint_name
from ludus.types import Array

CONTEXT, HORIZON, SEED = 5, 10, 7
COLUMNS = (3, 4, 5, 6, 7, 9, 11, 14)
"""Rows of the episode that are shown: two that the model sees, then predictions."""
SIDE, BORDER, GAP, LEFT, TOP = 60, 2, 4, 110, 24


def sheet(found: Imagination) -> Array:
    """Pixels [H, W, 3] of the episode in which most happens."""
    part = next(iter(found.images))
    shown = [one.shown[part] for one in found.dreams if len(one) >= CONTEXT + HORIZON]
    busiest = max(shown, key=lambda one: float(np.abs(np.diff(one.real, axis=0)).sum()))
    dreams.SIDE = SIDE
    tiles = [dreams.pixels(column, part in found.binary) for column in busiest]
    height, width = (side + 2 * BORDER for side in tiles[0].shape[1:3])
    page = np.empty((TOP + 3 * (height + GAP), LEFT + len(COLUMNS) * (width + GAP), 3), np.uint8)
    page[:] = dreams.PAPER
    for i, row in enumerate(Compared._fields):
        dreams.write(page, row, TOP + i * (height + GAP) + height // 2 - 8, 8, dreams.INK)
    for k, t in enumerate(COLUMNS):
        ahead, x = t - CONTEXT + 1, LEFT + k * (width + GAP)
        told, colour = (f"{t + 1}", dreams.INK) if ahead <= 0 else (f"+{ahead}", dreams.DREAMED)
        dreams.write(page, told, 5, x + 4, colour)
        for i, images in enumerate(tiles):
            y = TOP + i * (height + GAP)
            page[y : y + height, x : x + width] = dreams.DREAMED if i == 2 and ahead > 0 else dreams.SEEN
            page[y + BORDER : y + height - BORDER, x + BORDER : x + width - BORDER] = images[t]
    return page


def main() -> None:
    """Play, imagine, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("run")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    run = RunFolder.load(options.runs_dir, options.run)
    found = imagined(run, checkpoint_name(run, None), 2, CONTEXT, HORIZON, SEED)
    print(json.dumps(facts(found)["errors"]))
    pygame.image.save(pygame.surfarray.make_surface(sheet(found).swapaxes(0, 1)), str(options.out))


if __name__ == "__main__":
    main()
