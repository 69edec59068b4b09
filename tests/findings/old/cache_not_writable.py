"""F4: a cache that cannot be written costs only time."""

import tempfile
from pathlib import Path

from commands import SHORT, ludus

folder = Path(tempfile.mkdtemp())
(folder / "file").write_text("not a folder")
done = ludus(*SHORT, "runtime.compile=always", folder=folder, LUDUS_CACHE=str(folder / "file" / "cache"))
assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr.splitlines()[-1]}"
