"""Recordings of the evaluated policy as `videos/epoch=N.mp4`, with a link beside the checkpoint of the same step.

They are made after the evaluation, in a separate environment with separate seeds. The next evaluation sets the stream
that `act` draws from anew, so that a video changes neither training nor evaluation.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import files
from ludus.archive.video import write_video
from ludus.config.training import Video
from ludus.envs.vector import VectorEnv
from ludus.errors import MissingExtra
from ludus.orchestration.callbacks import Callback
from ludus.play import episodes
from ludus.progress import CHECKPOINTS
from ludus.seeding import Streams

if TYPE_CHECKING:
    from ludus.orchestration.evaluator import EvalResult, Evaluator
    from ludus.run import Run


class Videos(Callback):
    """`make_env` makes one environment that renders `rgb_array`."""

    def __init__(
        self,
        folder: Path,
        cfg: Video,
        make_env: Callable[[], VectorEnv],
        streams: Streams,
        *,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder, self.cfg, self.warn = folder, cfg, warn
        self.count = 0
        """Evaluations so far."""
        self._make_env, self._streams = make_env, streams
        self._env: VectorEnv | None = None
        self._unlinked: dict[int, Path] = {}
        self._checkpoint = "step"
        self._warned = False

    def on_start(self, run: Run) -> None:
        """Fail now rather than at the first evaluation if there is no encoder or no renderer."""
        if importlib.util.find_spec("av") is None:
            raise MissingExtra("training.evaluation.video", "video")
        self._checkpoint = CHECKPOINTS[run.scheduler.budget.unit]
        self._env = self._make_env()
        self._env.reset(self._streams.integers("video", 1))
        self._env.render()

    def on_evaluation(self, run: Run, result: EvalResult) -> None:
        """Record one evaluation in `every_evaluations`."""
        self.count += 1
        if self.count % self.cfg.every_evaluations:
            return
        path = self.folder / "videos" / f"epoch={run.progress.epochs}.mp4"
        if self._record(run.evaluator, path, result.env_steps):
            run.recorder.file(path, env_steps=result.env_steps)
            self._unlinked[result.env_steps] = path

    def on_epoch_end(self, run: Run) -> None:
        """The checkpoint of an evaluation is written later than the video."""
        self._link()

    def on_end(self, run: Run) -> None:
        """The last link."""
        self._link()
        self.close()

    def close(self) -> None:
        """Shut the environment down."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def state_dict(self) -> dict[str, int]:
        """The number of evaluations so far."""
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting."""
        self.count = state["count"]

    def _record(self, evaluator: Evaluator | None, path: Path, env_steps: int) -> bool:
        assert self._env is not None and evaluator is not None
        seed = self._streams.integers(f"video {env_steps}", 1)
        count, limit = self.cfg.episodes, self.cfg.max_steps
        steps = episodes(evaluator.act, self._env, seed, count, max_steps=limit, render=True)
        try:
            path.parent.mkdir(exist_ok=True)
            write_video(path, (frame for step in steps for frame in step.frames), self._env.info.render_fps)
        except OSError as error:  # a full disk must not end a training
            if not self._warned:
                self.warn(f"{path}: not recorded: {error.strerror or error}; training goes on without it")
            self._warned = True
            return False
        return True

    def _link(self) -> None:
        """Make `checkpoints/step=N.mp4` for checkpoints that exist; remove the links of pruned ones."""
        parent, name = self.folder / "checkpoints", self._checkpoint
        saved = [step for step in self._unlinked if (parent / f"{name}={step}").is_dir()]
        for step in saved:
            link, target = parent / f"{name}={step}.mp4", f"../videos/{self._unlinked[step].name}"
            files.replace_link(link, target, room=self.folder)  # checkpoints/ is swept by the thread that saves
        if not saved:
            return
        self._unlinked = {step: path for step, path in self._unlinked.items() if step > max(saved)}  # written in order
        for link in parent.glob(f"{name}=*.mp4"):
            if link.is_symlink() and not link.with_suffix("").is_dir():
                link.unlink()
