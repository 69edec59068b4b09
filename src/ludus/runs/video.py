"""Writes MP4 files from a stream of frames, with bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ludus import files
from ludus.errors import MissingExtra


def write_video(path: Path, frames: Iterable[np.ndarray], fps: float) -> int:
    """Encode uint8 [H, W, 3] frames as H.264 and return their number; without frames there is no file."""
    try:
        import av
    except ImportError:
        raise MissingExtra("video", "video") from None
    temporary = files.beside(path)
    files.write_new(temporary, b"")
    count = 0
    try:
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "faststart"}) as container:
            stream: Any = None
            for frame in frames:
                picture = _even(frame)
                if stream is None:
                    stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
                    stream.height, stream.width = picture.shape[:2]
                    stream.pix_fmt = "yuv420p"  # the format that browsers and phones play
                    stream.options = {"crf": "20", "preset": "veryfast"}
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
                count += 1
            if stream is not None:
                container.mux(stream.encode(None))
        if count:
            temporary.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    return count


def _even(frame: np.ndarray) -> np.ndarray:
    """H.264 needs even sizes: repeat the last row or column of an odd one."""
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise ValueError(f"expected a uint8 [H, W, 3] frame, got {frame.dtype} {frame.shape}")
    height, width = frame.shape[:2]
    padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge") if height % 2 or width % 2 else frame
    return np.ascontiguousarray(padded)
