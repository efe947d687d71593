"""pipeline/delta/local.py and checkpoints.py on a disk that is full, or lost its power."""

import ctypes
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipeline.delta import local, maintenance
from pipeline.delta.local import Folder
from pipeline.delta.log import LOG_FOLDER
from pipeline.errors import HeldError, UnreachableError
from tests.pipeline.delta.disk import Cache, Disk
from tests.pipeline.delta.tables import Writer, found, log_files, numbers, queried


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    made = Writer.make(tmp_path / "lake" / "t")
    for low in range(3):
        made.append(numbers(low, low + 1))
    return made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    at = tmp_path / "small"
    at.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(at)]
    try:
        made = subprocess.run(mount, check=False, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if made.returncode:
        pytest.skip("a file system cannot be mounted here")
    yield at
    subprocess.run(["umount", str(at)], check=True)  # noqa: S607


def test_a_real_disk_that_is_full_says_so_and_takes_the_same_again_once_there_is_room(
    small: Path,
) -> None:
    table = Writer.make(small / "t")
    filler = small / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):  # noqa: PT012
        while True:
            file.write(bytes(4096))
    rows = numbers(0, 20_000)

    with pytest.raises(
        UnreachableError, match=r"part-.*No space left.*retried automatically; make room"
    ):
        table.append(rows)
    with pytest.raises(UnreachableError, match=r"version 1 .*No space left on device.*; make room"):
        table.commit([])
    left = {one.name for one in (small / "t").rglob("*") if one.is_file()}
    filler.unlink()
    table.append(rows)

    assert left == {f"{0:020d}.json"}, "half a file is taken away"
    assert queried(small / "t", "select count(*) n from t") == [{"n": 20_000}]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        pytest.param(errno.ENOSPC, "make room", id="no room"),
        pytest.param(errno.EDQUOT, "make room", id="no room for this user"),
        pytest.param(errno.EROFS, "allow Sluice's user to read and write", id="read-only"),
        pytest.param(errno.EACCES, "allow Sluice's user to read and write", id="no right"),
        pytest.param(errno.EIO, "look at the disk", id="broken"),
    ],
)
def test_what_a_disk_does_not_do_is_told_with_its_place_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, says: str
) -> None:
    store = Folder(str(tmp_path))
    store.make_folder("log")
    store.put("log/v.bin", b"x")

    def refused(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("pipeline.delta.local.sync_folder", refused)
    monkeypatch.setattr("pipeline.delta.local.write_file", refused)
    monkeypatch.setattr("pipeline.delta.local.open", refused, raising=False)
    asked = (
        lambda: store.put_new("log/1.json", b"x"),
        lambda: store.put("log/w.bin", b"x"),
        lambda: store.make_folder("log/deeper"),
        lambda: store.sync("log/v.bin"),
        lambda: store.read("log/v.bin"),
    )
    for ask in asked:
        with pytest.raises(
            UnreachableError, match=f"{tmp_path}/log.*retried automatically; {says}"
        ):
            ask()


def test_a_folder_whose_name_is_too_long_is_a_held_table_with_its_fix(tmp_path: Path) -> None:
    store = Folder(f"{tmp_path}/{'x' * 300}")

    with pytest.raises(HeldError, match="longer than this file system allows; set another name"):
        store.make_folder("log")
    with pytest.raises(HeldError) as held:
        store.read("log/1.json")
    assert held.value.reason == "name"


def test_an_error_of_whoever_fills_a_file_is_his_own(tmp_path: Path) -> None:
    store = Folder(str(tmp_path))

    with pytest.raises(ConnectionResetError), store.sink("f.parquet"):
        raise ConnectionResetError(errno.ECONNRESET, "of Kafka's, for one")
    with pytest.raises(FileNotFoundError), store.sink("f.parquet"):
        pq.read_table(tmp_path / "none")

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("at", range(1, 13))
def test_a_commit_that_finds_no_room_at_any_step_is_no_commit_or_a_whole_one(
    writer: Writer, at: int
) -> None:
    disk = Disk(at)
    disk.event = disk.fill
    rows = numbers(10, 20)
    with disk.mounted():
        outcome = _outcome(lambda: writer.append(rows))

    again = Writer.open(Path(writer.store.uri))
    assert (outcome is None) == (again.snapshot.version == 4)
    if outcome is not None:
        assert type(outcome) is UnreachableError
        assert "make room" in str(outcome)
        again.append(rows)

    assert found(again.store).version == 4
    assert len(queried(Path(writer.store.uri), "select distinct id from t")) == 13


def _outcome(ask: Callable[[], object]) -> UnreachableError | None:
    try:
        ask()
    except UnreachableError as error:
        return error
    return None


def test_a_checkpoint_outlives_the_power(writer: Writer, tmp_path: Path) -> None:
    disk = Disk(cache=Cache(tmp_path / "lake", tmp_path / "pins"))
    assert disk.cache is not None
    with disk.mounted():
        maintenance.write_checkpoint(Folder(writer.store.uri))

    disk.cache.lose(lambda _: None)

    for entry in (tmp_path / "lake" / "t" / LOG_FOLDER).glob("*.json"):
        entry.unlink()  # which is what a checkpoint is for
    assert DeltaTable(writer.store.uri).version() == 3
    assert found(writer.store).files.keys() == writer.snapshot.files.keys()


@pytest.mark.parametrize("cut", [0, 100, -1], ids=["to nothing", "to its head", "at its end"])
def test_a_checkpoint_that_the_power_has_cut_goes_where_the_entries_say_all(
    writer: Writer, cut: int
) -> None:
    """Neither deltalake nor Spark can open such a table, nor write the next checkpoint."""
    maintenance.write_checkpoint(writer.store)
    log = Path(writer.store.uri, LOG_FOLDER)
    (torn,) = log.glob("*.checkpoint.parquet")
    torn.write_bytes(torn.read_bytes()[:cut])
    writer = Writer.open(Path(writer.store.uri))
    writer.append(numbers(10, 11))

    maintenance.write_checkpoint(writer.store)

    assert queried(Path(writer.store.uri), "select count(*) n from t") == [{"n": 4}]
    assert f"{4:020d}.checkpoint.parquet" in log_files(Path(writer.store.uri))


def test_a_checkpoint_that_was_cut_stays_where_nothing_else_says_what_it_said(
    writer: Writer,
) -> None:
    maintenance.write_checkpoint(writer.store)
    log = Path(writer.store.uri, LOG_FOLDER)
    (torn,) = log.glob("*.checkpoint.parquet")
    torn.write_bytes(torn.read_bytes()[:100])
    (log / f"{1:020d}.json").unlink()

    with pytest.raises(HeldError, match="log_damaged"):
        maintenance.write_checkpoint(writer.store)

    assert torn.exists(), "somebody may mend it"


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version":99,"size":1}', b'{"version":1,"size":1,"parts":3}']
)
def test_a_last_checkpoint_that_points_to_nothing_is_not_believed(
    writer: Writer, content: bytes
) -> None:
    maintenance.write_checkpoint(writer.store)
    (Path(writer.store.uri) / LOG_FOLDER / "_last_checkpoint").write_bytes(content)

    writer = Writer.open(Path(writer.store.uri))
    writer.append(numbers(10, 11))
    maintenance.write_checkpoint(writer.store)

    assert found(writer.store).version == 4
    assert queried(Path(writer.store.uri), "select count(*) n from t") == [{"n": 4}]


