"""Rows are read as they were taken, wherever the ranges are cut, or their file is told."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import UnreachableError
from pipeline.files.content import FaultHead, RowsHead, decode_head
from pipeline.formats.format import OPTIONAL, RAW
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.transports.files import FilesReader, FilesTransport
from pipeline.transports.transport import OffsetRange, RangeRead, ReadBounds
from tests.pipeline.files.folder import LogFolder

TOPIC = "logs.files"
AT = TopicPartition(TOPIC, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LogFolder]:
    """Columns at 0, three rows of ``a`` from 1 on, two of ``b`` from 4 on."""
    made = LogFolder(tmp_path)
    made.write("a.json", b"".join(b'{"id": %d}\n' % n for n in range(3)))
    made.write("b.csv", b"id\n7\n8\n")
    made.settled()
    yield made
    made.process.close()
    made.ledger.close()


@pytest.fixture
def transport(folder: LogFolder) -> FilesTransport:
    told = CollectorSettings(str(folder.base), "logs", "files", {"ledger": str(folder.ledger.path)})
    return FilesTransport(SourceSettings("logs", "h", 1, "u", told, "logs"))


def read_ranges(
    transport: FilesTransport, *ranges: tuple[int, int], rows: int = 10_000
) -> tuple[list[tuple[int, object]], tuple[RangeRead, ...]]:
    """Offset and value, or head where there is none, of what a task reads."""
    asked = [OffsetRange(TOPIC, 0, first, until) for first, until in ranges]
    reader = pickle.loads(pickle.dumps(transport.reader(asked)))  # noqa: S301  - a task's own
    stream = reader.consume(asked, bounds=ReadBounds(rows=rows), columns=("headers",))
    found = list[tuple[int, object]]()
    for batch in stream:
        assert batch.schema.names == [*RAW.names, "headers"]
        assert batch.schema.field("headers").type == OPTIONAL["headers"]
        assert len(batch) <= rows
        for one in batch.to_pylist():
            value = one["value"]
            told = json.loads(value)["id"] if value is not None else decode_head(one["key"])
            found.append((one["offset"], told))
    return found, stream.read


def test_where_the_topic_begins_and_ends(transport: FilesTransport, folder: LogFolder) -> None:
    end = PartitionEnd(6, folder.ledger.id)

    assert transport.topics(r"logs\..+") == {TOPIC: folder.ledger.id}
    assert transport.topics("other") == {}
    assert transport.ends([TOPIC, "other"]) == {AT: end}
    assert transport.beginnings([TOPIC]) == {AT: PartitionEnd(0, folder.ledger.id)}
    assert transport.ends([]) == {}
    assert transport.epoch_ends({AT: 3}) == {AT: -1}
    assert transport.hidden([TOPIC]) == frozenset()
    assert [one.name for one in transport.settings(".*")] == [TOPIC]


@pytest.mark.parametrize("cut", range(1, 6))
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_rows_are_the_same_wherever_ranges_are_cut(
    transport: FilesTransport, cut: int, rows: int
) -> None:
    found, told = read_ranges(transport, (0, cut), (cut, 6), rows=rows)

    assert found[1:] == [(1, 0), (2, 1), (3, 2), (4, "7"), (5, "8")]
    assert [(one.first, one.last, one.count) for one in told] == [
        (0, cut - 1, cut),
        (cut, 5, 6 - cut),
    ]


def test_every_row_of_a_file_says_where_the_file_begins(transport: FilesTransport) -> None:
    reader = transport.reader([OffsetRange(TOPIC, 0, 5, 6)])

    (((_, key, _),),) = reader.records(5, 6)

    head = decode_head(key)
    assert isinstance(head, RowsHead)
    assert (head.first, head.file) == (4, "clicks/2026_11_23/12/b.csv")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        pytest.param(
            lambda p: p.unlink(),
            "directory; 3 rows of it were not read; if it was renamed",
            id="deleted",
        ),
        pytest.param(lambda p: p.write_bytes(b'{"id": 9}\n' * 3), "was changed", id="rewritten"),
        pytest.param(lambda p: p.write_bytes(b""), "was changed", id="emptied"),
    ],
)
def test_a_file_that_is_not_what_was_taken_is_told_in_the_place_of_its_rows(
    transport: FilesTransport, folder: LogFolder, harm: object, why: str
) -> None:
    harm(folder.base / "clicks/2026_11_23/12/a.json")  # type: ignore[operator]

    found, told = read_ranges(transport, (0, 6))

    (offset, fault), *rest = found[1:]
    assert isinstance(fault, FaultHead)
    assert (offset, fault.file) == (1, "clicks/2026_11_23/12/a.json")
    assert why in fault.why
    assert rest == [(4, "7"), (5, "8")]
    assert told[0].last == 5


def test_a_file_that_was_only_touched_is_read(transport: FilesTransport, folder: LogFolder) -> None:
    (folder.base / "clicks/2026_11_23/12/a.json").touch()

    found, _ = read_ranges(transport, (1, 4))

    assert found == [(1, 0), (2, 1), (3, 2)]


def test_offsets_that_the_ledger_does_not_know_are_an_error(transport: FilesTransport) -> None:
    with pytest.raises(UnreachableError, match="has no entry for 6"):
        read_ranges(transport, (4, 8))


def test_a_disk_that_fails_is_no_file_that_is_gone(
    transport: FilesTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", fails)
    reader = transport.reader([OffsetRange(TOPIC, 0, 1, 4)])

    with pytest.raises(UnreachableError, match="Input/output error"):
        list(reader.records(1, 4))


def test_the_last_row_is_that_of_the_newest_file(transport: FilesTransport) -> None:
    (record,) = transport.last_records([AT]).values()

    assert (record.offset, record.value) == (5, b'{"id":"8"}')
    assert transport.last_records([]) == {}


def test_a_ledger_that_was_made_anew_is_another_topic(
    transport: FilesTransport, folder: LogFolder
) -> None:
    transport.require_ids({TOPIC: folder.ledger.id})

    with pytest.raises(UnreachableError, match="was created again"):
        transport.require_ids({TOPIC: "another"})


def test_a_reader_is_whole_without_a_ledger(transport: FilesTransport) -> None:
    reader = transport.reader([OffsetRange(TOPIC, 0, 2, 5)])

    assert isinstance(reader, FilesReader)
    assert [one.first for one in reader.entries] == [1, 4]
