"""The site of `make docs`: it builds offline, shows every page, asks nobody else, finds what it holds."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from inspected import CHROMIUM, chromium

pytest.importorskip("zensical")
pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "docs_site.py"
ALONE = ["unshare", "--map-root-user", "--net"]
"""Runs a command in a machine without any network."""
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def build(tool: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Without a network, where the system lets us have none."""
    offline = ALONE if shutil.which("unshare") and subprocess.run([*ALONE, "true"]).returncode == 0 else []
    return subprocess.run([*offline, sys.executable, str(tool), str(target)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("documentation") / "site"
    done = build(TOOL, target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright")
    with chromium() as made:
        yield made


def listed(part: Any) -> list[str]:
    """The pages of the navigation, or of a part of it."""
    if isinstance(part, str):
        return [part]
    return [page for inner in (part.values() if isinstance(part, dict) else part) for page in listed(inner)]


def navigation() -> list[str]:
    lines = [line for line in (ROOT / "mkdocs.yml").read_text().splitlines() if "!!python" not in line]
    return listed(yaml.safe_load("\n".join(lines))["nav"])


def place(page: str) -> str:
    """Where a page stands in the site."""
    path = Path(page)
    return path.with_name("index.html" if path.name == "README.md" else f"{path.stem}.html").as_posix()


def test_every_page_is_in_the_navigation_once() -> None:
    told = navigation()
    written = {path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md")]}
    assert len(written) > 50
    assert len(told) == len(set(told))
    assert set(told) == written | set(runpy.run_path(str(TOOL))["FRONT"])


def test_every_page_is_built(site: Path) -> None:
    assert [page for page in navigation() if not (site / place(page)).is_file()] == []


@pytest.mark.parametrize("link", ["nowhere.md", "runs.md#nowhere", "pictures/nowhere.png", "../src/ludus/types.py"])
def test_a_dead_link_ends_the_build(link: str, tmp_path: Path) -> None:
    """A page, a heading, a picture, and a file of the repository that is not in the site."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "tools").mkdir()
    shutil.copy(TOOL, tmp_path / "tools")
    for page in runpy.run_path(str(TOOL))["FRONT"]:
        (tmp_path / page).write_text("# A page\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: Small\ndocs_dir: pages\ntheme: {font: false}\n")
    (tmp_path / "docs" / "runs.md").write_text("# Runs\n")
    page = tmp_path / "docs" / "page.md"
    page.write_text("# Page\n\n[Runs](runs.md)\n")
    assert build(tmp_path / "tools" / TOOL.name, tmp_path / "site").returncode == 0
    page.write_text(f"# Page\n\n[Runs]({link})\n")
    done = build(tmp_path / "tools" / TOOL.name, tmp_path / "other")
    assert done.returncode == 1
    assert "1 issue" in done.stderr and done.stderr.endswith("\nerror: the site was not built\n")
    assert not (tmp_path / "other").exists()


@needs_browser
def test_every_page_answers_fits_and_asks_nobody_else(address: str, browser: Any) -> None:
    page = browser.new_page()
    faults: list[str] = []
    page.on("request", lambda asked: faults.append(asked.url) if not asked.url.startswith((address, "data:")) else None)
    page.on("response", lambda got: faults.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    for name in navigation():
        answer = page.goto(address + place(name))
        assert answer.status == 200, name
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider than the window"
        assert page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).length") == 0, name
    page.close()
    assert faults == []


@needs_browser
def test_the_search_finds_the_page(address: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(address)
    page.get_by_role("button", name="Search").first.click()
    page.keyboard.type("checkpoint")
    page.locator("a[href*='docs/runs.html?h=checkpoint']").first.click(timeout=60_000)
    page.wait_for_url("**/docs/runs.html**")
    assert page.locator("h1").inner_text().startswith("Runs")
    page.close()
