"""JSON that browsers read: they know no NaN, so what is not finite is null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping


def strict_json(value: object) -> str:
    """A value as one line of JSON; NaN and infinity become null, keys text."""
    return json.dumps(_strict(value), allow_nan=False, separators=(",", ":"))


def _strict(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
