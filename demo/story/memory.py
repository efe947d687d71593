"""Measures the memory of this process and of all that it has started.

Resident pages, so what two processes share counts twice: an upper bound.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def in_use() -> int:
    """Bytes, now."""
    return sum(resident(pid) for pid in family(os.getpid()))


def family(pid: int) -> list[int]:
    """Ids of *pid* and everything that descends from it."""
    children = defaultdict(list)
    for child, parent in _parents():
        children[parent].append(child)
    found = [pid]
    for each in found:  # grows as it goes
        found.extend(children[each])
    return found


def resident(pid: int) -> int:
    """Bytes that one process holds; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _parents() -> Iterator[tuple[int, int]]:
    """(Process, its parent) of every process there is."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            yield int(folder.name), int(stat.rpartition(")")[2].split()[1])
