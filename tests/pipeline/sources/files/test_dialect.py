from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from pipeline.model import Order, ShardId
from pipeline.schema.decode import type_rows
from pipeline.schema.model import (
    ColumnDescription,
    Compatible,
    Empty,
    Incompatible,
    Keep,
    KnownTables,
    SchemaEvent,
    TableSchema,
)
from pipeline.sources.files.dialect import FILES, FileColumn

SHARD = ShardId("d", "l")


def file_schema(**types: str) -> TableSchema:
    return TableSchema("d.l", Order(1, 0, 0), tuple(FileColumn(n, t) for n, t in types.items()))


SENT = {
    "a number": ("bigint", "12", 12),
    "a number as CSV has it": ("bigint", '"12"', 12),
    "too large": ("int", "3000000000", None),
    "a fraction": ("double", "1.5", 1.5),
    "a fraction as a text": ("double", '"1.5"', 1.5),
    "true": ("boolean", "true", True),
    "a text": ("string", '"x"', "x"),
    "an object is a text": ("string", '{"a": 1}', '{"a": 1}'),
    "a day": ("date", '"2026-11-23"', date(2026, 11, 23)),
    "no day": ("date", '"2026-02-30"', None),
    "an instant": (
        "timestamp",
        '"2026-11-23 01:02:03+08:00"',
        datetime(2026, 11, 22, 17, 2, 3, tzinfo=UTC),
    ),
    "an instant without zone": ("timestamp", '"2026-11-23 01:02:03"', None),
    "a moment": (
        "timestamp_ntz",
        '"2026-11-23T01:02:03.5"',
        datetime.fromisoformat("2026-11-23T01:02:03.5"),
    ),
    "a decimal": ("decimal(5, 2)", '"12.30"', Decimal("12.30")),
    "nothing is rounded": ("decimal(5,2)", "12.345", None),
    "bytes": ("binary", '"AP8="', b"\x00\xff"),
    "a type that there is not is a text": ("geometry", '"x"', "x"),
}


@pytest.mark.parametrize(("kind", "sent", "value"), SENT.values(), ids=SENT)
def test_a_value_has_its_columns_type_or_is_told_as_none(
    kind: str, sent: str, value: object
) -> None:
    found = type_rows(pa.array([f'{{"c": {sent}}}']), (FileColumn("c", kind),))

    assert found.rows["c"][0].as_py() == value
    assert found.misread[0].as_py() is (value is None)


def test_columns_may_come_and_keep_their_types() -> None:
    before, after = file_schema(id="bigint"), file_schema(id="bigint", new="string")

    assert FILES.compare(before, after) == Compatible((FileColumn("new", "string"),))
    assert isinstance(FILES.compare(after, before), Incompatible)
    assert isinstance(FILES.compare(before, file_schema(id="string")), Incompatible)


def test_logs_of_one_table_have_all_columns_of_any() -> None:
    merged = FILES.merge((file_schema(id="bigint"), file_schema(x="double")))

    assert isinstance(merged, TableSchema)
    assert [one.name for one in merged.columns] == ["id", "x"]
    assert isinstance(
        FILES.merge((file_schema(id="bigint"), file_schema(id="string"))), Incompatible
    )


def test_a_log_begins_empty_and_keeps_its_rows_when_columns_come() -> None:
    told = [
        SchemaEvent(Order(1, 0, at), "", None, ((SHARD, file_schema(id="bigint")),))
        for at in (0, 5)
    ]

    effects, known = FILES.follow(told, KnownTables(lambda _: True))

    assert [type(one) for one in effects] == [Empty, Keep]
    assert known.based == {SHARD}
    assert FILES.makes_anew("create d.l", there=False)


def test_what_a_column_is_told_as_it_is() -> None:
    column = FILES.column(ColumnDescription("id", "bigint"), "")

    assert column == FileColumn("id", "bigint")
    assert (FILES.whole(column), FILES.spellings(column, 7)) == (True, ("7",))
    assert FILES.spelled_alike(column)
    assert not FILES.spelled_alike(FileColumn("x", "double"))
    assert FILES.default(column).as_py() is None
    assert FILES.differences(file_schema(id="bigint"), [column]) == ()
