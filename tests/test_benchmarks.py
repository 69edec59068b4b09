"""Benchmarks and tools run rarely: what they take from the package must be there."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path for room in ("benchmarks", "tools") for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_imports_exist(path: Path) -> None:
    wanted = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    for node in wanted:
        if node.module and node.module.split(".")[0] == "ludus":
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.util.find_spec(f"{node.module}.{name.name}"), name.name


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_the_off_policy_benchmark_has_a_config(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.config.compose import load

    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "peers"))
    task = importlib.import_module("off_policy_task").TASKS[algorithm]
    words = importlib.import_module("off_policy_ludus").overrides(task)
    assert load(f"{task.env}:{task.algorithm}", words).config.algorithm.name == algorithm
