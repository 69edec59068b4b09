"""Weights & Biases: off unless asked for, offline when there is no key or no network."""

from __future__ import annotations

import netrc
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from ludus.errors import MissingExtra
from ludus.metrics.sinks import Row, Sink


class Wandb(Sink):
    """Every row over environment steps. The key stays with the client; code, argv and host are not captured."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        project: str,
        entity: str | None = None,
        tags: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtra("logging.wandb", "wandb") from None
        self._run = wandb.init(
            dir=str(folder),
            name=name,
            project=project,
            entity=entity,
            tags=list(tags),
            config=dict(config or {}),
            mode=cast(Any, choose_mode()),
            reinit="create_new",
            settings=wandb.Settings(
                console="off",
                silent=True,
                x_disable_meta=True,
                x_disable_machine_info=True,
                disable_code=True,
                disable_git=True,
            ),
        )
        self.mode = str(self._run.settings.mode)
        self._run.define_metric("*", step_metric="env_steps")

    def write(self, row: Row) -> None:
        """Hand the row to the client."""
        self._run.log(dict(row))

    def file(self, path: Path, env_steps: int) -> None:
        """Hand a video to the client, which copies it at once; other files are not for there."""
        if path.suffix == ".mp4":
            import wandb

            self._run.log({"env_steps": env_steps, "val/video": wandb.Video(str(path), format="mp4")})

    def close(self) -> None:
        """Wait for the client to finish."""
        self._run.finish()


def choose_mode() -> str:
    """WANDB_MODE if set; else online with a key and a reachable server, else offline (`wandb sync` sends it later)."""
    asked = os.environ.get("WANDB_MODE")
    if asked:
        return asked
    url = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    host = url.hostname or "api.wandb.ai"
    return "online" if _has_key(host) and _reachable(host, url.port or 443) else "offline"


def _has_key(host: str) -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _reachable(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2.0).close()
    except OSError:
        return False
    return True
