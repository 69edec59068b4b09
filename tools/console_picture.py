"""Draws `docs/pictures/console.svg`: trains CartPole-v1:ppo and keeps what the terminal shows in the end."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

from rich.console import Console, RenderableType

from ludus import cli

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "console.svg"


class LastFrame:
    """In the place of rich's Live: only the last table is drawn."""

    def __init__(self, console: Console, **_: object) -> None:
        self.console, self.frame = console, None

    def start(self, refresh: bool = False) -> None:
        """Nothing is drawn yet."""

    def update(self, frame: RenderableType, refresh: bool = False) -> None:
        """Keep the newest frame."""
        self.frame = frame

    def stop(self) -> None:
        """Draw it."""
        self.console.print(self.frame, end="")


def draw(picture: Path, *words: str) -> None:
    """Train in a temporary folder and write what a terminal of 108 columns shows."""
    terminal = Console(
        record=True, force_terminal=True, width=108, height=44, file=io.StringIO(), highlight=False, soft_wrap=True
    )
    picture = picture.absolute()
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            with mock.patch("rich.console.Console", lambda **_: terminal), mock.patch("rich.live.Live", LastFrame):
                cli.main(["train", "CartPole-v1:ppo", "-q", *words])
        except SystemExit as end:
            if end.code:
                raise
        finally:
            os.chdir(before)
    picture.write_text(terminal.export_svg(title="ludus train CartPole-v1:ppo"))


if __name__ == "__main__":
    draw(PICTURE, *sys.argv[1:])
