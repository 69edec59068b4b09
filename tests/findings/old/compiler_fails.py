"""F4: a compiler that fails costs only speed."""

import tempfile
from pathlib import Path

from commands import SHORT, ludus

folder = Path(tempfile.mkdtemp())
wrong = folder / "g++"
wrong.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
wrong.chmod(0o755)
elsewhere = {"CXX": str(wrong), "LUDUS_CACHE": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch")}
done = ludus(*SHORT, "runtime.compile=always", folder=folder, **elsewhere)
assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-1500:]}"
