"""The distribution `ludus-rl`: a wheel that holds everything, and that trains from an empty virtual environment."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()  # what the format asks for
    assert (cited["version"], cited["license"]) == (__version__, PROJECT["license"])
    assert cited["authors"] == PROJECT["authors"]


def test_code_of_others_has_its_licence_beside_it_and_in_the_wheel(wheel: Path) -> None:
    """Code of others is minified here; ours never is."""
    files = [
        path for kind in ("js", "css", "j2") for part in ("src", "tests") for path in ROOT.glob(f"{part}/**/*.{kind}")
    ]
    others = {path for path in files if max(map(len, path.read_text().splitlines())) > 1000}
    assert {path.name for path in others} == {"uPlot.iife.min.js", "uPlot.min.css", "axe.min.js"}
    for path in others:
        licence = (path.parent / f"{path.name.split('.')[0]}.LICENSE").read_text()
        assert re.search(r"Permission is hereby granted|Mozilla Public License, version 2\.0", licence), path
    script = ROOT / "src/ludus/inspector/static/uPlot.iife.min.js"
    assert re.match(r"/\*! \S+/uPlot \(v[\d.]+\) \*/", script.read_text())
    folder = f"ludus_rl-{__version__}.dist-info/licenses"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        kept = archive.read(f"{folder}/src/ludus/inspector/static/uPlot.LICENSE").decode()
    assert "Copyright (c) 2022 Leon Sorokin" in kept
    assert f"{folder}/LICENSE" in names and not [name for name in names if "axe" in name]


def needed(requirements: list[str]) -> set[str]:
    """The distributions that these need here, directly or not."""
    found: set[tuple[str, str]] = set()
    queue = [Requirement(one) for one in requirements]
    while queue:
        need = queue.pop()
        for key in {(canonicalize_name(need.name), extra) for extra in ("", *need.extras)} - found:
            found.add(key)
            inner = [Requirement(one) for one in metadata.requires(key[0]) or []]
            queue += [one for one in inner if one.marker is None or one.marker.evaluate({"extra": key[1]})]
    return {name for name, _ in found}


def borrow(name: str, site: Path) -> None:
    """A distribution of the environment of the tests, by links."""
    distribution = metadata.distribution(name)
    for top in {path.parts[0] for path in distribution.files or [] if path.parts[0] not in ("..", "__pycache__")}:
        if not (site / top).exists():
            (site / top).symlink_to(distribution.locate_file(top))


def test_the_wheel_trains_from_an_empty_virtual_environment(wheel: Path, tmp_path: Path) -> None:
    """What the wheel says it needs is borrowed from the environment of the tests, and nothing else is there."""
    home = tmp_path / "empty"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str, code: int = 0) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    site = next(home.glob("lib/python*/site-packages"))
    for name in needed(PROJECT["dependencies"]):
        borrow(name, site)
    run(*pip, "install", "-q", "--no-index", str(wheel))  # fails if a declared dependency is missing or too old
    run(*pip, "check")
    where = run(str(python), "-c", "import ludus; print(ludus.__file__, ludus.__version__)").split()
    assert Path(where[0]).is_relative_to(home) and where[1] == __version__
    ludus = str(home / "bin" / "ludus")
    run(ludus, "train", "CartPole-v1:ppo", "-q", "--max-timesteps", "512")
    assert "audit_bugs" in run(ludus, "task", "list")
    assert (tmp_path / "runs" / "@last" / "report.html").exists()
    assert "pip install 'ludus-rl[inspect]'" in run(ludus, "inspect", "@last", code=2)
