"""A pickle that leaves a trace when it is opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class Payload:
    """Unpickling it makes a folder."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.canary),)
