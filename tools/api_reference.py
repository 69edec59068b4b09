"""The Python interface, from its docstrings: prints `docs/reference/python.md`, or writes it with --write."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "reference" / "python.md"
WIDTH = 90
HEAD = """# Python reference

Made by `python tools/api_reference.py --write` from signatures and docstrings; do not edit. [Python](../python.md)
shows how to use it, [extending](../extending/algorithm.md) how to write an algorithm.
"""
PUBLIC = "ludus/__init__.py"
RETURNED = (
    "ludus.orchestration.evaluator:EvalResult",
    "ludus.session.evaluate:PlayedEpisode",
    "ludus.reports.compare:Comparison",
    "ludus.archive.record:Record",
)
PLUGINS = (
    "ludus.algorithms:Algorithm",
    "ludus.algorithms:Context",
    "ludus.algorithms:PhaseContext",
    "ludus.types:Report",
    "ludus.types:Acted",
    "ludus.types:ActResult",
    "ludus.types:Spaces",
)


def page() -> str:
    """The whole page: functions, what they return, and what an algorithm is made of."""
    public = public_names()
    functions = [name for name in public if name[0].islower()]
    classes = [name for name in public if name[0].isupper()]
    parts = [HEAD, "## Functions\n", *(entry(f"ludus.{name}", public[name]) for name in functions)]
    parts += ["## What they return and raise\n", *(entry(f"ludus.{name}", public[name]) for name in classes)]
    parts += [entry(place.replace(":", "."), place) for place in RETURNED]
    parts += ["## For your own algorithm\n", *(entry(place.replace(":", "."), place) for place in PLUGINS)]
    return "\n".join(parts)


def public_names() -> dict[str, str]:
    """What `import ludus` offers: name -> module:attribute."""
    for node in ast.parse((SOURCE / PUBLIC).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PUBLIC":
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise SystemExit(f"error: {PUBLIC}: no _PUBLIC")


def entry(title: str, place: str) -> str:
    """A function or a class with its members."""
    node = found(place)
    if isinstance(node, ast.FunctionDef):
        return "\n".join([f"### {title}\n", signature(node), f"{text(node)}\n"])
    lines = [f"### {title}\n", f"{text(node)}\n"]
    facts = [*fields(node), *(f"- `{name(one)}`: {text(one)}" for one in members(node) if has(one, "property"))]
    lines += [*facts, ""] if facts else []
    for method in members(node):
        if not has(method, "property"):
            lines += [f"#### {title.rpartition('.')[2]}.{method.name}\n", signature(method), f"{text(method)}\n"]
    return "\n".join(lines)


def found(place: str) -> ast.FunctionDef | ast.ClassDef:
    module, _, wanted = place.partition(":")
    path = SOURCE / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == wanted:
            return node
    raise SystemExit(f"error: {place}: there is no such name")


def members(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Public methods and properties with a docstring, and `__call__`; not the ways in which Ludus makes one."""
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and not has(one, "classmethod")]
    return [one for one in methods if ast.get_docstring(one) and (one.name == "__call__" or one.name[0] != "_")]


def has(node: ast.FunctionDef, decorator: str) -> bool:
    return any(ast.unparse(one) == decorator for one in node.decorator_list)


def fields(node: ast.ClassDef) -> Iterator[str]:
    """Attributes of the class, and those that its constructor explains."""
    yield from rows(node.body, explained_only=False)
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            yield from rows(method.body, explained_only=True)


def rows(body: list[ast.stmt], *, explained_only: bool) -> Iterator[str]:
    """A line for each attribute that is set there; the text below one explains it."""
    for one, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(one, ast.AnnAssign):
            label, kind = ast.unparse(one.target), f": {shown(one.annotation)}"
        elif isinstance(one, ast.Assign):
            label, kind = ast.unparse(one.targets[0]), ""
        else:
            continue
        label = label.removeprefix("self.")
        told = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if (told or not explained_only) and not label.startswith("_"):
            yield f"- `{label}{kind}`" + (f": {line(str(told))}" if told else "")


def name(node: ast.FunctionDef) -> str:
    return f"{node.name}: {shown(node.returns)}" if node.returns else node.name


def signature(node: ast.FunctionDef) -> str:
    """The call, on one line if it fits."""
    given = split(ast.unparse(node.args).replace("SavedRun", "Run"))
    given = [re.sub(r"^(\w+: [^=]*)=", r"\1 = ", one) for one in given if one != "self"]
    returns = f" -> {shown(node.returns)}" if node.returns else ""
    call = f"{node.name}({', '.join(given)}){returns}"
    if len(call) > WIDTH:
        call = "\n".join([f"{node.name}(", *(f"    {one}," for one in given), f"){returns}"])
    return f"```python\n{call}\n```\n"


def split(given: str) -> list[str]:
    """Arguments: the commas outside of brackets part them."""
    parts, depth = [""], 0
    for letter in given:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def shown(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node).replace("SavedRun", "Run")


def text(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Its docstring; the lines of a paragraph are one line."""
    return "\n\n".join(line(part) for part in (ast.get_docstring(node) or "").split("\n\n"))


def line(part: str) -> str:
    return " ".join(part.split())


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(page(), end="")
