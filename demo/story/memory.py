"""Measures the memory of this process and of all processes that it has started.

It sums resident pages. Pages that two processes share count twice, so it is an upper bound.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def in_use() -> int:
    """Return the bytes in use now."""
    return sum(resident(pid) for pid in family(os.getpid()))


def family(pid: int) -> list[int]:
    """Return the ids of *pid* and of all its descendants."""
    children = defaultdict(list)
    for child, parent in _parents():
        children[parent].append(child)
    found = [pid]
    for each in found:  # grows during the loop
        found.extend(children[each])
    return found


def resident(pid: int) -> int:
    """Return the resident bytes of one process; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _parents() -> Iterator[tuple[int, int]]:
    """Yield (process, its parent) of every process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:  # the process has ended meanwhile
                continue
            yield int(folder.name), int(stat.rpartition(")")[2].split()[1])
