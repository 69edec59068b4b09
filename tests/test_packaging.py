"""The distribution `ludus-rl`: a wheel that holds everything, and that trains from an empty virtual environment."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from ludus import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = "import sys; from hatchling.builders.wheel import WheelBuilder as W; list(W('.').build(directory=sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


def test_the_metadata_is_that_of_ludus_rl(wheel: Path) -> None:
    assert wheel.name == f"ludus_rl-{__version__}-py3-none-any.whl"
    folder = f"ludus_rl-{__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
        scripts = archive.read(f"{folder}/entry_points.txt").decode()
    assert (metadata["Name"], metadata["Version"]) == ("ludus-rl", __version__)
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert "ludus = ludus.cli:main" in scripts
    assert "# Ludus" in metadata.get_payload()


def test_the_changelog_begins_with_this_version() -> None:
    first = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert re.fullmatch(rf"## {re.escape(__version__)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", first)


def test_no_extra_leads_to_the_other_ludus() -> None:
    needs = [need for extra in PROJECT["optional-dependencies"].values() for need in extra]
    assert any(need.startswith("ludus-rl[") for need in needs)
    assert not [need for need in needs if re.match(r"ludus\b(?!-rl)", need)]


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    source = ROOT / "src"
    mine = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    mine = {name for name in mine if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("ludus/")}
    assert packed == mine
    for data in ("configs/environments/CartPole-v1.yaml", "playbooks/audit_bugs.md", "reports/assets/report.html.j2"):
        assert f"ludus/{data}" in packed


def test_the_wheel_trains_from_an_empty_virtual_environment(wheel: Path, tmp_path: Path) -> None:
    """Only Ludus is installed there; what it needs is borrowed from the environment of the tests."""
    home = tmp_path / "empty"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(str(python), "-c", "import ludus; print(ludus.__file__)")
    assert Path(where.strip()).is_relative_to(home)
    run(str(home / "bin" / "ludus"), "train", "CartPole-v1:ppo", "-q", "--max-timesteps", "512")
    assert "audit_bugs" in run(str(home / "bin" / "ludus"), "task", "list")
    assert (tmp_path / "runs" / "@last" / "report.html").exists()
