"""F25: a compiled run that is resumed where there is no compiler goes on, or names a remedy that resume takes."""

import tempfile
from pathlib import Path

from commands import SHORT, ludus

folder = Path(tempfile.mkdtemp())
first = ludus(*SHORT, "runtime.compile=always", folder=folder, LUDUS_CACHE=str(folder / "cache"))
assert first.returncode == 0 and any((folder / "cache").rglob("*")), "needs a C++ compiler"
elsewhere = {"LUDUS_CACHE": str(folder / "empty"), "PATH": "/nonexistent", "CXX": "no-g++"}
words = ["resume", "@last", "training.total_timesteps=1200"]
done = ludus(*words, folder=folder, **elsewhere)
if done.returncode:
    advice = "runtime.compile=auto"
    followed = ludus(*words, advice, folder=folder, **elsewhere)
    assert advice not in done.stderr or followed.returncode == 0, f"{done.stderr}then {followed.stderr}"
