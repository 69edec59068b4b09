"""Videos that play to the last frame, and a run that cannot tell whether there was a camera."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.archive.video import write_video
from ludus.config.schema import ExperimentConfig
from ludus.config.training import Video
from ludus.envs.make import make_vector
from ludus.envs.vector import VectorEnv
from ludus.errors import ConfigError, MissingExtra
from ludus.metrics.sinks import Row, Sink
from ludus.orchestration.callbacks.videos import Videos
from ludus.play import episodes
from ludus.run import Run
from ludus.seeding import Streams
from ludus.watch import ram
from support import build, close
from support import config as small_config

av = pytest.importorskip("av")


def _config(**evaluation: Any) -> ExperimentConfig:
    evaluation = {"every_epochs": 1, "episodes": 2, "deterministic": False, **evaluation}
    return small_config(
        {"name": "ppo", "rollout_steps": 32}, training={"total_timesteps": 512, "evaluation": evaluation}
    )


def _camera(cfg: ExperimentConfig) -> VectorEnv:
    return make_vector(cfg.environment, num_envs=1, render_mode="rgb_array", vectorization="sync")


def _run(cfg: ExperimentConfig, folder: Path | None, sinks: tuple[Sink, ...] = (), **video: Any) -> Run:
    run = build(cfg, sinks=sinks)
    if folder is not None:
        plan = Video(**{"every_evaluations": 1, **video})
        run.callbacks.append(Videos(folder, plan, lambda: _camera(cfg), Streams(cfg.experiment.seed)))
    run.run()
    close(run)
    return run


def _decode(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_a_decoder_finds_every_frame_and_the_last_one(tmp_path: Path) -> None:
    cfg = _config()
    run = _run(cfg, tmp_path, every_evaluations=4, episodes=2)
    path = tmp_path / "videos" / "epoch=4.mp4"
    assert sorted(path.parent.iterdir()) == [path]
    state = Streams(cfg.experiment.seed).generator("evaluation actions 512").bit_generator.state
    run.evaluator._rng.bit_generator.state = state
    with _camera(cfg) as env, make_vector(cfg.environment, num_envs=2) as others:
        list(episodes(run.evaluator.act, others, Streams(cfg.experiment.seed).integers("evaluation 512", 2), 2))
        seeds = Streams(cfg.experiment.seed).integers("video 512", 1)
        steps = episodes(run.evaluator.act, env, seeds, 2, render=True)
        frames = [frame for step in steps for frame in step.frames]
        end, next_episode = env.render(final=True), env.render()
    decoded = _decode(path)
    assert len(decoded) == len(frames) > 10
    from_end, from_next = (np.abs(decoded[-1].astype(int) - frame).mean() for frame in (end, next_episode))
    assert from_end < from_next / 3  # H.264 loses a little
    with av.open(str(path)) as container:
        assert float(container.streams.video[0].average_rate) == 50.0


@pytest.mark.parametrize("deterministic", [True, False])
def test_neither_training_nor_evaluation_can_tell(tmp_path: Path, deterministic: bool) -> None:
    cfg = _config(deterministic=deterministic)
    seen: list[Any] = []
    for folder in (None, tmp_path):
        rows: list[Row] = []

        class Keep(Sink):
            def write(self, row: Row, rows: list[Row] = rows) -> None:
                rows.append({key: value for key, value in row.items() if key.startswith(("val/roll", "train/loss"))})

        run = _run(cfg, folder, (Keep(),))
        seen.append((rows, run.algorithm.learner.theta.tolist(), run.exploration.bit_generator.state))
    assert len(list((tmp_path / "videos").iterdir())) == 4
    assert seen[0] == seen[1]


def test_the_same_seed_makes_the_same_video(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _run(_config(), tmp_path / name, every_evaluations=4)
    first, again = (_decode(tmp_path / name / "videos" / "epoch=4.mp4") for name in ("a", "b"))
    assert np.array_equal(first, again)


def test_cadence_length_and_one_message_per_file(tmp_path: Path) -> None:
    class Takes(Sink):
        files: list[tuple[str, int]] = []

        def write(self, row: Row) -> None:
            """Rows are not looked at here."""

        def file(self, path: Path, env_steps: int) -> None:
            assert path.stat().st_size > 1_000
            self.files.append((path.name, env_steps))

    _run(_config(), tmp_path, (Takes(),), every_evaluations=2, episodes=50, max_steps=7)
    assert Takes.files == [("epoch=2.mp4", 256), ("epoch=4.mp4", 512)]
    steps = len(_decode(tmp_path / "videos" / "epoch=2.mp4"))
    assert steps == 8  # seven steps and the state before them


def test_the_link_stands_beside_its_checkpoint_and_goes_with_it(tmp_path: Path) -> None:
    cfg = _config()
    run = build(cfg)
    videos = Videos(tmp_path, Video(every_evaluations=2), lambda: _camera(cfg), Streams(1))
    run.callbacks.append(videos)
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "step=512").mkdir(parents=True)
    (checkpoints / "step=64.mp4").symlink_to("../videos/epoch=1.mp4")  # its checkpoint was pruned
    run.run()
    close(run)
    assert [path.name for path in checkpoints.glob("*.mp4")] == ["step=512.mp4"]
    assert (checkpoints / "step=512.mp4").resolve() == (tmp_path / "videos" / "epoch=4.mp4").resolve()


def test_the_count_survives_a_resume() -> None:
    before, after = (Videos(Path(), Video(every_evaluations=2), lambda: None, Streams(1)) for _ in range(2))  # type: ignore[arg-type, return-value]
    before.count = 3
    after.load_state_dict(before.state_dict())
    assert after.count == 3


def test_without_the_encoder_the_run_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtra, match=r"training\.evaluation\.video.*pip install 'ludus-rl\[video\]'"):
        _run(_config(), tmp_path)


def test_an_environment_without_pictures_does_not_start(tmp_path: Path) -> None:
    cfg = small_config(env="Bandit-v0", training={"evaluation": {"every_epochs": 1}})
    with pytest.raises(ConfigError, match="cannot be shown as 'rgb_array'"):
        _run(cfg, tmp_path)


@contextmanager
def _small_files(limit: int) -> Iterator[None]:
    """Writing beyond the limit fails as on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_costs_the_video_and_one_warning(tmp_path: Path) -> None:
    cfg, warnings = _config(), []
    run = build(cfg)
    run.callbacks.append(
        Videos(tmp_path, Video(every_evaluations=1), lambda: _camera(cfg), Streams(1), warn=warnings.append)
    )
    with _small_files(1_000):
        run.run()
    close(run)
    assert run.progress.env_steps == 512
    assert len(warnings) == 1
    assert "File too large; training goes on" in warnings[0]
    assert os.listdir(tmp_path / "videos") == []  # noqa: PTH208 - hidden files too


