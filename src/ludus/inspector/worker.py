"""The process that plays and looks into policies: orders come as lines of JSON, results go into folders.

An environment may end it; the server starts another one. Started as `python -m ludus.inspector.worker`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, TextIO

from ludus.errors import LudusError
from ludus.files import write_text

MOST_KEPT = 3
"""Episodes that stay in memory, for a look inside."""
_PAUSE = 0.2


class Workplace:
    """The runs, and the newest episodes."""

    def __init__(self, answers: TextIO) -> None:
        self.answers = answers
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def obey(self, order: dict[str, Any]) -> None:
        """Do what one line says; a failure that can be told is told, any other ends the process."""
        try:
            played = self._episode(order)
            if order["do"] != "episode":
                self._look(order, played)
        except LudusError as error:
            self._say({"error": error.line()})
        else:
            self._say({"done": True})

    def _episode(self, order: dict[str, Any]) -> Any:
        """The episode of an order: the one in memory, or played (again)."""
        from ludus.inspector import recording

        folder = Path(order["folder"])
        if folder.name in self._kept and (folder / "episode.json").exists():
            self._kept.move_to_end(folder.name)
            return self._kept[folder.name]
        folder.mkdir(exist_ok=True)
        told = time.monotonic()

        def tell(steps: int) -> None:
            nonlocal told
            if time.monotonic() - told > _PAUSE:
                told = time.monotonic()
                self._say({"progress": steps})

        wish = recording.Wish(**order["wish"])
        played, pictures = recording.play(Path(order["runs"]), wish, order["plugins"], folder / "frames.bin", tell)
        recording.write(played, folder, pictures)
        self._kept[folder.name] = played
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return played

    def _look(self, order: dict[str, Any], played: Any) -> None:
        from ludus.inspector import dreams, inside
        from ludus.inspector.strict import strict_json

        t = min(max(int(order["t"]), 0), len(played.steps) - 1)
        found = {"inside": inside.look, "dream": dreams.imagined}[order["do"]](played, t)
        write_text(Path(order["folder"]) / order["file"], strict_json(found), durable=False)

    def _say(self, answer: dict[str, Any]) -> None:
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()


def main() -> None:
    """Obey until there are no more orders; what environments print goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        place = Workplace(answers)
        import torch

        torch.set_num_threads(1)
        for line in sys.stdin:
            place.obey(json.loads(line))


if __name__ == "__main__":
    main()
