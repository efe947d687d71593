"""Free space of the disks that the service writes to: those of the store, the lake and the log."""

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from monitor.board import DiskView
from monitor.config.model import DiskSettings


@dataclass(frozen=True, slots=True)
class Disks:
    """Measures ``places`` by name; a place that does not exist yet counts as its parent."""

    places: Mapping[str, Path]
    settings: DiskSettings

    def look(self) -> tuple[DiskView, ...]:
        """Space now; a disk that cannot be asked is left out: what writes to it says so."""
        return tuple(self._look())

    def _look(self) -> Iterator[DiskView]:
        for name, path in self.places.items():
            there = next((one for one in (path, *path.parents) if one.exists()), None)
            if there is None:
                continue
            with suppress(OSError):
                told = os.statvfs(there)
                size, free = told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize
                yield DiskView(name, str(path), size, free, self.settings.needed(size))


def places(store: str, lake: str) -> dict[str, Path]:
    """Where the service writes: its store, a lake on a local disk, a log that is a file."""
    found = {"store": Path(store).resolve()}
    scheme, separated, rest = lake.partition("://")
    if not separated or scheme == "file":
        found["lake"] = Path(rest if separated else lake).resolve()
    with suppress(OSError, ValueError):
        number = sys.stderr.fileno()
        if stat.S_ISREG(os.fstat(number).st_mode):
            found["log"] = Path(f"/proc/self/fd/{number}").readlink()
    return found
