"""Disks of a stand's own, for its lake and for its store, whose room is taken and given back."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.disks import SAID, SmallDisk, mount_trouble
from demo.processes import wait_until
from tests.proof.stand import PATIENCE, Stand

FULL = 8.0  # seconds under load without room


@dataclass(frozen=True, slots=True)
class Disk:
    """That of the ``lake``, or of the ``store``, of a stand that stands on small disks."""

    stand: Stand
    name: str

    def fill(self) -> None:
        """Leave it without room under load until the service said so, and then some time more."""
        disk, log = SmallDisk(self.stand.home, self.name), self.stand.service.daemon.log
        before = log.stat().st_size
        disk.take_room(PATIENCE)
        self.stand.note(f"no room in the {self.name}")
        try:
            wait_until(
                lambda: SAID[self.name] in log.read_bytes()[before:], PATIENCE, "word of the room"
            )
            self.stand.load(FULL)
        finally:
            disk.give_room()
        self.stand.note("room again")
        self.stand.recover()
        self.stand.note("recovered")


def require_mounts(home: Path) -> None:
    """Skip where nobody may mount a file system."""
    if trouble := mount_trouble(home):
        pytest.skip(f"no file system can be mounted here: {trouble}")
