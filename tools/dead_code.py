"""Names of `src/ludus` that occur only where they are defined: candidates for removal, to be looked at."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = {"src": "*.py", "tests": "*.py", "benchmarks": "*.py", "tools": "*.py", "docs": "*.md"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def main() -> None:
    """Print `file:line name` for each."""
    files = [path for place, pattern in PLACES.items() for path in (ROOT / place).rglob(pattern)]
    texts = [*(path.read_text() for path in files), *(path.read_text() for path in ROOT.glob("*.md"))]
    words = Counter(word for text in texts for word in re.findall(r"\w+", text))
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, Definition) or node.decorator_list or node.name.startswith(("__", "test_")):
                continue  # found by a decorator, by Python or by pytest
            if words[node.name] == 1:
                print(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")


if __name__ == "__main__":
    main()
