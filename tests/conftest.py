"""What every test shares: one thread, no window, the golden vectors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

# before torch, numpy and pygame are imported, here and in the subprocesses of tests
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"
os.environ["WANDB_MODE"] = "offline"

import pytest
from hypothesis import settings

settings.register_profile("ludus", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("ludus")


WHOLE = ("cli", "docs", "faults", "golden", "learn", "session")
"""Folders of tests that run whole commands, runs or processes; `pytest -m unit` leaves them out."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test as `integration` or `unit`."""
    here = Path(__file__).parent
    for item in items:
        if item.get_closest_marker("integration") is None:
            whole = item.path.relative_to(here).parts[0] in WHOLE or item.get_closest_marker("slow") is not None
            item.add_marker("integration" if whole else "unit")


@pytest.fixture(scope="session", autouse=True)
def config_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests agree to is not what the user of this machine has agreed to."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """Known answers computed by other people's code."""
    return json.loads((Path(__file__).parent / "golden" / "golden_vectors.json").read_text())
