"""Updates as machine code in an on-disk cache: traced here, compiled by a process of its own, verified before they run.

A package is named after what it computes: the key is a hash of the traced graph with its constants, of shapes, versions
and processor. Two configs share a package only if their updates are the same graph. The file name also holds the hash
of the file, so that a damaged package is found before its code runs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ludus import files

SETTINGS = {
    "unroll_reductions_threshold": 1,  # a scalar for all weights stays a scalar
    "aot_inductor.precompile_headers": False,  # one build in its own folder: they would never be used again
}
LONGEST_BUILD = 900.0
STALE_SCRATCH = 3_600.0

Compiled = Callable[[list[Tensor]], list[Tensor]]
Result = TypeVar("Result")


class Unavailable(Exception):
    """Why there is no package; one sentence."""


def obtain(
    function: Callable[..., Any], example: Sequence[Tensor], folder: Path, announce: Callable[[str], None]
) -> Callable[[], Compiled]:
    """The compiled form of a function of tensors: from the cache if it is there and whole, else built from now on.

    Called, the answer waits for the build and gives the machine code.
    """
    graph = trace(function, example)
    key = graph_key(graph, example)
    found = find(folder, key, announce)
    return Build(graph, example, folder, key, announce) if found is None else lambda: load(found)


def trace(function: Callable[..., Any], example: Sequence[Tensor]) -> torch.fx.GraphModule:
    """Every operation of the function on tensors like these; the tensors themselves do not change."""
    from torch.fx.experimental.proxy_tensor import make_fx

    return on_copies(make_fx(function), example)


def on_copies(function: Callable[..., Result], example: Sequence[Tensor]) -> Result:
    """What a function makes of copies of these tensors."""
    copies = [x.clone() for x in example]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        try:
            return function(*copies)
        except Exception as error:  # a plugin's network may do anything here
            raise Unavailable(f"the update cannot be traced ({type(error).__name__}: {first_line(error)})") from error


def graph_key(graph: torch.fx.GraphModule, example: Sequence[Tensor]) -> str:
    """Equal for two updates only if they are the same operations with the same constants on the same processor."""
    digest = hashlib.sha256()
    shapes = [(tuple(x.shape), str(x.dtype), tuple(x.stride())) for x in example]
    facts = [torch.__version__, processor(), torch.get_num_threads(), SETTINGS, shapes, graph.code]
    digest.update("\n".join(str(fact) for fact in facts).encode())
    for name, constant in sorted(constants(graph).items()):
        digest.update(f"{name} {constant.dtype} {tuple(constant.shape)}".encode())
        digest.update(constant.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def constants(graph: torch.fx.GraphModule) -> dict[str, Tensor]:
    """Tensors that are part of the traced graph instead of its input."""
    held = {**graph.__dict__, **dict(graph.named_buffers()), **dict(graph.named_parameters())}
    return {name: value for name, value in held.items() if isinstance(value, Tensor)}


def find(folder: Path, key: str, announce: Callable[[str], None]) -> Path | None:
    """An undamaged package of that key that belongs to this user; damaged ones are named and removed."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        with suppress(OSError):
            if path.stat().st_uid != os.getuid():
                announce(f"{path}: belongs to another user; it is not used")
            elif path.stem.partition("-")[2] == content_hash(path):
                return path
            else:
                announce(f"{path}: is damaged; it is built anew")
                path.unlink()
    return None


def load(path: Path) -> Compiled:
    """Machine code of a verified file."""
    try:
        return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1).run
    except RuntimeError as error:  # a file system that is mounted noexec
        problem = f"{path} cannot be loaded ({first_line(error)}); set LUDUS_CACHE to another folder"
        raise Unavailable(problem) from error


