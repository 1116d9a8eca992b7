"""Memory that a process frees and will soon ask for again stays with it.

The C library of Linux gives a large freed block back to the system at once, which clears it again, page by page, when
the next step asks for it: with ViT-B two hundred thousand pages a step. A run keeps what it frees, up to `KEPT`, unless
one of the library's own variables is set.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

KEPT = 2**30  # bytes at the end of the heap
# Of mallopt(3), whose names begin with M_. Tensors as large as the first are mapped each by itself, as they are without
# it; it is the most that glibc takes where addresses have 64 bits.
MMAP_THRESHOLD, TRIM_THRESHOLD = (-3, 2**25), (-1, KEPT)
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> None:
    """Have this process keep what it frees, where its C library is GNU's; no number changes."""
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in OWN):
        return
    library = ctypes.CDLL(None)
    if library.mallopt(*MMAP_THRESHOLD):  # or the next call would leave it as small as it is now
        library.mallopt(*TRIM_THRESHOLD)
