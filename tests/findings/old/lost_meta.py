"""F12: without meta.json, status.json and checkpoints the name of a run folder says what it is and when it began."""

import json
import shutil
import tempfile
from pathlib import Path

from commands import SHORT, ludus

folder = Path(tempfile.mkdtemp())
assert ludus(*SHORT, "runtime.compile=never", folder=folder).returncode == 0
(told,) = json.loads(ludus("list", "--json", folder=folder).stdout)
run = (folder / "runs" / "@last").resolve()
for name in ("meta.json", "status.json"):
    (run / name).unlink()
shutil.rmtree(run / "checkpoints")
(found,) = json.loads(ludus("list", "--json", folder=folder).stdout)
before, after = ((row["name"], (row["started"] or "")[:16]) for row in (told, found))
assert after == before, f"{before} became {after}"
assert ludus("show", run.name, folder=folder).returncode == 0