class Build:
    """A package in the making, by a compiler process that no Ctrl-C of ours reaches.

    If nobody waits for it any more, the process ends and its folder goes.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        example: Sequence[Tensor],
        folder: Path,
        key: str,
        announce: Callable[[str], None],
    ) -> None:
        if not has_compiler():
            raise Unavailable("there is no C++ compiler; install g++")
        announce("compiling the update, once for this shape (about half a minute) ...")
        self.folder, self.key, self.announce = folder, key, announce
        self.scratch, self.began = scratch_folder(folder), time.monotonic()
        try:
            self._child = compile_apart(graph, example, self.scratch)
        except OSError as error:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise Unavailable(f"{error.filename or self.scratch}: {error.strerror}") from error
        self._give_up = weakref.finalize(self, end, self._child, self.scratch, os.getpid())

    def __call__(self) -> Compiled:
        """Wait, move the package into the cache, load it. If that cannot be written, the next run compiles again."""
        try:
            made = self._made()
            kept = self.folder / f"{self.key}-{content_hash(made)}.so"
            try:
                files.write_bytes(kept, made.read_bytes())
            except OSError as error:
                self.announce(f"{self.folder}: cannot be written ({error.strerror}); the compiled update is not kept")
                kept = made
            return load(kept)
        except OSError as error:
            raise Unavailable(f"{error.filename or self.scratch}: {error.strerror}") from error
        finally:
            self._give_up()

    def _made(self) -> Path:
        """Wait for the compiler."""
        try:
            code = self._child.wait(max(0.0, LONGEST_BUILD - (time.monotonic() - self.began)))
        except subprocess.TimeoutExpired:
            raise Unavailable(f"compiling took longer than {LONGEST_BUILD:.0f} s") from None
        made = self.scratch / "update.so"
        if code or not made.exists():
            said = (self.scratch / "said").read_text(errors="replace").strip().splitlines() or [f"exit code {code}"]
            named = [line for line in said if "error:" in line.lower()]  # of a compiler, which ends with less
            raise Unavailable(f"compiling failed ({(named or said)[-1].strip()[-200:]})")
        return made


def end(child: subprocess.Popen[bytes], scratch: Path, owner: int) -> None:
    """End a compiler process and remove its folder; a forked process leaves both to the one that began."""
    if os.getpid() != owner:
        return
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    shutil.rmtree(scratch, ignore_errors=True)


def compile_apart(graph: torch.fx.GraphModule, example: Sequence[Tensor], scratch: Path) -> subprocess.Popen[bytes]:
    """Hand the graph to a compiler process in a session of its own."""
    copies = tuple(x.clone() for x in example)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = io.BytesIO()  # torch itself aborts the process where a disk is full
        torch.export.save(torch.export.export(graph, copies), program)
    (scratch / "update.pt2").write_bytes(program.getbuffer())
    child = Path(__file__).with_name("build_package.py")
    arguments = [sys.executable, "-P", str(child), str(scratch), str(torch.get_num_threads()), json.dumps(SETTINGS)]
    place = {"TMPDIR": str(scratch), "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor")}
    with (scratch / "said").open("wb") as said:
        return subprocess.Popen(
            arguments,
            env={**os.environ, **place},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )


def scratch_folder(folder: Path) -> Path:
    """A new folder beside the packages, or among the temporary files where that cannot be written.

    Torch hands paths to the compiler without quotes: beside packages whose path has a space nothing can be compiled.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in folder.glob("build-*"):  # of a process that was killed while compiling
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > STALE_SCRATCH:
                    shutil.rmtree(left, ignore_errors=True)
        if not any(letter.isspace() for letter in str(folder)):
            return Path(tempfile.mkdtemp(prefix="build-", dir=folder))
    except OSError:
        pass
    try:
        return Path(tempfile.mkdtemp(prefix="ludus-build-"))
    except OSError as error:
        raise Unavailable(f"no folder to compile in ({error.strerror})") from error


def content_hash(path: Path) -> str:
    """Hash of a file's bytes, as its name has it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def has_compiler() -> bool:
    """Whether there is a C++ compiler."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "c++", "clang++"))


def default_folder() -> Path:
    """`$LUDUS_CACHE`, or the user's cache folder."""
    base = os.environ.get("LUDUS_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(base).expanduser() / "ludus" / "compiled").absolute()


def processor() -> str:
    """The instruction sets of this machine: packages use them all."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = [line for line in cpuinfo.read_text().splitlines() if line.startswith(("flags", "Features"))]
        return platform.machine() + (flags[0] if flags else "")
    return f"{platform.machine()} {platform.processor()} {torch.backends.cpu.get_cpu_capability()}"


def first_line(error: BaseException) -> str:
    """What an exception says, in at most one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
