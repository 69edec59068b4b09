"""The end of a run: final numbers in its folder and on the screen, or why it failed."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from ludus.archive import run_plugins
from ludus.archive.store import RunFolder
from ludus.errors import Diverged, LudusError
from ludus.orchestration.callbacks.debug import NotFinite, dump_divergence
from ludus.orchestration.callbacks.watching import made_no_update
from ludus.reports.report import write_report
from ludus.run import Run


def finish(run: Run, folder: RunFolder) -> dict[str, Any]:
    """Write metrics.json, status.json and the report, which sinks get, too; returns what the summary shows."""
    result = summary(run, folder)
    alerts = run.monitor.recap() if run.monitor is not None else []
    state = "stopped" if run.stopped_early else "finished"
    told = {key: value for key, value in result.items() if key != "next"}
    folder.write("metrics.json", {**told, "state": state, "alerts": alerts})
    folder.set_status(state, reason=run.stop_reason, **run.progress.counters)
    folder.log(f"{state}: {run.stop_reason}")
    try:
        run.recorder.file(write_report(folder.path), env_steps=run.progress.env_steps)
    except OSError as error:  # a full disk must not turn a finished run into a failed one
        run.say(f"report.html could not be written: {error}")
    return {**result, "state": state}


def record_failure(run: Run, folder: RunFolder, error: BaseException) -> None:
    """Why the run ended, into status.json and run.log; with the traceback of a worker if there is one."""
    stopped = isinstance(error, KeyboardInterrupt)
    reason = "interrupted" if stopped else error.line() if isinstance(error, LudusError) else repr(error)
    with suppress(OSError):  # the disk may be the reason; the error itself is on its way to the screen
        folder.set_status("stopped" if stopped else "failed", reason=reason, **run.progress.counters)
        for line in (reason, *(getattr(error, "detail", None) or "").splitlines()):
            folder.log(line)
        if isinstance(error, Diverged) and not isinstance(error, NotFinite):  # --debug has dumped more already
            dump_divergence(folder.path, run, error.line())


def summary(run: Run, folder: RunFolder) -> dict[str, Any]:
    """The final numbers; the last evaluation decides whether the task is solved."""
    last = run.last
    env = "" if run.evaluator else " --env ID"
    following = [(f"ludus play @last{env}", "watch it"), (f"ludus play {folder.id} --video auto{env}", "record it")]
    if run.stopped_early:
        following = [(f"ludus resume {folder.id}", "go on where it stopped")]
    return {
        **({"mean": last.mean, "std": last.std, "episodes": last.episodes} if last else {}),
        **({"best": run.best.mean, "best_step": run.best.env_steps} if run.best else {}),
        "threshold": run.threshold,
        "solved": bool(last and run.threshold is not None and last.mean >= run.threshold),
        "reason": run.stop_reason,
        "idle": run.interrupted is None and made_no_update(run),
        "seconds": run.seconds,
        "compiled": bool(run.compiler.sizes),
        "updates_run": run.compiler.describe(),
        "precision": run.precision.state_dict()["name"],
        "resume": run.collector.env.choose_snapshot_method() if run.collector else "stored steps",
        **run.progress.counters,
        "folder": str(folder.path),
        "next": [(command + runs_dir_option(folder) + run_plugins.options(folder), why) for command, why in following],
    }


def runs_dir_option(folder: RunFolder) -> str:
    """The option with which a command finds the run, if its folder is not the default one."""
    root = folder.path.parent
    try:
        default = root.absolute() == Path("runs").absolute()
    except FileNotFoundError:  # an environment removed the working directory
        default = False
    return "" if default else f" --runs-dir {shlex.quote(str(root))}"