def test_memory_stays_flat(tmp_path: Path) -> None:
    picture = np.zeros((240, 320, 3), np.uint8)

    def frames(count: int) -> Iterator[np.ndarray]:
        for i in range(count):
            picture[i % 240] = i % 256
            yield picture.copy()

    write_video(tmp_path / "a.mp4", frames(100), 30)  # the encoder has its buffers now
    before = ram.used()
    assert write_video(tmp_path / "b.mp4", frames(600), 30) == 600  # 138 MB of pictures
    assert ram.used() - before < 48 * ram.MB  # the heap may grow by what other tests left in pieces


def test_every_checkpoint_gets_its_video_even_if_it_is_written_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer may be several evaluations behind; an evaluation that was not saved gets no link."""
    from types import SimpleNamespace

    camera: Any = None
    videos = Videos(tmp_path, Video(every_evaluations=1), lambda: camera, Streams(1))
    monkeypatch.setattr(videos, "_record", lambda *_: True)
    parent = tmp_path / "checkpoints"
    parent.mkdir()
    for epoch in (1, 2, 3, 4):
        run: Any = SimpleNamespace(
            progress=SimpleNamespace(epochs=epoch), evaluator=None, recorder=SimpleNamespace(file=lambda *_, **__: None)
        )
        result: Any = SimpleNamespace(env_steps=64 * epoch)
        videos.on_evaluation(run, result)
        videos.on_epoch_end(run)
    for step in (64, 192):
        (parent / f"step={step}").mkdir()
    videos.on_epoch_end(run)
    links = {path.name: str(path.readlink()) for path in parent.glob("*.mp4")}
    assert links == {"step=64.mp4": "../videos/epoch=1.mp4", "step=192.mp4": "../videos/epoch=3.mp4"}
    (parent / "step=256").mkdir()
    (parent / "step=64").rmdir()
    videos.on_end(run)
    assert sorted(path.name for path in parent.glob("*.mp4")) == ["step=192.mp4", "step=256.mp4"]
