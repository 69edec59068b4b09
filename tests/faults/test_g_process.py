"""What surrounds a run: its terminal, its directory, its output, its memory, and environments without manners."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import pytest

from faults.conftest import Ludus
from faults.support import SMALL, STEPS, only_run, outcome, refused, status, steps, whole
from ludus.cli import process
from ludus.envs.vector.worker import IGNORED
from ludus.session.signals import SIGNALS

NEW = (signal.SIGHUP, signal.SIGUSR2, signal.SIGXCPU)
SHORT = f"training.total_timesteps={12 * STEPS}"
LIVELY = f"training.total_timesteps={32 * STEPS}"
LONG = "training.total_timesteps=100_000_000"
EVERY = f"training.checkpoints.every_steps={STEPS}"
FULL = "os.dup2(os.open('/dev/full', os.O_WRONLY), 1); "
NO_SPACE = "inject.on_call('os:fsync', lambda: (_ for _ in ()).throw(OSError(28, 'No space left on device')))"
SOON = """
try:
    import ludus.envs.vector.process as process
    import ludus.envs.deadline as deadline
except ImportError:
    process.START_DEADLINE = 2.0
else:
    deadline.LEAST = process.LEAST = 2.0
    deadline.GRACE = 0.5
"""
"""Deadlines of two seconds, with `environment.step_deadline` no longer than that."""
TWO = "environment.step_deadline=2"


def rude(what: str, *more: str, backend: str = "sync") -> list[str]:
    """Words of a short training in an environment without manners."""
    plugin = str(Path(__file__).with_name("rude.py"))
    environment = ["environment.id=Faulty/Rude-v0", f"environment.kwargs.what={what}"]
    return [*SMALL, LIVELY, "--plugin", plugin, *environment, f"environment.vectorization={backend}", *more]


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", NEW, ids=lambda number: number.name)
def test_terminals_and_batch_systems_stop_a_run_like_sigterm(
    ludus: Ludus, tmp_path: Path, number: signal.Signals
) -> None:
    prelude = f"signal.signal({int(number)}, signal.SIG_DFL); "
    prelude += f"inject.signal_on_call('ludus.data.collector:Collector.collect', {int(number)}, at=5)"
    stopped = ludus("train", *SMALL, SHORT, prelude=prelude)
    assert stopped.code == 75, stopped.err
    run = only_run(tmp_path)
    assert status(run)["state"] == "stopped" and number.name in status(run)["reason"]
    assert steps(run)[-1] == 5 * STEPS and whole(run) == steps(run)


def test_a_signal_that_nohup_ignores_stays_ignored(ludus: Ludus, tmp_path: Path) -> None:
    prelude = "signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    prelude += "inject.signal_on_call('ludus.data.collector:Collector.collect', signal.SIGHUP, at=5)"
    assert ludus("train", *SMALL, SHORT, prelude=prelude).code == 0
    assert status(only_run(tmp_path))["state"] == "finished"


def test_a_limit_on_cpu_time_that_is_repeated_every_second_is_no_impatience(ludus: Ludus, tmp_path: Path) -> None:
    prelude = "inject.on_call('ludus.data.collector:Collector.collect', "
    prelude += "lambda: [os.kill(os.getpid(), signal.SIGXCPU) for _ in range(5)], at=5)"
    assert ludus("train", *SMALL, SHORT, prelude=prelude).code == 75
    assert steps(only_run(tmp_path))[-1] == 5 * STEPS


@pytest.mark.parametrize("number", NEW, ids=lambda number: number.name)
def test_workers_leave_the_decision_to_their_parent(start: Ludus, tmp_path: Path, number: signal.Signals) -> None:
    words = [*SMALL, "environment.vectorization=async", "environment.workers=2", LONG, EVERY]
    training = start("train", *words, prelude=f"signal.signal({int(number)}, signal.SIG_DFL)")
    training.until(lambda: list(tmp_path.glob("runs/*_*/checkpoints/step=[1-9]*")))
    training.signal_group(number)
    assert training.wait() == 75, training.err
    assert "worker" not in training.err


def test_workers_ignore_whatever_stops_their_parent() -> None:
    assert set(IGNORED) == set(SIGNALS) >= {*NEW, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}


def test_a_signal_while_the_last_report_is_written_changes_nothing(ludus: Ludus, tmp_path: Path) -> None:
    prelude = "inject.signal_on_call('ludus.session.finish:write_report', signal.SIGTERM)"
    done = ludus("train", *SMALL, SHORT, prelude=prelude)
    run = only_run(tmp_path)
    assert (done.code, status(run)["state"]) == (0, "finished"), done.err
    assert (run / "report.html").exists()


def test_a_signal_while_a_report_is_written_stops_the_seeds_to_come(ludus: Ludus, tmp_path: Path) -> None:
    prelude = "inject.signal_on_call('ludus.session.finish:write_report', signal.SIGTERM)"
    done = ludus("train", *SMALL, SHORT, "--seed", "1,2", prelude=prelude)
    assert (done.code, status(only_run(tmp_path))["state"]) == (75, "finished"), done.err


# ---- standard output -----------------------------------------------------------------------------


def test_training_goes_on_without_a_standard_output(ludus: Ludus, tmp_path: Path) -> None:
    done = ludus("train", *SMALL, SHORT, prelude=FULL)
    assert done.code == 0, done.err
    assert status(only_run(tmp_path))["state"] == "finished"


def test_a_log_file_that_fills_up_does_not_fail_a_finished_run(ludus: Ludus, tmp_path: Path) -> None:
    prelude = f"inject.on_call('ludus.data.collector:Collector.collect', lambda: {FULL[:-2]}, at=5)"
    done = ludus("train", *SMALL, SHORT, prelude=prelude)
    assert done.code == 0, done.err


def test_a_stopped_run_without_a_standard_output_still_says_75(ludus: Ludus, tmp_path: Path) -> None:
    prelude = f"{FULL}inject.signal_on_call('ludus.data.collector:Collector.collect', signal.SIGTERM, at=5)"
    assert ludus("train", *SMALL, SHORT, prelude=prelude).code == 75


def test_standard_streams_that_are_closed_are_nobodys_files(ludus: Ludus, tmp_path: Path) -> None:
    """Otherwise metrics.jsonl would be file 1, and a print of a library a row of it."""
    prelude = "import sys; os.close(1); sys.stdout = None; "
    prelude += "inject.on_call('ludus.data.collector:Collector.collect', lambda: os.write(1, b'hello'), at=5)"
    assert ludus("train", *SMALL, SHORT, prelude=prelude).code == 0
    for path in only_run(tmp_path).rglob("*"):
        assert path.is_dir() or b"hello" not in path.read_bytes()


def test_a_list_that_cannot_be_printed_is_one_line(ludus: Ludus, stopped: Path) -> None:
    refused(ludus("list", prelude=FULL), 5, "standard output", "No space left on device")


def test_a_reader_that_had_enough_is_no_error(ludus: Ludus, stopped: Path) -> None:
    prelude = "read, write = os.pipe(); os.close(read); os.dup2(write, 1); "
    prelude += "signal.signal(signal.SIGPIPE, signal.SIG_IGN)"
    done = ludus("list", prelude=prelude)
    assert done.code == 0, done.err


# ---- environments without manners ----------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("what", ["exit", "exit when made"])
def test_sys_exit_of_an_environment_is_a_failure(ludus: Ludus, tmp_path: Path, what: str, backend: str) -> None:
    refused(ludus("train", *rude(what, backend=backend)), 4, "Faulty/Rude-v0", "raised SystemExit")
    if what == "exit":
        assert status(only_run(tmp_path))["state"] == "failed"


def test_an_interrupt_that_an_environment_raises_is_its_own(ludus: Ludus, tmp_path: Path) -> None:
    for backend in ("sync", "async"):
        done = ludus("train", *rude("interrupt", backend=backend))
        refused(done, 4, "step raised KeyboardInterrupt")


def test_an_environment_that_changes_the_directory(ludus: Ludus, tmp_path: Path) -> None:
    done = ludus("train", *rude("chdir", EVERY))
    assert done.code == 0, done.err
    run = only_run(tmp_path)
    assert status(run)["state"] == "finished" and steps(run)[-1] == 32 * STEPS
    assert [row["epoch"] for row in outcome(run)[1]] == [*range(1, 33)]


def test_a_resumed_environment_that_changes_the_directory(ludus: Ludus, tmp_path: Path) -> None:
    first = [word for word in rude("chdir", "environment.kwargs.at=500") if word != LIVELY]
    assert ludus("train", *first, f"training.total_timesteps={4 * STEPS}").code == 0
    plugin = str(Path(__file__).with_name("rude.py"))
    done = ludus("resume", "@last", "training.total_timesteps=3072", "--plugin", plugin)
    assert done.code == 0, done.err
    assert steps(only_run(tmp_path))[-1] == 3072


def test_a_thread_of_an_environment_keeps_no_finished_run_alive(ludus: Ludus, tmp_path: Path) -> None:
    done = ludus("train", *rude("thread"))
    assert done.code == 0 and status(only_run(tmp_path))["state"] == "finished"
    assert done.err.count("\n") == 1 and "left behind" in done.err


def test_a_process_of_an_environment_keeps_no_finished_run_alive(ludus: Ludus, tmp_path: Path) -> None:
    """One that `multiprocessing` would wait for; it was forked with our handlers of signals."""
    done = ludus("train", *rude("child"))
    assert done.code == 0 and status(only_run(tmp_path))["state"] == "finished"
    assert "left behind" in done.err


def test_an_environment_that_removes_the_directory(ludus: Ludus, tmp_path: Path) -> None:
    done = ludus("train", *rude("remove directory"))
    assert done.code == 0, done.err
    assert status(only_run(tmp_path))["state"] == "finished"


def test_an_output_that_an_environment_closed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    for output in (process.Output(stream), None):
        monkeypatch.setattr("sys.stdout", output)
        print("lost", flush=True)


def test_a_lock_dies_with_its_process_though_its_children_live(start: Ludus, ludus: Ludus, tmp_path: Path) -> None:
    marker = tmp_path / "child"
    words = [*(word for word in rude("fork", f"environment.kwargs.marker={marker}") if word != LIVELY), LONG]
    training = start("train", *words, EVERY)
    training.until(marker.exists)
    training.until(lambda: [path for path in tmp_path.glob("runs/*_*/checkpoints/step=*") if "=0" not in path.name])
    training.kill()
    try:
        run = only_run(tmp_path)
        plugin = str(Path(__file__).with_name("rude.py"))
        more = steps(run)[-1] + STEPS
        done = ludus("resume", "@last", f"training.total_timesteps={more}", "--plugin", plugin)
        assert done.code == 0, done.err
    finally:
        os.kill(int(marker.read_text()), signal.SIGKILL)


# ---- deadlines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "verb"), [("made", "making it"), ("reset", "reset"), ("closed", "close")])
def test_an_environment_that_hangs_at_the_start_is_named(ludus: Ludus, what: str, verb: str) -> None:
    done = ludus("train", *rude(f"hang when {what}", TWO), prelude=SOON)
    refused(done, 4, f"Faulty/Rude-v0: {verb} did not come to an end within", "environment.step_deadline")


def test_a_worker_that_hangs_at_the_start_is_named(ludus: Ludus) -> None:
    words = rude("hang when made", TWO, backend="async")
    refused(ludus("train", *words, prelude=SOON), 4, "Faulty/Rude-v0", "no answer within 2 s")


def test_a_library_that_never_returns_cannot_hold_the_process(ludus: Ludus) -> None:
    done = ludus("train", *rude("hang in a library", TWO), prelude=SOON)
    refused(done, 4, "making it did not come to an end within")


def test_an_environment_that_hangs_in_its_last_close_fails_no_run(ludus: Ludus, tmp_path: Path) -> None:
    words = rude("hang at last", "environment.num_envs=1", TWO)
    done = ludus("train", *words, prelude=SOON)
    run = only_run(tmp_path)
    assert (done.code, status(run)["state"]) == (0, "finished"), done.err
    assert "close did not come to an end" in (run / "run.log").read_text() + done.told


def test_a_close_that_raises_is_found_at_the_start(ludus: Ludus) -> None:
    for backend in ("sync", "async"):
        refused(ludus("train", *rude("raise when closed", backend=backend)), 4, "close raised OSError: no")


# ---- what changes later --------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "text"), [("float64", "has dtype float64"), ("string", "the reward str 1.0")])
def test_what_is_of_another_kind_later_on_is_refused(ludus: Ludus, what: str, text: str) -> None:
    refused(ludus("train", *rude(what)), 4, "environment 0 (Faulty/Rude-v0", text)


def test_observations_outside_their_space_are_noted_once(ludus: Ludus, tmp_path: Path) -> None:
    done = ludus("train", *rude("outside", "environment.kwargs.at=5"))
    assert done.code == 0
    assert done.out.count("its observation has 100.0 at [0], outside [-1.0, 1.0]") == 1


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["auto", "sync", "async"])
def test_more_environments_than_memory_are_refused(ludus: Ludus, tmp_path: Path, backend: str) -> None:
    words = [*SMALL, "environment.num_envs=1_000_000_000", f"environment.vectorization={backend}"]
    done = ludus("train", *words, prelude="inject.limit_memory(2000)")
    refused(done, 5, "environment.num_envs", "1,000,000,000 environments need at least", "lower it")
    assert not (tmp_path / "runs").exists()


def test_a_network_larger_than_memory_is_refused_before_it_is_made(ludus: Ludus, tmp_path: Path) -> None:
    words = [*SMALL, "network.actor.hidden_dims=[1_000_000_000]"]
    done = ludus("train", *words, prelude="inject.limit_memory(2000)")
    refused(done, 5, "the network needs at least", "hidden dims")
    assert done.peak < 1_500_000 and not (tmp_path / "runs").exists()


def test_memory_that_runs_out_later_is_one_line(ludus: Ludus) -> None:
    fails = "(_ for _ in ()).throw(MemoryError('Unable to allocate 1. TiB'))"
    prelude = f"inject.on_call('ludus.data.collector:Collector.collect', lambda: {fails}, at=3)"
    refused(ludus("train", *SMALL, SHORT, prelude=prelude), 5, "memory", "1. TiB")


# ---- commands ------------------------------------------------------------------------------------


def test_a_tag_that_cannot_be_written(ludus: Ludus, stopped: Path, read_only: object) -> None:
    refused(ludus("tag", "@last", "+x", prelude=NO_SPACE), 5, "tags.json: No space left")
    read_only(stopped)  # type: ignore[operator]
    refused(ludus("tag", "@last", "+x"), 5, "tags.json", "Read-only")


def test_an_export_that_cannot_be_written(ludus: Ludus, stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    refused(ludus("export", "--output", "folder"), 3, "folder: Is a directory")
    refused(ludus("export", "--output", "table.csv", prelude=NO_SPACE), 5, "table.csv: No space left")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".table")]


def test_an_index_on_a_read_only_disk(ludus: Ludus, stopped: Path, read_only: object) -> None:
    assert ludus("list").code == 0
    read_only(stopped.parent)  # type: ignore[operator]
    refused(ludus("index", "rebuild"), 5, "index.sqlite", "Read-only")


def test_a_folder_without_anything_that_can_be_read(ludus: Ludus, stopped: Path) -> None:
    (stopped / "config.yaml").write_text("{{{")
    (stopped / "meta.json").unlink()
    refused(ludus("show", stopped.name), 3, "config.yaml", "meta.json")


def test_a_cleanup_that_keeps_more_days_than_there_are(ludus: Ludus, stopped: Path) -> None:
    done = ludus("cleanup", "--keep-recent", "1000000")
    assert done.code == 0, done.err


def test_a_working_directory_that_was_removed(ludus: Ludus, tmp_path: Path) -> None:
    prelude = "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')"
    for words in ([], ["--runs-dir", str(tmp_path / "runs")]):
        refused(ludus("train", *SMALL, SHORT, *words, prelude=prelude), 2, "working directory: it was removed")


def test_too_few_open_files(ludus: Ludus) -> None:
    prelude = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"
    refused(ludus("train", *SMALL, SHORT, prelude=prelude), 5, "Too many open files; raise the limit: ulimit -n")


@pytest.mark.parametrize(
    "row",
    [
        '{"epoch": 1' + 400 * "0" + "}",
        '{"epoch": NaN}',
        '{"epoch": 1, "env_steps": 1e999}',
        '{"epoch": "x"}',
        '{"epoch": null}',
        '{"epoch": 1}',
        "[" * 100_000,
        '{"a": ' * 100_000,
        '{"a": [1]}',
    ],
)
def test_rows_that_are_none_are_skipped(ludus: Ludus, stopped: Path, row: str) -> None:
    path = stopped / "metrics.jsonl"
    path.write_text(path.read_text() + row + "\n")
    done = ludus("resume", "@last", f"training.total_timesteps={11 * STEPS}")
    assert done.code == 0, done.err[-2000:]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise ValueError('a\\nb')", "raised ValueError: a"),
        ("import nowhere", "there is no module 'nowhere'"),
        ("import sys; sys.exit(0)", "raised SystemExit: 0"),
    ],
)
def test_a_plugin_that_does_not_load(ludus: Ludus, tmp_path: Path, code: str, text: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    refused(ludus("train", *SMALL, SHORT, "--plugin", "mine.py"), 2, "--plugin mine.py", text)


def test_a_traceback_is_there_when_asked_for(ludus: Ludus) -> None:
    done = ludus("train", *rude("exit", backend="async"), "--debug")
    assert done.code == 4 and "sys.exit(0)" in done.err
