from pathlib import Path

import pytest

from examples.json_lines import JsonLines
from pipeline.errors import UnreachableError
from pipeline.formats.format import OPTIONAL, RAW
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.transports.topics import LastRecord
from pipeline.transports.transport import OffsetRange, RangeRead, ReadBounds

AT = TopicPartition("t", 0)
LINES = [f'{{"key": null, "value": "v{n}"}}\n' for n in range(5)]


@pytest.fixture
def lines(tmp_path: Path) -> JsonLines:
    """A topic of five messages; the sixth is being written."""
    (tmp_path / "t.jsonl").write_text("".join(LINES) + '{"key": nu')
    return JsonLines(str(tmp_path))


def test_a_range_is_read_in_batches_and_nothing_beside_it(lines: JsonLines) -> None:
    asked = OffsetRange("t", 0, 1, 4)

    stream = lines.consume([asked], bounds=ReadBounds(rows=2), columns=("headers",))

    batches = list(stream)
    assert [len(batch) for batch in batches] == [2, 1]
    assert [v for b in batches for v in b["value"].to_pylist()] == [b"v1", b"v2", b"v3"]
    assert [o for b in batches for o in b["offset"].to_pylist()] == [1, 2, 3]
    assert batches[0].schema.names == [*RAW.names, "headers"]
    assert batches[0].schema.field("headers").type == OPTIONAL["headers"]
    assert stream.read == (RangeRead(asked, 1, 3, 3),)


def test_a_line_that_does_not_end_is_not_there_yet(lines: JsonLines) -> None:
    (end,) = lines.ends(["t", "none"]).values()

    assert (end.offset, end.topic_id) == (5, lines.topics(".*")["t"])
    assert lines.beginnings(["t"]) == {AT: PartitionEnd(0, end.topic_id)}
    assert lines.last_records([AT]) == {AT: LastRecord(None, b"v4", 4)}


def test_fewer_lines_than_asked_for_are_an_error(lines: JsonLines) -> None:
    stream = lines.consume([OffsetRange("t", 0, 3, 6)], bounds=ReadBounds(), columns=())

    with pytest.raises(UnreachableError, match="ends at 5"):
        list(stream)


def test_a_topic_written_anew_has_another_id(lines: JsonLines, tmp_path: Path) -> None:
    known = lines.topics("t")
    lines.require_ids(known)
    (tmp_path / "kept").hardlink_to(tmp_path / "t.jsonl")  # or its number might be given again
    (tmp_path / "t.jsonl").unlink()
    (tmp_path / "t.jsonl").write_text("")

    with pytest.raises(UnreachableError, match="created again"):
        lines.require_ids(known)
