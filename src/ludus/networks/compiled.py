"""Ahead-of-time compiled updates in an on-disk cache.

A package is keyed by everything that shapes its machine code: versions, processor, source text, module, shapes. Loading
one takes milliseconds and imports no compiler; building one takes tens of seconds, so that `auto` builds only for runs
long enough to pay for it. The choice is made when a run starts and never changes within it.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ludus.errors import ConfigError

UPDATES_THAT_PAY = 30_000  # a build costs about as much time as this many small updates save

SETTINGS = {"unroll_reductions_threshold": 1}  # a scalar for all weights stays a scalar

Compiled = Callable[[list[Tensor]], list[Tensor]]


class Compiler:
    """Decides once per function whether it runs compiled, and finds or builds the package."""

    def __init__(
        self,
        mode: Literal["auto", "always", "never"],
        *,
        planned_updates: int,
        folder: Path | None = None,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.mode, self.planned_updates, self.announce = mode, planned_updates, announce
        self.folder = folder or default_folder()
        self.used: bool | None = None
        """What the first function got: the run's record of the choice."""

    def get(
        self,
        function: Callable[..., Any],
        example: Sequence[Tensor],
        identity: str,
        owners: Sequence[Any],
        *,
        may_build: bool,
    ) -> Compiled | None:
        """The compiled function, or None to run the eager one; `owners` are the classes and functions in it."""
        compiled = self._get(function, example, f"{identity} {source_hash(owners)}", may_build)
        if self.used is None:
            self.used = compiled is not None
        return compiled

    def _get(
        self, function: Callable[..., Any], example: Sequence[Tensor], identity: str, build: bool
    ) -> Compiled | None:
        if self.mode == "never" or example[0].device.type != "cpu":
            return None
        path = self.folder / f"{self._key(example, identity)}.pt2"
        if not path.exists():
            pays = self.mode == "always" or self.planned_updates >= UPDATES_THAT_PAY
            if not (build and pays and self._can_build()):
                return None
            self.announce("compiling the update, once for this shape (about half a minute)")
            build_package(function, example, path)
        return load_package(path)

    def state_dict(self) -> dict[str, Any]:
        """Which of the two ran: they differ in the last bits, so that a resumed run must not choose again."""
        return {"used": self.used}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep to the choice of the saved run."""
        if state["used"] is not None:
            self.mode = "always" if state["used"] else "never"

    def _can_build(self) -> bool:
        found = any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "c++", "clang++"))
        if not found and self.mode == "always":
            raise ConfigError("runtime.compile", "there is no C++ compiler", "install g++ or set runtime.compile=auto")
        return found

    def _key(self, example: Sequence[Tensor], identity: str) -> str:
        shapes = [(tuple(x.shape), str(x.dtype), tuple(x.stride())) for x in example]
        facts = [
            torch.__version__,
            processor(),
            str(torch.get_num_threads()),
            identity,
            repr(shapes),
        ]
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def default_folder() -> Path:
    """`$LUDUS_CACHE`, or the user's cache folder."""
    base = os.environ.get("LUDUS_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "ludus" / "compiled"


def processor() -> str:
    """The instruction sets of this machine: packages use them all."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = [line for line in cpuinfo.read_text().splitlines() if line.startswith(("flags", "Features"))]
        return platform.machine() + (flags[0] if flags else "")
    return f"{platform.machine()} {platform.processor()} {torch.backends.cpu.get_cpu_capability()}"


def source_hash(owners: Sequence[Any]) -> str:
    """Hash over the files of algorithms, networks and maths, and of whatever a plugin brought along."""
    root = Path(__file__).parents[1]
    files = {path for part in ("algorithms", "networks", "math") for path in (root / part).rglob("*.py")}
    for owner in owners:
        if not str(getattr(owner, "__module__", "")).startswith("torch."):
            files.add(Path(inspect.getsourcefile(owner) or __file__))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build_package(function: Callable[..., Any], example: Sequence[Tensor], path: Path) -> None:
    """Trace, compile and move into place; a half-built package is never visible."""
    import torch._inductor
    from torch.fx.experimental.proxy_tensor import make_fx

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    copies = tuple(x.clone() for x in example)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        program = torch.export.export(make_fx(function)(*copies), copies)
        target = Path(scratch) / path.name
        torch._inductor.aoti_compile_and_package(program, package_path=str(target), inductor_configs=SETTINGS)
        target.rename(path)


def load_package(path: Path) -> Compiled:
    """Loads machine code from our own cache; refuses a file another user could have planted."""
    if path.stat().st_uid != os.getuid():
        raise ConfigError(str(path), "belongs to another user", "remove it or set LUDUS_CACHE to a folder of your own")
    loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)
    return loader.boxed_run
