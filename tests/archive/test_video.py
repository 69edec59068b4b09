"""Videos: playable, complete to the last frame, streamed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ludus.archive.video import write_video
from ludus.errors import MissingExtra

av = pytest.importorskip("av")


def _frames(count: int, height: int = 64, width: int = 96) -> Iterator[np.ndarray]:
    """Red fading in; the last frame is blue."""
    for i in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[..., 2 if i == count - 1 else 0] = 255 if i == count - 1 else i * 255 // count
        yield frame


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _decode(path: Path) -> tuple[list[np.ndarray], float, str]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        return frames, float(stream.average_rate), stream.codec_context.pix_fmt


@pytest.mark.parametrize("count", [1, 2, 61])
def test_every_frame_is_there_with_the_last(tmp_path: Path, count: int) -> None:
    path = tmp_path / "a.mp4"
    assert write_video(path, _frames(count), 25) == count
    frames, fps, pixels = _decode(path)
    assert len(frames) == count
    assert (fps, pixels) == (25.0, "yuv420p")
    assert frames[-1].mean((0, 1)) == pytest.approx([0, 0, 255], abs=6)
    if count > 2:
        assert frames[count // 2].mean((0, 1)) == pytest.approx([255 * (count // 2) / count, 0, 0], abs=8)
    assert _names(tmp_path) == ["a.mp4"]


def test_odd_sizes_and_slices(tmp_path: Path) -> None:
    wide = (frame[:, ::2] for frame in _frames(5, 65, 194))
    assert write_video(tmp_path / "a.mp4", wide, 12.5) == 5
    frames, fps, _ = _decode(tmp_path / "a.mp4")
    assert frames[0].shape == (66, 98, 3)
    assert fps == 12.5


def test_no_frames_no_file(tmp_path: Path) -> None:
    assert write_video(tmp_path / "a.mp4", iter(()), 30) == 0
    assert _names(tmp_path) == []


def test_a_failing_episode_keeps_the_old_video_and_leaves_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    write_video(path, _frames(3), 30)
    before = path.read_bytes()

    def broken() -> Iterator[np.ndarray]:
        yield from _frames(2)
        raise RuntimeError("the environment died")

    with pytest.raises(RuntimeError, match="died"):
        write_video(path, broken(), 30)
    assert path.read_bytes() == before
    assert _names(tmp_path) == ["a.mp4"]


@pytest.mark.parametrize(
    "frame", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 4), np.uint8)]
)
def test_what_is_no_frame(tmp_path: Path, frame: np.ndarray) -> None:
    with pytest.raises(ValueError, match="uint8"):
        write_video(tmp_path / "a.mp4", iter([frame]), 30)


def test_frames_are_pulled_one_at_a_time(tmp_path: Path) -> None:
    """Memory stays flat: no frame is alive long after it was handed over."""
    import weakref

    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    def watched() -> Iterator[np.ndarray]:
        nonlocal most
        for frame in _frames(200):
            alive.append(weakref.ref(frame))
            most = max(most, sum(reference() is not None for reference in alive))
            yield frame

    write_video(tmp_path / "a.mp4", watched(), 30)
    assert most <= 3


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ludus-rl\[video\]'"):
        write_video(tmp_path / "a.mp4", _frames(1), 30)
