"""Tables on the terminal: fitted to its width and coloured; plain text of full width in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ludus.text import ascii_only, clean

_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_GAP = 2
_MOST = 160
_LEAST = 8
"""Characters to which a column may be cut."""


class Column(NamedTuple):
    """One column; where there is no room the one with the largest `weight` is dropped first, and 0 never."""

    title: str
    right: bool = False
    weight: int = 0
    style: Callable[[str], str] = lambda _: ""
    """The style of a cell by its text."""


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print titles and rows; on a terminal, columns are dropped and the widest are cut until a line fits."""
    cells = [
        [text if text.isprintable() and len(text) <= _MOST else clean(text, _MOST) for text in row] for row in rows
    ]
    titles = [clean(column.title, _MOST) for column in columns]
    widths = [max(map(_width, texts)) for texts in zip(titles, *cells, strict=True)]
    shown = list(range(len(columns)))
    if sys.stdout.isatty():
        room = max(os.get_terminal_size().columns, 40) + _GAP
        while (over := sum(widths[i] + _GAP for i in shown) - room) > 0 and any(columns[i].weight for i in shown):
            shown.remove(max(shown, key=lambda i: columns[i].weight))
        while over > 0 and widths[widest := max(shown, key=lambda i: widths[i])] > _LEAST:
            widths[widest] -= 1
            over -= 1
    for row in (titles, *cells):
        styles = [column.style(text) if row is not titles else "dim" for column, text in zip(columns, row, strict=True)]
        line = [_cell(row[i], styles[i], widths[i], columns[i].right) for i in shown]
        say((" " * _GAP).join(line).rstrip())


def say(text: str) -> None:
    """Print, in ASCII if the terminal cannot show more."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = "\n".join(ascii_only(line) for line in text.split("\n"))
    print(text)


def painted(text: str, style: str) -> str:
    """Text in a style, if it goes to a terminal with colours."""
    colour = style and sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if colour else text


def state_style(state: str) -> str:
    """Colour of a run's state."""
    return {"running": "cyan", "finished": "", "stopped": "yellow", "failed": "red", "lost": "red"}.get(state, "dim")


def _cell(text: str, style: str, width: int, right: bool) -> str:
    if _width(text) > width:
        text = text[: width - 1] + "…"
    space = " " * (width - _width(text))
    return space + painted(text, style) if right else painted(text, style) + space


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
