"""F4: packages that a power cut left half written cost only the time to build them again."""

import tempfile
from pathlib import Path

from commands import SHORT, ludus

folder = Path(tempfile.mkdtemp())
cache = {"LUDUS_CACHE": str(folder / "cache")}
assert ludus(*SHORT, "runtime.compile=always", folder=folder, **cache).returncode == 0
packages = [path for path in (folder / "cache").rglob("*") if path.is_file()]
assert packages, "needs a C++ compiler"
for path in packages:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
done = ludus(*SHORT, "runtime.compile=always", folder=folder, **cache)
assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-1500:]}"
