"""How many pools does the C library take memory from, for a process of many threads?

By default eight for each core, each of which keeps what its threads have freed.  Measured with
1,000 mirrors, whose logs are read by a dozen threads in turn: 1.3 GB and growing; with two, 0.8.
"""

import ctypes

M_ARENA_MAX = -8  # of glibc's malloc.h
MOST = 2


def limit_arenas() -> bool:
    """Take memory from few pools, from now on; whether this C library knows how to."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_ARENA_MAX, MOST))
