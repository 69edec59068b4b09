"""The layer rules hold, and each of them can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache', '--no-logo'])"


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over the package below `source`, by the contracts of pyproject.toml."""
    return subprocess.run([sys.executable, "-c", LINT], cwd=source, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src" / "ludus", tmp_path / "ludus", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_rules_hold(copy):
    result = lint(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("file", "line", "rule"),
    [
        ("math/policy_gradient.py", "import ludus.data.collector", "layers import only downwards"),
        ("types.py", "import ludus.errors", "layers import only downwards"),
        ("networks/policy.py", "import ludus.envs.make", "layers import only downwards"),
        ("orchestration/orchestrator.py", "import ludus.algorithms.ppo", "orchestration knows no concrete algorithm"),
        ("algorithms/ppo.py", "import ludus.algorithms.reinforce", "algorithms never import each other"),
        ("networks/memory/gru.py", "import ludus.networks.memory.none", "memory cores never import each other"),
        ("helpers.py", "", "layers import only downwards"),
    ],
)
def test_a_forbidden_import_is_found(copy, file, line, rule):
    with (copy / "ludus" / file).open("a") as source:
        source.write(f"\n{line}\n")
    result = lint(copy)
    assert result.returncode == 1
    assert f"{rule} BROKEN" in result.stdout


@pytest.mark.parametrize("module", ["ludus", "ludus.types", "ludus.errors", "ludus.registry"])
def test_the_bottom_imports_nothing_heavy(module):
    heavy = {"torch", "gymnasium", "hydra", "rich", "pydantic"}
    code = f"import sys, {module}; print({heavy} & set(sys.modules) or 'light')"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "light"
