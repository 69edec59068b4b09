"""5, docs: where a page tells which commands take `--plugin`, it names them all."""

import importlib
import inspect
import re
from pathlib import Path

import ludus
from ludus.cli import COMMANDS

docs = Path(ludus.__file__).parents[2] / "docs"
takes = set()
for name, (where, _) in COMMANDS.items():
    module, part = where.split(":")
    command = getattr(importlib.import_module(module), part)
    if inspect.isfunction(command) and "plugin" in inspect.signature(command).parameters:
        takes.add(name)
assert {"train", "resume", "model"} <= takes
for page, beginning in (("configuration.md", "`--plugin FILE` runs"), ("extending/algorithm.md", "entry point of the")):
    (told,) = [part for part in (docs / page).read_text().split("\n\n") if beginning in part and "`--plugin" in part]
    missing = {name for name in takes if not re.search(rf"`(ludus )?{name}`", told)}
    denied = "Only `ludus train` takes it" in told or "is an option of `ludus train` alone" in told
    assert not (missing and denied), f"{page} denies that these take --plugin: {sorted(missing)}"
