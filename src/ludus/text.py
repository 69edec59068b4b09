"""Formats numbers, durations, sparklines and untrusted text for people."""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

MOST_NAMES = 24
ALIKE = 0.7
"""Least similarity of a suggestion: 'pppo' and 'ppo' have 0.86, 'a2c' and 'sac' 0.67."""
BARS = "▁▂▃▄▅▆▇█"
_ASCII = str.maketrans("▁▂▃▄▅▆▇█✗▲▼━╸─╭╮╰╯│±·…⚠✓→≥", "_.,-~=+#x^v=>-++++|~-.!*>>")


def clean(text: object, limit: int = 200) -> str:
    """Untrusted text on one line, without control characters, cut to `limit` characters."""
    escaped = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text)[: limit + 1])
    return escaped if len(escaped) <= limit else escaped[: limit - 1] + "…"


def ascii_only(text: str) -> str:
    """The text in ASCII with the same width."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


Precision = int | Literal["score"]
"""Number of decimals; `score`: one, and three below ten."""


def safe_name(text: str) -> str:
    """Text as an allowed name: `ALE/Pong-v5:ppo` -> `ALE-Pong-v5-ppo`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip(".-")[:64] or "run"


def near(path: Path) -> str:
    """A path relative to the working directory if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):  # it is elsewhere, or the working directory is gone
        return str(path)


def number(value: float, precision: Precision = 3, *, trim: bool = False) -> str:
    """Fixed decimals with thousands separators; very small and large values with an exponent; `trim` drops zeros."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if precision == "score":
        precision = 3 if size < 10 else 1
    if size >= 1e9 or (size != 0 and size < 0.5 * 10.0**-precision):
        return f"{value:.1e}"
    text = f"{value:,.{precision}f}"
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def points(value: float) -> str:
    """A return as text."""
    return number(value, "score")


def duration(seconds: float) -> str:
    """`4.2 s`, `3:07` or `2:03:07`."""
    if not math.isfinite(seconds):
        return "-:--"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate(per_second: float) -> str:
    """`0.3`, `870`, `14.2k` or `1.3M`."""
    if not math.isfinite(per_second):
        return "-"
    if 0 < per_second < 9.95:
        return f"{per_second:.1f}"
    if per_second >= 1e4:
        return f"{per_second / 1e6:.1f}M" if per_second >= 1e6 else f"{per_second / 1e3:.1f}k"
    return f"{per_second:,.0f}"


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in at most `width` characters, each the mean of its part; `✗` where it is not finite."""
    count = len(values)
    if count == 0 or width <= 0:
        return ""
    if count > width:
        edges = [i * count // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = 7.999 / (high - low) if high > low and math.isfinite(high - low) else 0.0
    flat = BARS[0] if high == 0 else BARS[3]
    bars = [BARS[int((value - low) * scale)] if scale and math.isfinite(value) else flat for value in values]
    return "".join(bar if math.isfinite(value) else "✗" for bar, value in zip(bars, values, strict=True))


def did_you_mean(name: object, options: Iterable[object]) -> str:
    """`did you mean 'x'?`, or a list of known names if none is similar."""
    names = [str(option) for option in options]
    lowered = {option.lower(): option for option in reversed(names)}
    given = str(name).lower()
    swapped = [option for option in lowered if sorted(option) == sorted(given)]  # `gur` for `gru`
    close = difflib.get_close_matches(given, lowered, n=1, cutoff=ALIKE) or swapped
    if close:
        return f"did you mean '{lowered[close[0]]}'?"
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"known: {', '.join(names[:MOST_NAMES])}{rest}" if names else "none are known"
