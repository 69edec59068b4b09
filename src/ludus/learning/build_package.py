"""Started by package.py with SCRATCH THREADS SETTINGS: compiles SCRATCH/update.pt2 to SCRATCH/update.so."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from pathlib import Path

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Batch systems send them to every process; the run then waits for this one, and what the compiler starts inherits it:
an update that was not compiled would round differently from then on."""


def main(scratch: Path, threads: int, settings: dict[str, object]) -> None:
    """Compile the exported program and move the machine code into place."""
    import torch
    import torch._inductor

    torch.set_num_threads(threads)  # the number of threads is written into the code
    program = torch.export.load(str(scratch / "update.pt2"))
    arguments, keywords = program.example_inputs
    made = torch._inductor.aot_compile(program.module(), arguments, keywords, options=settings)
    Path(str(made)).replace(scratch / "update.so")


if __name__ == "__main__":
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