def test_a_lake_behind_a_symbolic_link_is_the_same_lake(tmp_path: Path, writer: Writer) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lake", target_is_directory=True)

    through = Writer.open(tmp_path / "link" / "t")
    through.append(numbers(10, 11))
    maintenance.write_checkpoint(through.store)

    assert found(writer.store).files == through.snapshot.files
    assert queried(tmp_path / "link" / "t", "select count(*) n from t") == [{"n": 4}]


def test_a_file_where_a_folder_is_looked_for_is_told(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"no folder")

    with pytest.raises(UnreachableError, match="Not a directory"):
        Folder(str(tmp_path / "t")).after(LOG_FOLDER, "")


def test_two_folders_change_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / folder.name).touch()

    assert local.exchange_paths(str(one), str(other))

    assert [each.name for each in one.iterdir()] == ["other"]
    assert [each.name for each in other.iterdir()] == ["one"]


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        local.exchange_paths(str(tmp_path / "one"), str(tmp_path / "other"))


@pytest.mark.parametrize(
    "library",
    [
        pytest.param(SimpleNamespace(), id="a system without the call"),
        pytest.param(SimpleNamespace(renameat2=lambda *_: -1), id="a file system without it"),
    ],
)
def test_where_nobody_knows_how_nothing_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: object
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EINVAL)

    assert not local.exchange_paths(str(tmp_path), str(tmp_path / "other"))
