"""`ludus inspect`: runs and episodes in the browser. (A module named `inspect` would hide Python's own here.)"""

from __future__ import annotations

import errno
import secrets
import socket
import webbrowser
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ludus.cli.options import Checkpoint, Plugin, RunsDir
from ludus.errors import ConfigError, MissingExtra

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_RUN = "Run id, unique prefix, @last or @best, or a folder of runs; default: all runs."
_HOST = "Address to listen on; any but 127.0.0.1 asks for a token."


def inspect(
    run: Annotated[str | None, Argument(metavar="[RUN|DIR]", help=_RUN)] = None,
    port: Annotated[int, Option(min=0, max=65535, help="0: any free one.")] = 7860,
    host: Annotated[str, Option(help=_HOST)] = "127.0.0.1",
    open: Annotated[bool, Option("--open/--no-open", help="Open the browser.")] = False,
    static: Annotated[Path | None, Option(metavar="FILE.html", help="Write one episode as one page instead.")] = None,
    checkpoint: Checkpoint = None,
    seed: Annotated[int, Option(min=0, max=2**31 - 1, help="Of the episode of --static.")] = 0,
    mode: Annotated[str, Option(metavar="evaluation|greedy|sampled", help="How it acts in --static.")] = "evaluation",
    steps: Annotated[int, Option(min=1, max=100_000, help="Most steps of --static.")] = 1000,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Step through episodes and watch runs in the browser; nothing leaves this machine."""
    root, chosen = _place(run, runs_dir)
    plugins = [str(path) for path in plugin or []]
    if static is not None:
        if static.is_dir() or not static.parent.is_dir():
            raise ConfigError(f"--static {static}", "is no file in a folder that is there", "name one: episode.html")
        from ludus.inspector.single_page import write_page

        wanted: dict[str, Any] = {"checkpoint": checkpoint, "seed": seed, "mode": mode, "steps": steps}
        size = write_page(static, root, chosen or "@last", plugins, **wanted)
        print(f"wrote {static} ({size / 1e6:.1f} MB); it needs nothing else")
        return
    try:
        from ludus.inspector.server import application, server_of
    except ImportError:
        raise MissingExtra("ludus inspect", "inspect") from None
    if not root.is_dir():
        raise ConfigError(str(root), "there is no such folder", "train first: ludus train CartPole-v1:ppo")
    token = None if host in LOOPBACK else secrets.token_urlsafe(24)
    with _listening(host, port) as listener:
        app = application(root, host=host, token=token, plugins=plugins, start=_start(root, chosen))
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
        address += f"?token={token}" if token else ""
        print(f"{address}\nruns in {root}/; Ctrl-C ends it", flush=True)
        if open:
            webbrowser.open(address)
        server_of(app, listener).run(sockets=[listener])


def _place(run: str | None, runs_dir: Path) -> tuple[Path, str | None]:
    """The folder of runs, and the run to begin with."""
    if run is None:
        return runs_dir, None
    path = Path(run)
    if path.is_dir() and not run.startswith("@"):
        if (path / "config.yaml").is_file():
            return path.resolve().parent, path.resolve().name
        if "/" in run or not (runs_dir / run).is_dir():
            return path, None
    return runs_dir, run


def _start(root: Path, chosen: str | None) -> str:
    if chosen is None:
        return ""
    from ludus.archive.store import RunFolder

    return RunFolder.load(root, chosen).id


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # whoever reads the address may come before the server runs
    except OSError as error:
        listener.close()
        problem = f"cannot listen on {host}:{port}: {error.strerror}"
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError("--host", problem, "name an address of this machine") from None
        raise ConfigError("--port", problem, "choose another one, or 0 for any") from None
    return listener
