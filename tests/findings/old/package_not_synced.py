"""F4: a package is on the disk before it has its name in the cache."""

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch._inductor

from ludus.networks import compiled

order: list[str] = []
fsync, rename = os.fsync, Path.rename
os.fsync = lambda file: order.append("sync") or fsync(file)
Path.rename = lambda path, target: order.append("rename") or rename(path, target)
torch._inductor.aoti_compile_and_package = lambda *_, package_path, **__: Path(package_path).write_text("code")


def double(x: torch.Tensor) -> Any:
    """Something to compile."""
    return (x * 2.0,)


compiled.build_package(double, [torch.ones(2)], Path(tempfile.mkdtemp()) / "key.pt2")
assert "rename" in order, "the package was made"
assert "sync" in order[: order.index("rename")], f"a power cut leaves an empty package: {order}"
