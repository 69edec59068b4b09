"""Environments by keyword, closed at the end of each test; no test may leave a process behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from envs.probes import register_probes
from ludus.config.schema import Environment
from ludus.envs.make import make_vector
from ludus.envs.vector import VectorEnv

Make = Callable[..., VectorEnv]


def children() -> set[int]:
    """Process ids of the direct children of this process, zombies too."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(
            FileNotFoundError
        ):  # it ended after it was listed, and with it nobody: children move to the others
            found |= {int(pid) for pid in (thread / "children").read_text().split()}
    return found


@pytest.fixture(autouse=True, scope="session")
def probes() -> None:
    register_probes()


@pytest.fixture
def make() -> Iterator[Make]:
    """`make(id, vectorization=..., num_envs=..., ...)`"""
    made: list[VectorEnv] = []
    before = children()

    def build(id: str, *, render_mode: str | None = None, **fields: Any) -> VectorEnv:
        fields = {"vectorization": "sync", "num_envs": 4, "workers": 1, **fields}
        made.append(make_vector(Environment(id=id, **fields), render_mode=render_mode))
        return made[-1]

    yield build
    for env in made:
        env.close()
    subprocess._cleanup()  # type: ignore[attr-defined]  # reaps what failed constructors left
    assert children() <= before
