"""Tables on the screen: as wide as the terminal, plain text when nobody looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludus.text import ascii_only, clean

_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "": ""}
_GAP = 2
_MOST = 160


@dataclass(frozen=True)
class Column:
    """One column; `weight` decides which goes first when there is no room (0 stays)."""

    title: str
    right: bool = False
    weight: int = 0
    style: Callable[[str], str] = lambda _: ""
    """The style of a cell by its text."""


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Title line and rows; columns go, then text is cut, until a line fits the terminal."""
    terminal = sys.stdout.isatty()
    colour = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    cells = [
        [cell if cell.isprintable() and len(cell) <= _MOST else clean(cell, _MOST) for cell in row] for row in rows
    ]
    titles = [clean(column.title, _MOST) for column in columns]
    widths = [max([_width(title), *(_width(row[i]) for row in cells)]) for i, title in enumerate(titles)]
    shown = list(range(len(columns)))
    if terminal:
        room = max(os.get_terminal_size().columns, 40)
        shown = _fitting(columns, widths, room)
        over = sum(widths[i] for i in shown) + _GAP * (len(shown) - 1) - room
        if over > 0:
            widest = max(shown, key=lambda i: widths[i])
            widths[widest] = max(widths[widest] - over, 8)
    lines = [[(titles[i], "dim", widths[i], columns[i].right) for i in shown]]
    lines += [[(row[i], columns[i].style(row[i]), widths[i], columns[i].right) for i in shown] for row in cells]
    text = "\n".join((" " * _GAP).join(_cell(*cell, colour) for cell in line).rstrip() for line in lines)
    say(text)


def say(text: str) -> None:
    """Print, in ASCII where the terminal knows no more."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "\n".join(ascii_only(line) for line in text.split("\n"))
    print(text)


def painted(text: str, style: str) -> str:
    """Text in a style, if it goes to a terminal."""
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if colour and style else text


def state_style(state: str) -> str:
    """Colour of a run's state."""
    return {"running": "cyan", "finished": "", "stopped": "yellow", "failed": "red", "lost": "red"}.get(state, "dim")


def _fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    shown = list(range(len(columns)))
    while sum(widths[i] for i in shown) + _GAP * (len(shown) - 1) > room:
        heaviest = max(shown, key=lambda i: columns[i].weight)
        if columns[heaviest].weight == 0:
            break
        shown.remove(heaviest)
    return shown


def _cell(text: str, style: str, width: int, right: bool, colour: bool) -> str:
    if _width(text) > width:
        text = text[: width - 1] + "…"
    space = " " * (width - _width(text))
    painted_text = f"\x1b[{_CODES[style]}m{text}\x1b[0m" if colour and style else text
    return space + painted_text if right else painted_text + space


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
