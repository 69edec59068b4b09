"""The documentation as a searchable site without outside requests: `python tools/docs_site.py FOLDER`.

The pages are laid out as in the repository, so that every link works in both places. A dead link ends the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
FRONT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md")
"""Pages that lie beside `docs`."""


def build(target: Path) -> None:
    """Write the site into a folder, whose old content goes."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        lay_out(work)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if done.returncode:
            said = re.sub(r"\x1b\[[\d;]*m", "", done.stderr).partition("Traceback")[0]  # the colours of a terminal
            raise SystemExit(f"{said}error: the site was not built")
        if dead := dead_links(work / "site"):
            raise SystemExit("\n".join([*dead, f"{len(dead)} issues found", "error: the site was not built"]))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(work / "site", target)


def lay_out(work: Path) -> None:
    """The config and the pages, as Zensical reads them: links between folders are followed first."""
    shutil.copy(ROOT / "mkdocs.yml", work)
    shutil.copytree(ROOT / "docs", work / "pages" / "docs")
    for page in FRONT:
        shutil.copy(ROOT / page, work / "pages")


def dead_links(site: Path) -> list[str]:
    """Links and pictures of the site that lead to no file of it; Zensical looks at links between pages only."""
    dead = []
    for page in sorted(site.rglob("*.html")):
        if page.name != "404.html":  # its links begin at the root of a server
            reader = _Links()
            reader.feed(page.read_text())
            dead += [f"{page.relative_to(site)}: {link}" for link in reader.found if not _leads(page, link)]
    return dead


def _leads(page: Path, link: str) -> bool:
    path = unquote(link.partition("#")[0].partition("?")[0])
    target = page.parent / path
    return not path or target.is_file() or (target / "index.html").is_file()


class _Links(HTMLParser):
    """Collects what a page points at, without addresses of other servers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = [value for name, value in attrs if name in ("href", "src") and value]
        self.found += [value for value in values if not value.startswith(("http:", "https:", "data:", "mailto:"))]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    build(Path(sys.argv[1]))
