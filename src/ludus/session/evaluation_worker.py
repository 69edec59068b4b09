"""The process behind `training.evaluation.background`: plays checkpoints of a run, one line of JSON for each.

It reads `step=N POSITION` lines and ends with its parent, whose end closes the pipe.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ludus import preflight
from ludus.archive import checkpoint
from ludus.archive.run_plugins import load_for
from ludus.archive.store import RunFolder
from ludus.envs.make import make_vector
from ludus.errors import LudusError
from ludus.networks.encoders import is_large
from ludus.orchestration.evaluator import MOST_ENVS, EvalResult, Evaluator
from ludus.seeding import Streams
from ludus.session.loading import MISFITS, misfit
from ludus.session.player import build_player, saved_config
from ludus.types import Spaces

POLL = 0.05
"""Seconds between two looks whether a checkpoint is there."""


class EvaluationWorker:
    """The environments, which all evaluations of the run share."""

    def __init__(self, folder: RunFolder, *, anew: bool) -> None:
        self.folder, self.config = folder, saved_config(folder)
        cfg = self.config.training.evaluation
        self.env = make_vector(self.config.environment, num_envs=cfg.num_envs or min(cfg.episodes, MOST_ENVS))
        if anew:
            self.env.choose_snapshot_method()  # from now on its resets make new environments
        self.spaces = Spaces(self.env.observation_space, self.env.action_space)
        preflight.set_threads(self.config, large=is_large(self.spaces.observation))

    def evaluate(self, name: str, position: int) -> EvalResult:
        """The episodes that the run itself would play with these weights."""
        while name not in checkpoint.checkpoints(self.folder.path):
            time.sleep(POLL)  # it is being written
        path = checkpoint.checkpoints(self.folder.path)[name]
        streams = Streams(self.config.experiment.seed)
        rng = streams.generator("evaluation")
        try:
            player = build_player(self.config, self.spaces, checkpoint.load(path), rng)
        except MISFITS as error:
            raise misfit(str(path), error) from error
        cfg = self.config.training.evaluation
        made = Evaluator(cfg, player.algorithm, lambda _: self.env, streams, rng=rng, normalizer=player.normalizer)
        return made.evaluate(position)


def main(folder: str, how: str, *plugins: str) -> None:
    """Answer every line of standard input."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an environment prints is no answer
    worker: EvaluationWorker | None = None
    while True:
        name, _, position = lines.get().partition(" ")
        answer: dict[str, Any]
        try:
            if worker is None:
                run = RunFolder(Path(folder))
                load_for(run, plugins)
                worker = EvaluationWorker(run, anew=how == "anew")
            answer = {"result": worker.evaluate(name, int(position)).state_dict()}
        except LudusError as error:
            answer = {"error": [type(error).__name__, error.where, error.problem, error.remedy]}
        print(json.dumps(answer), file=answers, flush=True)


def _listen(lines: queue.Queue[str]) -> None:
    """Hand lines over; the end of the parent ends this process, also in the middle of an episode."""
    for line in sys.stdin:
        lines.put(line.strip())
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
