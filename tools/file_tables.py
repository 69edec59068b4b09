"""Tables of all files, from their docstrings: prints `docs/reference/files.md`, or writes it with --write."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "ludus"
PAGE = ROOT / "docs" / "reference" / "files.md"
HEAD = """# Files of the package

Made by `python tools/file_tables.py --write` from the first line of each file.
`CONTRIBUTING.md` says which part goes where.
"""


def page() -> str:
    """The whole page: one table per folder, the package itself first."""
    folders = sorted({path.parent for path in PACKAGE.rglob("*.py")})
    return "\n".join([HEAD, *(table(folder) for folder in folders)])


def table(folder: Path) -> str:
    """The heading of a folder and one row per file with code in it."""
    rows = [f"| `{path.name}` | {purpose(path)} |" for path in sorted(folder.glob("*.py")) if path.read_text().strip()]
    return "\n".join([f"## {folder.relative_to(ROOT / 'src')}", "", "| file | what it is |", "|---|---|", *rows, ""])


def purpose(path: Path) -> str:
    """The first line of a file's docstring, as a cell."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.partition("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(page(), end="")
