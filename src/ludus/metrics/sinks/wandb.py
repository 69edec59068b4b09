"""Weights & Biases: off by default, offline without a key or network."""

from __future__ import annotations

import configparser
import netrc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ludus.errors import ConfigError, MissingExtra
from ludus.metrics.sinks import Row, Sink
from ludus.metrics.wandb_archive import FINISH, Archive, Pack
from ludus.network import silence

MODES = ("online", "offline", "disabled", "shared")
CLOUD = "api.wandb.ai"


class WandbSink(Sink):
    """Every row over its column `x_axis`. The key stays with the client; code, argv, host and packages stay here."""

    def __init__(
        self,
        folder: Path,
        *,
        x_axis: str = "env_steps",
        counted: str = "env_steps",
        pack: Pack | None = None,
        warn: Callable[[str], None] = lambda _: None,
        **run: Any,
    ) -> None:
        """`counted` is the column in which the budget counts; `run` is what `wandb.init` shows: name, project, ...

        With `pack` every checkpoint is archived; what goes wrong there is told to `warn`.
        """
        check()
        import wandb

        private: Any = dict.fromkeys(("x_disable_meta", "x_disable_machine_info", "disable_code", "disable_git"), True)
        private["x_save_requirements"] = False  # no list of packages
        private["finish_timeout"] = FINISH if pack else 0.0
        settings = wandb.Settings(console="off", silent=True, base_url=_server().geturl(), **private)
        mode: Any = choose_mode()
        try:
            self._run = wandb.init(dir=str(folder), mode=mode, reinit="create_new", settings=settings, **run)
        except wandb.Error as error:  # for example a key that the server refuses
            remedy = "run `wandb login`, or set WANDB_MODE=offline"
            raise ConfigError("logging.wandb", " ".join(str(error).split()), remedy) from None
        self.mode = str(self._run.settings.mode)
        if self.mode == "offline":
            later = f"`wandb sync {Path(self._run.dir).parent}` sends the run later"
            self.warning = f"W&B is offline: {_why_offline()}; {later}"
        if self.mode == "online" and (entity := getattr(self._run, "entity", "")):
            self.remark = _dashboard(str(entity), str(run.get("project")))
            self.remark += _way_back(f"{entity}/{run.get('project')}/{folder.name}") if pack else ""
        self._counted, self._sent = counted, set[tuple[Path, int]]()
        self._run.define_metric("*", step_metric=x_axis)
        self._archive = Archive(self._run, folder.name, pack) if pack and self.mode != "disabled" else None
        self._warn = warn

    def write(self, row: Row) -> None:
        """Pass the row to the client."""
        self._run.log(dict(row))
        self._tell()

    def file(self, path: Path, env_steps: int) -> None:
        """Pass a video or a report to the client, once each; it copies them at once. Checkpoints go to the archive."""
        import wandb

        if self._archive is not None and path.parent.name == "checkpoints":
            self._archive.add(path)
            return
        stamp = path, path.stat().st_mtime_ns if path.exists() else 0
        if path.suffix not in (".mp4", ".html") or stamp in self._sent:
            return
        self._sent.add(stamp)
        if path.suffix == ".mp4":
            self._run.log({self._counted: env_steps, "val/video": wandb.Video(str(path), format="mp4")})
        else:
            self._run.log({self._counted: env_steps, "report": wandb.Html(str(path), inject=False)})

    def close(self) -> None:
        """Wait for the client to finish."""
        if self._archive is not None:
            self._archive.close()
            self._tell()
        self._run.finish()

    def _tell(self) -> None:
        for warning in self._archive.warnings() if self._archive is not None else ():
            self._warn(warning)


def _dashboard(entity: str, project: str) -> str:
    """Make the dashboard of the project, once; a run goes on without it."""
    from ludus.metrics.dashboard import save

    try:
        return f"W&B dashboard: {save(entity, project).url}"
    except ConfigError as error:
        return f"no W&B dashboard: {error.line()}"


def _way_back(artifact: str) -> str:
    return f"; `ludus pull wandb:{artifact}` brings this run back"


def check() -> None:
    """Refuse what cannot work: no client, an unknown mode, online without a key."""
    try:
        import wandb  # noqa: F401
    except ImportError:
        raise MissingExtra("logging.wandb", "wandb") from None
    asked = os.environ.get("WANDB_MODE")
    if asked and asked not in MODES:
        raise ConfigError(f"WANDB_MODE={asked}", "is not a mode of W&B", f"use {', '.join(MODES)}")
    if asked == "online" and not has_key():
        remedy = "run `wandb login`, set WANDB_API_KEY, or leave WANDB_MODE out"
        raise ConfigError("WANDB_MODE=online", f"there is no key for {_server().netloc}", remedy)


def require_server(what: str, otherwise: str = ", or train with --engine local") -> None:
    """Refuse to begin without a key or a server that answers, within seconds."""
    host = _server().netloc
    if not has_key():
        raise ConfigError(what, f"there is no key for {host}", "run `wandb login`, or set WANDB_API_KEY")
    if not _reachable(_server().hostname or "", _server().port or 443):
        raise ConfigError(what, f"{host} does not answer", f"check the network{otherwise}")


def choose_mode() -> str:
    """WANDB_MODE if set; online with a key and a reachable server; otherwise offline (`wandb sync` sends it later)."""
    asked = os.environ.get("WANDB_MODE")
    if asked:
        return asked
    return "online" if has_key() and _reachable(_server().hostname or "", _server().port or 443) else "offline"


def _why_offline() -> str:
    if os.environ.get("WANDB_MODE"):
        return "WANDB_MODE says so"
    host = _server().netloc
    return f"{host} does not answer" if has_key() else f"there is no key for {host} (`wandb login` makes one)"


def _server() -> SplitResult:
    """The user's server, or the client's default, which differs between versions.

    Never the one in `wandb/settings` of the working directory, which the client would read: it would get the key.
    """
    import wandb

    return urlsplit(_own_server() or wandb.Settings().base_url)


def _own_server() -> str:
    """The address in the environment, or the one that `wandb login --host` has stored."""
    folder = Path(os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb")
    settings = configparser.ConfigParser(interpolation=None)
    try:
        settings.read(folder.expanduser() / "settings")
    except (configparser.Error, UnicodeDecodeError, RuntimeError):  # no home directory
        settings.clear()
    return os.environ.get("WANDB_BASE_URL") or settings.get("default", "base_url", fallback="") or ""


def has_key() -> bool:
    """Whether the environment or the netrc file has a key; the cloud's old address counts for its new one."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    hosts = [_server().netloc, *([] if _own_server() else [CLOUD])]
    try:
        keys = netrc.netrc(os.environ.get("NETRC") or None)
    except (OSError, netrc.NetrcParseError):
        return False
    return any(keys.authenticators(host) for host in hosts)


def _reachable(host: str, port: int) -> bool:
    return not silence(host, port, 2.0)
