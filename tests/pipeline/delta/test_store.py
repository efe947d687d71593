"""pipeline/delta/store.py, folder.py and bucket.py: one contract for every kind of lake."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from demo.s3 import BUCKET
from pipeline.delta.local import LEFTOVER
from pipeline.delta.object_store import Bucket
from pipeline.delta.store import Store, open_store
from pipeline.errors import ConfigError


@pytest.fixture(params=["folder", "bucket", pytest.param("s3", marks=pytest.mark.stack)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "bucket":
        return Bucket("s3://lake/t", MemoryStore())
    if request.param == "s3":
        request.getfixturevalue("s3")
        return open_store(f"s3a://{BUCKET}/{tmp_path.name}")
    (tmp_path / "t").mkdir()
    opened = open_store(f"file://{tmp_path}/t/")
    opened.make_folder("log")
    return opened


def test_a_name_is_made_once_and_what_the_first_wrote_stays(store: Store) -> None:
    store.put_new("log/1.json", b"first")

    with pytest.raises(FileExistsError):
        store.put_new("log/1.json", b"second")

    assert store.read("log/1.json") == b"first"
    assert [entry.name for entry in store.names("log")] == ["log/1.json"]


def test_a_part_of_a_file_is_read_by_its_place(store: Store) -> None:
    store.put("log/vectors.bin", b"0123456789")

    assert store.read("log/vectors.bin", 3, 4) == b"3456"
    assert store.read("log/vectors.bin", 8) == b"89"


def test_who_wins_is_proven_by_trying_and_nothing_stays_of_it(store: Store) -> None:
    store.prove("log")

    assert store.names("log") == []


def test_what_is_not_there_is_said_to_be_missing(store: Store) -> None:
    assert not store.exists("log/none")
    assert store.names("nowhere") == []
    assert store.after("nowhere", "") == []
    store.remove("log/none")
    for ask in (store.read, store.size, store.source):
        with pytest.raises(FileNotFoundError):
            ask("log/none")


def test_names_above_one_are_listed_in_order_without_folders_below(store: Store) -> None:
    for name in ("log/3", "log/1", "log/2", "log/2.part", "log/_side/9"):
        store.put(name, b"")

    found = [name for name in store.after("log", "1") if name != "_side"]

    assert found == ["2", "2.part", "3"]
    assert [entry.name for entry in store.names("log")] == [
        *("log/1", "log/2", "log/2.part", "log/3")
    ]


def test_a_parquet_file_goes_in_by_a_sink_and_comes_out_by_ranges(store: Store) -> None:
    rows = pa.table({"a": range(10_000), "b": ["x"] * 10_000})

    with store.sink("dt=2026-11-01/f.parquet") as sink:
        pq.write_table(rows, sink, row_group_size=1_000)
    with store.source("dt=2026-11-01/f.parquet") as source:
        file = pq.ParquetFile(source)

        assert file.read_row_group(7, columns=["a"])["a"][0].as_py() == 7_000
        assert file.read().equals(rows)
    assert store.size("dt=2026-11-01/f.parquet") > 0


def test_a_sink_whose_writer_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.sink("f.parquet") as sink:  # noqa: PT012
        sink.write(b"half")
        raise ZeroDivisionError

    assert not store.exists("f.parquet")


def test_age_and_size_are_told_with_a_zone(store: Store) -> None:
    store.put("log/a", b"12345")

    (entry,) = store.names("log")

    assert entry.size == 5
    assert entry.modified.tzinfo is not None


def test_rule_4_no_write_brings_a_folder_back_that_is_gone(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "gone"))

    for write in (store.put_new, store.put):
        with pytest.raises(FileNotFoundError):
            write("_delta_log/1.json", b"")
    with pytest.raises(FileNotFoundError), store.sink("dt=1/f.parquet"):
        pass
    assert not (tmp_path / "gone").exists()


def test_rule_5_files_are_synced_before_their_name_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path))
    store.make_folder("log")
    seen: list[str] = []
    fsync, link = os.fsync, os.link
    named = {True: "folder", False: "file"}

    def syncing(handle: int) -> None:
        seen.append(f"sync {named[Path(f'/proc/self/fd/{handle}').is_dir()]}")
        fsync(handle)

    def linking(draft: Path, target: Path) -> None:
        seen.append("link")
        link(draft, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "link", linking)
    store.put_new("log/1.json", b"x")
    store.put("v.bin", b"x")
    with store.sink("f.parquet") as sink:
        sink.write(b"x")

    assert seen == ["sync file", "link", "sync folder", *(["sync file", "sync folder"] * 2)]


def test_rule_5_a_file_system_without_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    store = open_store(str(tmp_path))
    store.make_folder("log")
    monkeypatch.setattr(os, "link", no_links)

    with pytest.raises(ConfigError, match="knows no hard links"):
        store.put_new("log/1.json", b"x")

    assert store.names("log") == []


def test_a_draft_in_the_way_is_never_taken_for_the_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.make_folder("log")
    (tmp_path / "log" / f"{LEFTOVER}killed.tmp").write_bytes(b"half an ent")

    store.put_new("log/1.json", b"whole")

    assert store.after("log", "0") == ["1.json"]


def test_rule_14_a_sum_that_a_killed_writer_left_goes_before_the_entry_comes(
    tmp_path: Path,
) -> None:
    store = open_store(str(tmp_path))
    store.make_folder("log")
    (tmp_path / "log" / ".1.json.crc").write_bytes(b"stale")

    store.put_new("log/1.json", b"x")

    assert [path.name for path in (tmp_path / "log").iterdir()] == ["1.json"]


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        pytest.param("hdfs://name:9000/lake", "does not write tables on HDFS", id="hdfs"),
        pytest.param("ftp://host/lake", "no such kind of lake; known: a path, file://", id="ftp"),
    ],
)
def test_a_lake_where_nothing_is_made_once_is_refused(uri: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_store(uri)


@pytest.mark.parametrize("uri", ["/tmp/lake", "/tmp/lake/", "file:///tmp/lake", "file:/tmp/lake"])  # noqa: S108
def test_a_local_folder_has_one_address(uri: str) -> None:
    assert open_store(uri).uri == "/tmp/lake"  # noqa: S108


def test_a_bucket_of_hadoops_spelling_is_the_same_bucket() -> None:
    store = open_store("s3a://lake/mirrors/t/")

    assert isinstance(store, Bucket)
    assert str(store.objects) == 'S3Store(bucket="lake", prefix="mirrors/t")'
