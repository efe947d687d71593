"""A log whose own disk is not mounted is told, and is no log without files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import UnreachableError
from pipeline.files import disks
from tests.pipeline.files.folder import LogFolder

ROW = b'{"id": 1}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogFolder]:
    """What a folder named `disk` holds, or a link to it, is another disk than what lies beside."""
    monkeypatch.setattr(disks, "device", lambda at: 1 if "disk" in at.resolve().parts else 0)
    with LogFolder(tmp_path) as made:
        (tmp_path / "disk").mkdir()
        made.write("a.json", ROW, log="views")
        (made.base / "clicks").symlink_to(tmp_path / "disk")
        made.write("a.json", ROW, log="clicks")
        made.settled()
        yield made


@pytest.mark.parametrize("empty", [False, True])
def test_a_log_whose_own_disk_is_gone_is_told(folder: LogFolder, empty: bool) -> None:
    (folder.base / "clicks").unlink()
    if empty:  # the folder that it was mounted on
        (folder.base / "clicks").mkdir()
    folder.again()

    with pytest.raises(UnreachableError, match="clicks: it lay on a disk of its own, and nothing"):
        folder.sweep()


def test_a_log_that_moved_to_the_disk_of_the_others_is_as_they_are(folder: LogFolder) -> None:
    (folder.base / "clicks").unlink()
    folder.write("b.json", ROW, log="clicks")
    folder.settled()

    (folder.base / "clicks").rename(folder.home / "away")
    folder.sweep()
    assert folder.taken().keys() == {"a.json", "b.json"}


def test_a_disk_that_is_gone_for_good_can_be_said_to_be(folder: LogFolder) -> None:
    (folder.base / "clicks").unlink()
    (folder.base / "clicks" / "2000_01_01").mkdir(parents=True)

    folder.sweep(2)


def test_a_folder_of_another_disk_has_another_number(tmp_path: Path) -> None:
    assert disks.device(tmp_path) == tmp_path.stat().st_dev != disks.device(Path("/proc"))
