"""Freed memory that the next update needs again."""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # <malloc.h>
LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Make the allocator keep freed memory instead of returning it to the kernel; whether it can.

    The feature maps of one update are tens of megabytes. glibc hands blocks of that size back to the kernel and gets
    them again page by page, zeroed: a fifth of the time of an update of the Nature network.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(MMAP_THRESHOLD, 2**30) and libc.mallopt(TRIM_THRESHOLD, LARGEST))
