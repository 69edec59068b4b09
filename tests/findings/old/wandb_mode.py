"""5, W&B errors: a WANDB_MODE that does not exist is one line, not a traceback of the client."""

import tempfile
from pathlib import Path

from commands import SHORT, ludus

folder = Path(tempfile.mkdtemp())
quiet = ["logging.wandb.enabled=true", "runtime.compile=never"]
done = ludus(*SHORT, *quiet, folder=folder, WANDB_MODE="onlin", HOME=str(folder))
assert "Traceback" not in done.stderr, done.stderr[-1500:]
assert done.returncode == 2 and "WANDB_MODE" in done.stderr
