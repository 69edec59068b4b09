"""The scripts in `tools/`: what they made is current, and they can find what they look for."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import ludus

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"


def test_the_tables_of_files_are_current() -> None:
    page = runpy.run_path(str(TOOLS / "file_tables.py"))["page"]()
    written = (ROOT / "docs" / "reference" / "files.md").read_text()
    assert written == page, "run python tools/file_tables.py --write"
    assert page.count("\n| `") > 200 and "|  |" not in page


def test_the_python_reference_is_current_and_whole() -> None:
    page = runpy.run_path(str(TOOLS / "api_reference.py"))["page"]()
    written = (ROOT / "docs" / "reference" / "python.md").read_text()
    assert written == page, "run python tools/api_reference.py --write"
    for name in set(ludus.__all__) - {"__version__"}:
        assert f"\n### ludus.{name}\n" in page, name
    assert "#### Run.evaluate\n\n```python\nevaluate(\n    episodes: int = 100,\n    *,\n" in page
    assert ludus.Run.evaluate.__doc__ in page and "- `folder: Path`: Where it is.\n" in page


def test_a_function_that_nobody_calls_is_found(tmp_path: Path) -> None:
    for name in ("src", "tools"):
        (tmp_path / name).mkdir()
    shutil.copy(TOOLS / "dead_code.py", tmp_path / "tools")
    (tmp_path / "src" / "part.py").write_text("def called(): ...\n\n\ndef forgotten(): ...\n\n\ncalled()\n")
    command = [sys.executable, str(tmp_path / "tools" / "dead_code.py")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == ["src/part.py:4 forgotten"]


def test_the_picture_of_the_console_is_what_a_run_shows(tmp_path: Path) -> None:
    draw = runpy.run_path(str(TOOLS / "console_picture.py"))["draw"]
    draw(tmp_path / "console.svg", "--max-timesteps", "1024")
    shown, kept = words(tmp_path / "console.svg"), words(ROOT / "docs" / "pictures" / "console.svg")
    for word in ("ludus train CartPole-v1:ppo", "algorithm", "ep_rew/mean", "history"):
        assert word in shown and word in kept
    assert "SOLVED" in kept


def words(picture: Path) -> str:
    """The text of a picture; an SVG is XML, or this fails."""
    found = " ".join(ElementTree.parse(picture).getroot().itertext())
    return found.replace("\xa0", " ")
