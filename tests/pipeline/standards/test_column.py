"""The mirror's column is what the answers are; statements are followed by the source's own."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pipeline.errors import HeldError
from pipeline.model import Order
from pipeline.schema.decode import type_rows
from pipeline.schema.model import TableSchema, arrow_type
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.standards.hash import KeyedHash
from pipeline.standards.mapping import IdMapping
from pipeline.standards.mask import LetterMask
from pipeline.standards.table_standards import (
    StandardColumn,
    default_of,
    source_column,
    source_schema,
)

HASH, MASK = KeyedHash(("id",), "0123456789abcdef"), LetterMask(("name",))
NUMBER, NAME = Column("id", "BIGINT"), Column("name", "VARCHAR", 80)
BY_HASH, BY_MASK = StandardColumn(NUMBER, HASH), StandardColumn(NAME, MASK)


def test_a_number_that_is_hashed_is_text_beside_others() -> None:
    rows = pa.array(['{"id":"ab12","name":"Z**","n":7}', '{"id":null,"n":8}'])

    read = type_rows(rows, [BY_HASH, BY_MASK, Column("n", "INT")])

    assert read.rows.to_pylist() == [
        {"id": "ab12", "name": "Z**", "n": 7},
        {"id": None, "name": None, "n": 8},
    ]
    assert not any(read.misread.to_pylist())


def test_an_id_that_is_mapped_may_be_a_number() -> None:
    column = StandardColumn(NUMBER, IdMapping(("id",), "/ids.csv", type="bigint"))

    read = type_rows(pa.array(['{"id":"70"}', '{"id":"x"}']), [column])

    assert arrow_type(column) == pa.int64()
    assert read.rows["id"].to_pylist() == [70, None]
    assert read.misread.to_pylist() == [False, True]


def test_its_ids_are_in_no_order_that_both_sides_know() -> None:
    assert NUMBER.dialect.whole(NUMBER)
    assert not BY_HASH.dialect.whole(BY_HASH)
    assert BY_HASH.dialect.spelled_alike(BY_HASH)
    assert BY_HASH.dialect.spellings(BY_HASH, 7) == ("7",)


def test_statements_are_compared_by_the_sources_own_columns() -> None:
    schema = TableSchema("db.t", Order(1, 1, 1), (NUMBER, NAME), ("id",))
    mine = replace(schema, columns=(BY_HASH, BY_MASK))

    assert source_schema(mine) == schema
    assert BY_HASH.dialect.merge([mine]) == schema
    assert BY_HASH.dialect.compare(mine, mine) == NUMBER.dialect.compare(schema, schema)
    assert not BY_HASH.dialect.differences(mine, [NUMBER, NAME])
    assert source_column(NAME) is NAME


def test_older_rows_have_the_answer_to_the_default() -> None:
    born = StandardColumn(Column("name", "VARCHAR", 80, default="none", nullable=False), MASK)
    nothing = StandardColumn(Column("name", "VARCHAR", 80, nullable=True), MASK)

    assert default_of(born).as_py() == "****"
    assert default_of(nothing).as_py() is None


def test_a_default_that_may_be_sent_in_many_ways_holds_the_table() -> None:
    day = Column("day", "DATE", default="2020-01-01", nullable=False)

    with pytest.raises(HeldError, match=r"standards: .*column day: a default of date32"):
        default_of(StandardColumn(day, MASK))
