"""A log whose own disk is not mounted is told, and is no log without files."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.errors import UnreachableError
from pipeline.files import sweep
from tests.pipeline.files.folder import ROW, LogFolder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogFolder]:
    """What a folder named `disk` holds, or a link to it, is another disk than what lies beside."""
    monkeypatch.setattr(sweep, "device_of", lambda at: 1 if "disk" in at.resolve().parts else 0)
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

    with pytest.raises(UnreachableError, match="clicks: it was on its own disk, and is not"):
        folder.sweep()


def test_a_writer_that_goes_on_where_the_disk_was_does_not_say_that_it_is_gone(
    folder: LogFolder,
) -> None:
    folder.write("b.json", ROW * 3, log="clicks")
    folder.sweep()
    (folder.base / "clicks").unlink()
    folder.write("c.json", ROW, log="clicks")  # into the folder that it was mounted on
    number = folder.ledger.write_heartbeat(0, "sluice.heartbeat", "logs")

    for _ in range(3):
        with pytest.raises(UnreachableError, match="make the folder 2000_01_01 in its place"):
            folder.sweep()
    assert folder.beats() == []

    (folder.base / "clicks").rename(folder.home / "below")
    (folder.base / "clicks").symlink_to(folder.home / "disk")
    folder.settled()
    assert folder.taken() == {"a.json": 1, "b.json": 3}
    assert folder.beats() == [number]


def test_a_disk_that_goes_while_a_sweep_is_on_its_way_ends_none(folder: LogFolder) -> None:
    folder.write("a.json", ROW, log="actions")
    folder.write("b.json", ROW, log="clicks")
    folder.ledger.write_heartbeat(0, "sluice.heartbeat", "logs")
    folder.budget = timedelta()  # one step a question
    folder.again()
    folder.process.advance()  # into `actions`, and no further
    (folder.base / "clicks").unlink()
    (folder.base / "clicks").mkdir()

    with pytest.raises(UnreachableError, match="is not now; is that disk mounted"):
        folder.sweep()
    folder.again()
    (folder.base / "clicks").rmdir()
    (folder.base / "clicks").symlink_to(folder.home / "disk")
    folder.sweep()
    assert folder.beats() == []  # what waits is not taken yet
    folder.settled()
    assert folder.taken().keys() == {"a.json", "b.json"}
    assert len(folder.beats()) == 1


def test_the_disk_of_all_logs_is_not_there_because_a_writer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {tmp_path / "logs", tmp_path / "logs" / "clicks"}
    monkeypatch.setattr(sweep, "device_of", lambda at: int(at in own))
    with LogFolder(tmp_path) as folder:
        folder.write("a.json", ROW)
        folder.settled()
        folder.write("b.json", ROW)
        folder.sweep()

        own.clear()
        folder.base.rename(tmp_path / "unmounted")
        folder.write("c.json", ROW)
        folder.ledger.write_heartbeat(0, "sluice.heartbeat", "logs")
        with pytest.raises(UnreachableError, match="logs: it was on its own disk, and is"):
            folder.sweep()
        assert folder.beats() == []

        (folder.base / "2000_01_01").mkdir()
        folder.sweep(4)
        assert len(folder.beats()) == 1


def test_a_log_that_moved_to_the_disk_of_the_others_is_as_they_are(folder: LogFolder) -> None:
    (folder.base / "clicks").unlink()
    folder.write("b.json", ROW, log="clicks")
    (folder.base / "clicks" / "2000_01_01").mkdir()
    folder.settled()

    (folder.base / "clicks").rename(folder.home / "away")
    folder.sweep()
    assert folder.taken().keys() == {"a.json", "b.json"}


def test_a_disk_that_is_gone_for_good_can_be_said_to_be(folder: LogFolder) -> None:
    (folder.base / "clicks").unlink()
    (folder.base / "clicks" / "2000_01_01").mkdir(parents=True)

    folder.sweep(2)


def test_a_folder_of_another_disk_has_another_number(tmp_path: Path) -> None:
    assert sweep.device_of(tmp_path) == tmp_path.stat().st_dev != sweep.device_of(Path("/proc"))
