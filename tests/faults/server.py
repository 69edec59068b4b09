"""A process that has imported everything and forks a child per command: `ludus ...` without seconds of imports.

The child is a session leader of its own, runs a prelude (the fault to inject), then the command line, and ends like any
other Python process. The server reaps it and reports exit status, peak memory and CPU time.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn

Request = dict[str, Any]


def serve(link: socket.socket) -> Request | None:
    """Fork a child for every request; returns in the child with its request, in the server when the client is gone."""
    wake, notify = os.pipe()
    for descriptor in (wake, notify):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
    lines = link.makefile("rb")
    while True:
        ready, _, _ = select.select([link.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            report_the_dead(link)
        if link.fileno() not in ready:
            continue
        line = lines.readline()  # the client waits for an answer to each, so that nothing is left in the buffer
        if not line:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (wake, notify):
                os.close(descriptor)
            lines.close()
            link.close()
            return json.loads(line)
        send(link, {"started": pid})


def report_the_dead(link: socket.socket) -> None:
    """Tell the client of every child that has ended."""
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        send(link, {"ended": pid, "code": code, "peak": used.ru_maxrss, "cpu": used.ru_utime + used.ru_stime})


def send(link: socket.socket, message: dict[str, Any]) -> None:
    """One line; the client may be gone."""
    try:
        link.sendall(json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        return


def become(request: Request) -> None:
    """Directory, environment, output and session of the command."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for target, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        flags = os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = os.open(path, flags, 0o600)
        os.dup2(descriptor, target)
        os.close(descriptor)


def warm_up() -> None:
    """Everything a command could import, and the caches of the parsers."""
    import gymnasium  # noqa: F401
    import torch
    import torch.utils.tensorboard

    import ludus.session
    import ludus.verify  # noqa: F401
    from ludus.cli import play, resume, train, verify  # noqa: F401
    from ludus.config.compose import load

    load("CartPole-v1:ppo", ["experiment.seed=1"])
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # children share these pages as long as nobody looks for garbage in them


def main() -> None:
    """Serve on the inherited socket."""
    warm_up()
    with socket.socket(fileno=int(sys.argv[1])) as link:
        send(link, {"ready": os.getpid()})
        request = serve(link)
    if request is None:
        return
    become(request)
    end(execute(request))


def execute(request: Request) -> int:
    """Prelude and command line; the exit code Python would end with."""
    try:
        if request["prelude"]:
            from faults import inject

            exec(compile(request["prelude"], "prelude", "exec"), {"inject": inject, "os": os, "signal": signal})
        if request["argv"]:
            from ludus import cli

            sys.argv = ["ludus", *request["argv"]]
            cli.main(request["argv"])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - what the interpreter itself does at the top
        traceback.print_exc()
        return 1
    return 0


def end(code: int) -> NoReturn:
    """What Python does at its end, but for taking all modules apart, which takes longer than a test."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
