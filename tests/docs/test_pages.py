"""Every command, file and snippet of the README and the docs works; nothing they point at is missing."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.config import compose

ROOT = Path(__file__).parents[2]
GUIDES = [
    ROOT / f"{name}.md" for name in ("AGENTS", "CLAUDE", "ARCHITECTURE_GUIDE", "CODING_PRINCIPLES", "CONTRIBUTING")
]
"""For people and agents who work on the code: their commands are tools, so only links and paths are checked."""
FOLDERS = [ROOT / "docs", ROOT / "docs" / "extending", ROOT / "docs" / "tutorials"]
PAGES = sorted([ROOT / "README.md", *(page for folder in FOLDERS for page in folder.glob("*.md"))])
AS_WRITTEN = {"algorithm.md", "environment.md"}
"""Pages whose trainings are short enough to run in full."""
OLD_NAMES = {"coming-from.md"}
"""Pages that name files of other projects."""
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
every_text = pytest.mark.parametrize("page", [*PAGES, *GUIDES], ids=lambda page: page.name)


@every_page
def test_everything_runs(page: Path, ludus: Any, blocks: Any, tmp_path: Path) -> None:
    """In the order of the page: files are written, commands run, snippets executed, settings validated."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.title:
            target = tmp_path / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
        elif block.language == "bash":
            for line in block.commands():
                check_command(line, ludus, where, as_written=page.name in AS_WRITTEN)
        elif block.language == "console":
            check_session(block.text, ludus, where)
        elif block.language == "python":
            exec(compile(block.text, where, "exec"), namespace)
        elif block.language == "yaml":
            check_settings(block.text, tmp_path, where)
        else:
            assert block.language == "text", f"{where}: a block of {block.language} is not checked"


def check_command(line: str, ludus: Callable[..., Any], where: str, *, as_written: bool) -> None:
    """`ludus` and `pytest` run; the targets, extras and scripts that others name exist."""
    words = shlex.split(line, comments=True)
    if words[0] == "ludus":
        outcome = ludus(line, as_written=as_written)
        assert outcome.code == 0, f"{where}: {line}\n{outcome.err}"
    elif words[0] == "pytest":
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
        assert done.returncode == 0, f"{where}: {line}\n{done.stdout}"
    elif words[0] == "make":
        assert words[1] in TARGETS, f"{where}: {line}"
    elif "install" in words:
        wanted = re.findall(r"\[([\w,]+)\]", line)
        assert all(extra in EXTRAS for group in wanted for extra in group.split(",")), f"{where}: {line}"
        assert "-c" not in words or (ROOT / words[words.index("-c") + 1]).exists(), f"{where}: {line}"
    elif "python" in words[0]:
        assert (ROOT / words[1]).exists(), f"{where}: {line}"
    else:
        assert words[0] in ("tensorboard", "git", "cd", "source"), f"{where}: who runs {words[0]}?"


def check_session(text: str, ludus: Callable[..., Any], where: str) -> None:
    """Each `$ ludus ...` prints the lines below it; an `error:` line means that it fails."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, *expected = part.splitlines()
        outcome = ludus(line)
        printed = (outcome.out + outcome.err).splitlines()
        for wanted in expected:
            assert wanted == "..." or wanted in printed, f"{where}: {line}\nwanted: {wanted}\n" + "\n".join(printed)
        assert (outcome.code != 0) == any(wanted.startswith("error:") for wanted in expected), f"{where}: {line}"


def check_settings(text: str, folder: Path, where: str) -> None:
    """A fragment of a config holds, over CartPole-v1:ppo unless it names an algorithm."""
    path = folder / "fragment.yaml"
    path.write_text(text if re.search(r"^algorithm:", text, re.MULTILINE) else "extends: CartPole-v1:ppo\n" + text)
    assert compose.load(str(path)).config.environment.id, where


@every_text
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """Headings as GitHub makes links of them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@every_text
def test_paths_exist(page: Path) -> None:
    """A path in backticks is one of the repository, or of the package."""
    if page.name in OLD_NAMES:
        return
    mine = set(re.findall(r'title="(\S+)"', page.read_text()))
    for path in re.findall(r"`((?:src|docs|tests|benchmarks|tools|algorithms|networks|envs|data|orchestration|metrics|"
                           r"runs|config|cli|math)/[\w./-]+\.(?:py|md|yaml))`", page.read_text()):  # fmt: skip
        assert path in mine or (ROOT / path).exists() or (ROOT / "src" / "ludus" / path).exists(), path


@every_page
def test_a_page_says_what_to_read_next(page: Path) -> None:
    if page.name != "README.md":
        assert "\n\nNext: " in page.read_text()[-400:]


def test_every_page_can_be_reached() -> None:
    """From the README, by links."""
    seen: set[Path] = set()
    queue = [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)\s#:]+)\)", page.read_text())
        queue += [(page.parent / link).resolve() for link in links]
    assert set(PAGES) <= seen, [page.name for page in set(PAGES) - seen]
