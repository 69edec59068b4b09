"""Memory use of this process and memory limits of the machine or container."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

MB = 1 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def used() -> int:
    """Bytes of RAM this process uses now; where the system does not say, its peak."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        return peak()


def peak() -> int:
    """Peak RAM of this process in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def total() -> int:
    """Bytes of RAM of the machine, or of the container's limit."""
    return min([_meminfo("MemTotal") or os.sysconf("SC_PHYS_PAGES") * _PAGE, *(limit for limit, _ in _limits())])


def available() -> int:
    """Bytes that can still be allocated without swapping."""
    left = [_meminfo("MemAvailable") or total() - used(), *(limit - taken for limit, taken in _limits())]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)  # of the address space, `ulimit -v`
    if limit != resource.RLIM_INFINITY and _STATM.exists():
        left.append(limit - int(_STATM.read_bytes().split()[0]) * _PAGE)
    return max(min(left), 0)


def _meminfo(name: str) -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def _limits() -> list[tuple[int, int]]:
    """(limit, used) of the control groups of this process, without file cache, which can be freed."""
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":")[-1]
    except (OSError, IndexError):
        return []
    found = []
    for folder in {_CGROUP / own.lstrip("/"), _CGROUP}:
        try:
            limit = (folder / "memory.max").read_text().strip()
            lines = (folder / "memory.stat").read_text().splitlines()
            cached = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
            taken = int((folder / "memory.current").read_text()) - cached
        except (OSError, ValueError):
            continue
        if limit.isdecimal():
            found.append((int(limit), taken))
    return found
