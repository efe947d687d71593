import json
from typing import Any

import pyarrow as pa
import pytest

from pipeline.errors import FormatError
from pipeline.files.content import ColumnsHead, FaultHead, HeartbeatHead, RowsHead, encode_head
from pipeline.formats.file_rows import FileRows
from pipeline.formats.format import RAW

FORMAT = FileRows()
HEAD = RowsHead(
    *("logs.clicks", "clicks/2026_11_23/05/a.json", "2026_11_23", "05", 100),
    at=1_000_000,
    key=("_file", "_line"),
)


def decode_messages(
    *messages: tuple[bytes | None, bytes | None], first: int = 100
) -> list[dict[str, Any]]:
    keys, values = zip(*messages, strict=True)
    count = len(messages)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.repeat("logs.files", count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array(range(first, first + count), pa.int64()),
        ],
        schema=RAW,
    )
    found: list[dict[str, Any]] = FORMAT.decode(batch, {}).to_pylist()
    return found


def test_a_row_is_known_by_where_it_stood_and_keeps_its_numbers() -> None:
    key = encode_head(HEAD)

    first, second = decode_messages(
        (key, b'{"id": 1.10}\n'), (key, b' {"id": 12345678901234567890} ')
    )

    assert (first["op"], first["shard"]) == ("c", "logs.clicks")
    assert json.loads(first["key_values"]) == ["clicks/2026_11_23/05/a.json", "0"]
    assert json.loads(second["key_values"])[1] == "1"
    assert first["after"].startswith('{"id":1.10,')
    assert json.loads(second["after"]) == {
        "id": 12345678901234567890,
        "_file": "clicks/2026_11_23/05/a.json",
        "_line": 1,
        "_day": "2026-11-23",
        "_hour": 5,
    }
    assert first["at"].timestamp() == 1


def test_a_row_of_a_log_with_a_key_is_known_by_that() -> None:
    key = encode_head(RowsHead("l.o", "o/d/h/a", "2026_11_23", "05", 100, 0, ("id", "part")))

    (found,) = decode_messages((key, b'{"part": "x", "id": 7}'))

    assert json.loads(found["key_values"]) == ["7", "x"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(b"half {", "line 1 of clicks/2026_11_23/05/a.json is no JSON obj", id="text"),
        pytest.param(b"[1]", "is no JSON object", id="a list"),
        pytest.param(b'{"a": "\xff"}', "is no JSON object", id="no UTF-8"),
        pytest.param(b"{" * 5_000, "is no JSON object", id="deep"),
    ],
)
def test_a_line_that_is_no_row_is_quarantined_with_its_bytes(value: bytes, why: str) -> None:
    bad, good = decode_messages((encode_head(HEAD), value), (encode_head(HEAD), b'{"id": 1}'))

    assert (bad["op"], bad["shard"], bad["raw"]) == ("error", "logs.clicks", value)
    assert why in bad["error"]
    assert good["op"] == "c"


def test_a_row_without_its_key_is_quarantined() -> None:
    key = encode_head(RowsHead("l.o", "a", "2026_11_23", "05", 100, 0, ("id",)))

    absent, null = decode_messages((key, b'{"x": 1}'), (key, b'{"id": null}'))

    assert {absent["op"], null["op"]} == {"error"}
    assert "a column of the key (id)" in absent["error"]


def test_an_empty_line_says_that_it_holds_no_change() -> None:
    (found,) = decode_messages((encode_head(HEAD), b"\n"))
    assert (found["message"], found["op"]) == (0, "skipped")


def test_columns_beats_and_faults() -> None:
    told = ColumnsHead("logs.clicks", "create", (("id", "bigint"),), ("id",))
    ddl, beat, fault = decode_messages(
        (encode_head(told), None),
        (encode_head(HeartbeatHead("sluice.heartbeat", "logs", 9)), None),
        (encode_head(FaultHead("logs.clicks", "a.json", "it was changed")), None),
    )

    (table,) = FORMAT.schema_change(ddl["after"]).tables
    assert (str(table.shard), table.kind, table.key) == ("logs.clicks", "create", ("id",))
    assert [(one.name, one.type) for one in table.columns] == [("id", "bigint")]
    assert (beat["shard"], json.loads(beat["after"])) == (
        "sluice.heartbeat",
        {"id": 1, "source": "logs", "n": 9},
    )
    assert (fault["op"], fault["error"]) == ("error", "file a.json: it was changed")


@pytest.mark.parametrize("key", [None, b"", b"{", b'{"type": "odd"}', b"[1]", b"\xff"])
def test_a_message_of_something_else_is_quarantined(key: bytes | None) -> None:
    (found,) = decode_messages((key, b"x"))

    assert (found["op"], found["raw"]) == ("error", b"x")


@pytest.mark.parametrize("payload", ["", "{}", encode_head(HEAD).decode()])
def test_a_schema_change_of_something_else_is_refused(payload: str) -> None:
    with pytest.raises(FormatError, match="no columns of files"):
        FORMAT.schema_change(payload)
