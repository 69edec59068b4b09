"""Ctrl-C while an update is compiled ends a run without a traceback."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from commands import SHORT

folder = Path(tempfile.mkdtemp())
words = [sys.executable, "-m", "ludus", *SHORT, "runtime.compile=always"]
places = {"LUDUS_CACHE": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch")}
process = subprocess.Popen(
    words, cwd=folder, env={**os.environ, **places}, stderr=subprocess.PIPE, text=True, start_new_session=True
)


def compiling() -> bool:
    """Whether g++ is at work on the update of this run."""
    for name in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            words, given = (name.with_name(file).read_bytes() for file in ("cmdline", "environ"))
            if name.read_text() == "cc1plus\n" and b"wrapper.cpp" in words and bytes(folder) in given:
                return True
    return False


while not compiling():
    assert process.poll() is None, "needs g++"
    time.sleep(0.02)
os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the foreground gets it
errors = process.communicate()[1]
assert "Traceback" not in errors, errors[-1500:]
assert process.returncode in (75, 130), f"exit code {process.returncode}"
