"""Pictures as PNG, and packs: many pictures one after another in one file, with a list of where each begins."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from types import TracebackType

import numpy as np

from ludus.types import Array

MOST_CHANNELS = 32
_LEVEL = 1  # a third larger than level 6, in less than half of the time


def png(image: Array) -> bytes:
    """A uint8 image [H, W], or [H, W, C] with 1, 3 or 4 channels, as PNG."""
    height, width = image.shape[:2]
    colour = {3: 2, 4: 6}.get(image.shape[2], 0) if image.ndim == 3 else 0
    rows = np.ascontiguousarray(image, np.uint8).reshape(height, -1)
    filtered = np.concatenate([np.zeros((height, 1), np.uint8), rows], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), _LEVEL)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def picture(image: Array) -> str:
    """A picture as text for JSON."""
    return base64.b64encode(png(image)).decode()


def grid(maps_CHW: Array, gap: int = 1) -> Array:
    """Several maps [C, H, W] side by side in one picture, at most so many rows as columns."""
    maps = maps_CHW[:MOST_CHANNELS]
    count, height, width = maps.shape
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    out = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap), 128, np.uint8)
    for i, one in enumerate(maps):
        y, x = (i // columns) * (height + gap), (i % columns) * (width + gap)
        out[y : y + height, x : x + width] = one
    return out


def shades(values: Array, low: float | None = None, high: float | None = None) -> Array:
    """Numbers as shades of grey from their smallest (black) to their largest (white); what is not finite is black."""
    finite = np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    least, most = finite.min() if low is None else low, finite.max() if high is None else high
    return np.clip((finite - least) / max(most - least, 1e-12) * 255, 0, 255).astype(np.uint8)


class Pack:
    """A file of pictures; `index` says where each begins and, last, where the file ends."""

    def __init__(self, path: Path) -> None:
        self._file, self.index = path.open("wb"), [0]

    def add(self, image: Array) -> int:
        """Append a picture and return its number."""
        data = png(image)
        self._file.write(data)
        self.index.append(self.index[-1] + len(data))
        return len(self.index) - 2

    def __enter__(self) -> Pack:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()
