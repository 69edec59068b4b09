"""F1: a short run computes the same weights whether or not a package of its update lies in the cache."""

import tempfile
from pathlib import Path

from commands import SHORT, ludus, weights

folder = Path(tempfile.mkdtemp())
cache = {"LUDUS_CACHE": str(folder / "cache")}
assert ludus(*SHORT, folder=folder / "before", **cache).returncode == 0
assert ludus(*SHORT, "runtime.compile=always", folder=folder / "compiled", **cache).returncode == 0
assert any(path.is_file() for path in (folder / "cache").rglob("*")), "needs a C++ compiler"
assert ludus(*SHORT, folder=folder / "after", **cache).returncode == 0
same = weights(folder / "before") == weights(folder / "after")
assert same, "the weights depend on what lies in the cache"
