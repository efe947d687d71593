"""Measures the CPU time of this process and those below it, without that of any other.

Wall-clock seconds mean little on a shared machine; CPU seconds hardly depend on its load.
"""

import os
from collections.abc import Collection
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def spent(without: Collection[int] = ()) -> float:
    """Return the seconds of this process and all below it, except *without* and those below.

    The seconds of an ended process count for its parent, once the parent has waited for it.
    """
    times, below = dict[int, float](), dict[int, list[int]]()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (told := _told(folder)) is not None:
            parent, seconds = told
            times[int(folder.name)] = seconds
            below.setdefault(parent, []).append(int(folder.name))
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        one = waiting.pop()
        total += times.get(one, 0.0)
        waiting += [child for child in below.get(one, ()) if child not in without]
    return total


def _told(folder: Path) -> tuple[int, float] | None:
    """Return a process's parent and seconds; None if it has ended (proc(5): fields 4, 14 to 17)."""
    try:
        fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1]), sum(map(int, fields[11:15])) / TICKS
