"""Faults 13-16: signals in every phase, again and again, and to the whole process group."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from faults.conftest import Ludus
from faults.processes import Process, Server
from faults.support import SMALL, STEPS, names, only_run, outcome, status, steps, whole
from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.archive.lock import RunLock

RUN = [
    *SMALL,
    f"training.total_timesteps={12 * STEPS}",
    f"training.checkpoints.every_steps={STEPS}",
    "training.evaluation.every_steps=128",
    "training.evaluation.episodes=2",
]
PHASES = {
    "collect": "'ludus.data.collector:Collector._put', {}, at=70",
    "backward": "'torch:Tensor.backward', {}, at=5, after=True",
    "optimizer": "'ludus.learning.optimizer:Optimizer.step', {}, at=5",
    "log": "'ludus.metrics.recorder:Recorder.flush', {}, at=5",
    "save": "'ludus.archive.checkpoint:_install', {}, at=5",
    "prune": "'ludus.orchestration.callbacks.checkpoints:Checkpoints._prune', {}, at=5",
    "evaluate": "'ludus.orchestration.evaluator:Evaluator.evaluate', {}, at=2",
}
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@pytest.fixture(scope="session")
def uninterrupted(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run left alone, with every one of its checkpoints."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = server.run("train", *RUN, "training.checkpoints.keep=1000", cwd=folder)
    assert done.code == 0, done.err
    return only_run(folder)


def settled(process: Process, run: Path) -> None:
    """C4: no lock, no temporary files, no children."""
    assert not RunLock.is_held(run)
    assert [path for path in run.rglob(".*") if path.name != ".lock"] == []
    deadline = time.monotonic() + 10
    while members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert members(process.pid) == []


def members(session: int) -> list[str]:
    """Processes of a session, zombies left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().rpartition(")")
        except OSError:
            continue
        state, _, _, its_session = rest.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(name)
    return found


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("phase", PHASES)
def test_13_signal_in_every_phase(
    ludus: Ludus, uninterrupted: Path, tmp_path: Path, phase: str, number: signal.Signals
) -> None:
    """What is saved is what the uninterrupted run had at that step, and the end is the same."""
    prelude = f"inject.signal_on_call({PHASES[phase].format(int(number))})"
    stopped = ludus("train", *RUN, prelude=prelude)
    assert stopped.code == 75, stopped.err
    assert "Traceback" not in stopped.err
    assert stopped.told.count(f"{number.name}: stopping after this update") == 1
    run = only_run(tmp_path)
    assert status(run)["state"] == "stopped" and number.name in status(run)["reason"]
    settled(stopped, run)
    assert whole(run) == steps(run)
    newest = checkpoint.find(run, "last")
    assert 0 < int(newest.name.removeprefix("step=")) < 12 * STEPS
    expected = checkpoint.load(uninterrupted / "checkpoints" / newest.name)
    assert fingerprint(checkpoint.load(newest)) == fingerprint(expected)
    resumed = ludus("resume", "@last")
    assert resumed.code == 0, resumed.err
    assert status(run)["state"] == "finished"
    assert outcome(run) == outcome(uninterrupted)


def test_13_signal_while_recording(ludus: Ludus, tmp_path: Path) -> None:
    """The video is finished, the state saved; no half of an MP4 stays."""
    prelude = "inject.signal_on_call('ludus.archive.video:_even', 15, at=20)"
    stopped = ludus("train", *RUN, "training.evaluation.video.every_evaluations=1", prelude=prelude)
    assert stopped.code == 75, stopped.err
    run = only_run(tmp_path)
    settled(stopped, run)
    assert whole(run) == steps(run)
    assert names(run / "videos") and all(
        path.suffix == ".mp4" and path.stat().st_size for path in (run / "videos").iterdir()
    )


def test_13_signal_after_the_last_step(ludus: Ludus, uninterrupted: Path, tmp_path: Path) -> None:
    """Stopped with nothing left to do: the state is there, and resume only says so."""
    prelude = f"inject.signal_on_call('ludus.orchestration.callbacks.checkpoints:Checkpoints.finish', {15})"
    stopped = ludus("train", *RUN, prelude=prelude)
    assert stopped.code in (0, 75), stopped.err
    resumed = ludus("resume", "@last")
    assert resumed.code == 0, resumed.err
    run = only_run(tmp_path)
    assert status(run)["state"] == "finished"
    assert outcome(run) == outcome(uninterrupted)


SAVING = "'ludus.archive.checkpoint:_install', inject.interrupt_and_go_on({}), at=6"
FIRST = "inject.signal_on_call('ludus.data.collector:Collector.collect', 2, at=5); "


def test_14_second_interrupt_while_saving(ludus: Ludus, tmp_path: Path) -> None:
    """The save that is under way is finished."""
    stopped = ludus("train", *RUN, prelude=f"{FIRST}inject.on_call({SAVING.format(1)})")
    assert stopped.code == 75, stopped.err
    run = only_run(tmp_path)
    settled(stopped, run)
    assert whole(run) == steps(run) and steps(run)[-1] == 5 * STEPS


def test_14_third_interrupt_ends_at_once(ludus: Ludus, uninterrupted: Path, tmp_path: Path) -> None:
    """What was being written is abandoned and swept by the next save; nothing else is lost."""
    stopped = ludus("train", *RUN, prelude=f"{FIRST}inject.on_call({SAVING.format(2)})")
    assert stopped.code == 130, stopped.err
    run = only_run(tmp_path)
    assert not RunLock.is_held(run)
    assert whole(run) == steps(run) and steps(run)[-1] == 4 * STEPS
    resumed = ludus("resume", "@last")
    assert resumed.code == 0, resumed.err
    assert [name for name in names(run / "checkpoints") if name.startswith(".")] == []
    assert outcome(run) == outcome(uninterrupted)


def test_15_signal_to_one_rank(ludus: Ludus, tmp_path: Path) -> None:
    """All ranks save and stop at the end of the same epoch; the run goes on to the bit."""
    words = [*RUN, "--ranks", "2"]
    assert ludus("train", *words, "--runs-dir", "whole/runs").code == 0
    agreement = "'ludus.orchestration.orchestrator:agreed_settings'"
    prelude = f"inject.on_call({agreement}, lambda: inject.signal_children(15), at=3)"
    stopped = ludus("train", *words, prelude=prelude)
    assert stopped.code == 75, stopped.err
    run = only_run(tmp_path)
    settled(stopped, run)
    assert "SIGTERM" in status(run)["reason"] and 0 < steps(run)[-1] < 12 * STEPS
    resumed = ludus("resume", "@last")
    assert resumed.code == 0, resumed.err
    assert outcome(run) == outcome(only_run(tmp_path / "whole"))


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_16_signal_to_the_whole_process_group(start: Ludus, tmp_path: Path, number: signal.Signals) -> None:
    """Workers ignore it, the parent alone saves, and nobody is left behind."""
    words = [*SMALL, "environment.vectorization=async", "environment.workers=2", "training.total_timesteps=100_000_000"]
    training = start("train", *words, f"training.checkpoints.every_steps={STEPS}")
    training.until(lambda: list(tmp_path.glob("runs/*_*/checkpoints/step=[1-9]*")))
    assert len(members(training.pid)) >= 3
    training.signal_group(number)
    assert training.wait() == 75, training.err
    assert "Traceback" not in training.err and "worker" not in training.err
    run = only_run(tmp_path)
    settled(training, run)
    assert status(run)["state"] == "stopped"
    assert whole(run) == steps(run)
