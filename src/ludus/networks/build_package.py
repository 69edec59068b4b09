"""Started by package.py with SCRATCH THREADS SETTINGS: compiles SCRATCH/update.pt2 to SCRATCH/update.so."""

from __future__ import annotations

import json
import sys
import warnings
import zipfile
from pathlib import Path


def main(scratch: Path, threads: int, settings: dict[str, object]) -> None:
    """Compile the exported program and take the machine code out of torch's archive."""
    import torch
    import torch._inductor

    torch.set_num_threads(threads)  # the number of threads is written into the code
    program = torch.export.load(str(scratch / "update.pt2"))
    archive = torch._inductor.aoti_compile_and_package(
        program, package_path=str(scratch / "archive.pt2"), inductor_configs=settings
    )
    with zipfile.ZipFile(archive) as opened:
        (code,) = [name for name in opened.namelist() if name.endswith(".so")]
        (scratch / "update.so").write_bytes(opened.read(code))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
