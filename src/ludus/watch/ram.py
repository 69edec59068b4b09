"""Memory of this process and of the machine, or of the container it runs in."""

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
    """Bytes of RAM this process holds now; where the system does not tell, the most it ever held."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        return peak()


def peak() -> int:
    """Most bytes of RAM this process ever held."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def total() -> int:
    """Bytes of RAM there are, or that the container may use."""
    return min([_meminfo("MemTotal") or os.sysconf("SC_PHYS_PAGES") * _PAGE, *(limit for limit, _ in _limits())])


def available() -> int:
    """Bytes that can still be taken without swapping."""
    free = _meminfo("MemAvailable") or total() - used()
    return max(min([free, *(limit - taken for limit, taken in (*_limits(), *_address_space()))]), 0)


def _address_space() -> list[tuple[int, int]]:
    """(limit, taken) of what this process may address (`ulimit -v`)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or not _STATM.exists():
        return []
    return [(limit, int(_STATM.read_bytes().split()[0]) * _PAGE)]


def _meminfo(name: str) -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def _limits() -> list[tuple[int, int]]:
    """(limit, taken) of the control groups around this process; file cache can be given back and is not counted."""
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":")[-1]
    except (OSError, IndexError):
        return []
    found = []
    for folder in {_CGROUP / own.lstrip("/"), _CGROUP}:
        try:
            limit = (folder / "memory.max").read_text().strip()
            taken = int((folder / "memory.current").read_text()) - _file_cache(folder)
        except (OSError, ValueError):
            continue
        if limit.isdecimal():
            found.append((int(limit), taken))
    return found


def _file_cache(folder: Path) -> int:
    lines = (folder / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
