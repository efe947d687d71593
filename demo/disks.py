"""Mounts small file systems for the lake and the store of a service, whose free space can be taken.

They are `tmpfs`, so their content is in memory. Mounting one needs root.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from demo.processes import wait_until

ROOM = "4g"
STORE = "sluice.db"
SAID = {"lake": b"No space left on device", "store": b"disk is full"}
"""Names of the disks, and how the system reports that each is full."""


@contextmanager
def small_disks(home: Path, room: str = ROOM) -> Iterator[None]:
    """Mount a file system for the lake of *home*, and one for the store; their content is kept.

    *room* is the size of each, in the form of `mount`.
    """
    places = [home / name for name in SAID]
    try:
        for place in places:
            place.mkdir()
            _mount("size=" + room, place)
        (home / STORE).symlink_to(home / "store" / STORE)
        yield
    finally:
        for place in places:
            _keep(place)


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """The disk of the ``lake`` or of the ``store`` in ``home``."""

    home: Path
    name: str
    room: str = ROOM

    @property
    def place(self) -> Path:
        """Return where it is mounted."""
        return self.home / self.name

    def take_room(self, within: timedelta) -> None:
        """Shrink it to the size of its content.

        Raises:
            UnreachableError: the content keeps growing faster than that.
        """
        wait_until(self._is_shrunk, within, f"a {self.name} that is as large as what it holds")

    def give_room(self) -> None:
        """Restore its size."""
        _mount("remount,size=" + self.room, self.place)

    def _is_shrunk(self) -> bool:
        """Shrink it; writes may still succeed where files are removed later."""
        used = shutil.disk_usage(self.place).used
        with suppress(subprocess.CalledProcessError):  # the content has grown since
            _mount(f"remount,size={used}", self.place)
            return True
        return False


def mount_trouble(home: Path) -> str:
    """Return why no file system can be mounted in *home*; empty if one can."""
    place = home / "tried"
    place.mkdir()
    try:
        _mount("size=1m", place)
        subprocess.run(["umount", str(place)], check=True)  # noqa: S607
    except FileNotFoundError as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode(errors="replace").splitlines()
        return said[0] if said else str(error)
    finally:
        place.rmdir()
    return ""


def end_mounts(home: Path) -> None:
    """Unmount the disks that a killed process left in *home*; their content is lost."""
    for place in (home / name for name in SAID):
        if place.is_mount():
            subprocess.run(["umount", str(place)], check=True)  # noqa: S607


def _mount(options: str, at: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)]
    subprocess.run(command, check=True, capture_output=True)


def _keep(place: Path) -> None:
    """Keep the content of the disk in the folder where it was mounted."""
    if not place.is_mount():
        return
    aside = place.with_name(f"{place.name}.kept")
    shutil.copytree(place, aside, symlinks=True)
    subprocess.run(["umount", str(place)], check=True)  # noqa: S607
    place.rmdir()
    aside.rename(place)
