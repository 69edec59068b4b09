"""Evaluations in a process of their own: it plays the checkpoint of the evaluated weights while training goes on."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ludus.archive import checkpoint
from ludus.envs.suites import LOCAL
from ludus.errors import ConfigError, DataError, EnvironmentFailed, LudusError, ResourceError
from ludus.interpreter import running_module
from ludus.orchestration.background import Deferred
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.evaluator import EvalResult, Evaluator
from ludus.run import Run

WHERE = "background evaluation"
PATIENCE = 5.0
"""Seconds that the process may take to end before it is killed."""
_KINDS: dict[str, type[LudusError]] = {
    cls.__name__: cls for cls in (ConfigError, DataError, EnvironmentFailed, ResourceError)
}


class BackgroundEvaluation(Deferred):
    """One process for all evaluations of a run; it is started by the first one and ends with the run."""

    def __init__(
        self, evaluator: Evaluator, folder: Path, checkpoints: Checkpoints, *, anew: bool, plugins: Sequence[str] = ()
    ) -> None:
        super().__init__(evaluator)
        self.folder, self.checkpoints = folder, checkpoints
        self._arguments = [str(folder), "anew" if anew else "again", *plugins]
        self._process: subprocess.Popen[bytes] | None = None
        self._position: int | None = None

    def on_start(self, run: Run) -> None:
        """A resumed run begins what was under way again, from its checkpoint."""
        if run.config.environment.id.startswith(LOCAL):
            problem = "another process cannot make an environment that was handed in from Python"
            raise ConfigError("training.evaluation.background", problem, "set it to false")
        if self.name and self.name not in checkpoint.checkpoints(self.folder):  # of a folder that is not whole
            run.say(f"{self.name} is not there any more: its evaluation, which was under way, is left out")
            self.name = ""
        if self.name:
            self.play(int(self._position or 0))

    def play(self, position: int) -> None:
        """Tell the process what to play; it waits until the checkpoint is written."""
        self._position = position
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{self.name} {position}\n".encode())
            process.stdin.flush()
        except BrokenPipeError:
            raise self._death(process) from None

    def result(self) -> EvalResult:
        """Wait for the result; short waits let this thread handle signals."""
        process = self._process
        assert process is not None and process.stdout is not None
        line = self._line(process.stdout)
        if not line:
            raise self._death(process)
        answer = json.loads(line)
        if "error" in answer:
            kind, where, problem, remedy = answer["error"]
            raise _KINDS.get(kind, EnvironmentFailed)(where, problem, remedy)
        found = EvalResult.from_state(answer["result"])
        assert found is not None
        return found

    def close(self) -> None:
        """End the process and wait for it: nobody is left behind."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone already
            process.stdin.close()  # it ends when nobody can ask any more
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def state_dict(self) -> dict[str, Any]:
        """The name is enough: the checkpoint of that name stays until its result is taken."""
        return {"name": self.name, "counters": dict(self.counters), "result": None, "position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with it."""
        super().load_state_dict({**state, "result": None})
        self._position = state.get("position")

    def _line(self, stream: IO[bytes]) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while not selector.select(0.2):
                written = self.name in checkpoint.checkpoints(self.folder)
                if not written and not self.checkpoints.writing:
                    problem = f"{self.name} could not be saved, so it cannot be evaluated"
                    raise ResourceError(str(self.folder), problem, "free some space")
        return stream.readline()

    def _started(self) -> subprocess.Popen[bytes]:
        command = running_module("ludus.session.evaluation_worker", *self._arguments)
        # a session of its own: Ctrl-C asks training to save and end, which then ends this process
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ), start_new_session=True
        )

    def _death(self, process: subprocess.Popen[bytes]) -> EnvironmentFailed:
        code = process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return EnvironmentFailed(WHERE, f"its process {how}", "ludus resume plays that evaluation again")
