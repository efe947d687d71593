"""Disks of a stand's own, for its lake and for its store, whose room is taken and given back."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.processes import wait_until
from tests.proof.stand import PATIENCE, Stand

ROOM = "4g"
STORE = "sluice.db"
FULL = 8.0  # seconds under load without room
SAID = {"lake": b"No space left on device", "store": b"disk is full"}


@contextmanager
def small_disks(home: Path) -> Iterator[None]:
    """A file system for the lake of *home*, and one for the store; what is on them stays."""
    places = [home / name for name in SAID]
    try:
        for place in places:
            place.mkdir()
            _mount("size=" + ROOM, place)
        (home / STORE).symlink_to(home / "store" / STORE)
        yield
    finally:
        for place in places:
            _keep(place)


@dataclass(frozen=True, slots=True)
class Disk:
    """That of the ``lake``, or of the ``store``, of a stand that stands on small disks."""

    stand: Stand
    name: str

    def fill(self) -> None:
        """Leave it without room under load until the service said so, and then some time more."""
        log = self.stand.service.daemon.log
        before = log.stat().st_size
        wait_until(self._no_room, PATIENCE, f"a {self.name} that is as large as what it holds")
        self.stand.note(f"no room in the {self.name}")
        try:
            wait_until(
                lambda: SAID[self.name] in log.read_bytes()[before:], PATIENCE, "word of the room"
            )
            self.stand.load(FULL)
        finally:
            _mount("remount,size=" + ROOM, self._place)
        self.stand.note("room again")
        self.stand.recover()
        self.stand.note("recovered")

    @property
    def _place(self) -> Path:
        return self.stand.home / self.name

    def _no_room(self) -> bool:
        """Files that are removed later make room again; some writes do come through."""
        used = shutil.disk_usage(self._place).used
        with suppress(subprocess.CalledProcessError):  # there was more by then
            _mount(f"remount,size={used}", self._place)
            return True
        return False


def _mount(options: str, at: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)]
    subprocess.run(command, check=True, capture_output=True)


def _keep(place: Path) -> None:
    """Put what is on the disk where it was mounted."""
    if not place.is_mount():
        return
    aside = place.with_name(f"{place.name}.kept")
    shutil.copytree(place, aside, symlinks=True)
    subprocess.run(["umount", str(place)], check=True)  # noqa: S607
    place.rmdir()
    aside.rename(place)


def require_mounts(home: Path) -> None:
    """Skip where nobody may mount a file system."""
    place = home / "tried"
    place.mkdir()
    try:
        _mount("size=1m", place)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    subprocess.run(["umount", str(place)], check=True)  # noqa: S607
    place.rmdir()
