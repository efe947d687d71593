"""A table whose standards cannot be meant is held, and told what to write instead."""

import pytest

from pipeline.apply.catalog import refuse_odd
from pipeline.errors import HeldError
from pipeline.model import Order, Shard, Table
from pipeline.schema.model import TableSchema
from pipeline.settings import StandardRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.standards.hash import KeyedHash
from pipeline.standards.mask import LetterMask
from pipeline.standards.standard import Standard
from pipeline.standards.table_standards import Standards

ID = Column("id", "INT")
TABLE = Table("db.t", (Shard("s", "db.t"),), key=("id",))


def _refuse(column: Column, standard: Standard) -> None:
    rule = StandardRule("db.*", ("id",), (("own", standard),))
    schema = TableSchema("db.t", Order(1, 1, 1), (ID, column), ("id",))
    refuse_odd(Standards((rule,)).of("db.t"), TABLE, schema)


HASH, MASK = KeyedHash(("a",), "0123456789abcdef"), LetterMask(("a",))


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(Column("a", "JSON"), id="json"),
        pytest.param(Column("a", "FLOAT"), id="float"),
        pytest.param(Column("A", "FLOAT"), id="float_in_capitals"),
        pytest.param(Column("a", "ENUM", 1, values=("x,y",)), id="a_label_with_a_comma"),
    ],
)
def test_one_value_in_two_spellings_would_have_two_answers(column: Column) -> None:
    """The log and a snapshot spell it in two ways, and who joins would find two people."""
    with pytest.raises(HeldError, match="may come in two spellings, with an answer each") as told:
        _refuse(column, HASH)

    assert told.value.reason == "standards"
    _refuse(column, MASK)


@pytest.mark.parametrize(
    "column",
    [Column("a", "DOUBLE"), Column("a", "VARCHAR", 9), Column("a", "ENUM", 1, values=("x", "y"))],
    ids=["double", "text", "enum"],
)
def test_what_has_one_spelling_has_one_answer(column: Column) -> None:
    _refuse(column, HASH)


@pytest.mark.parametrize(("name", "there"), [("A", True), ("b", False)])
def test_a_column_that_the_config_names_must_be_there_in_whichever_letters(
    name: str, *, there: bool
) -> None:
    rule = StandardRule("db.t", ("id",), (("own", KeyedHash((name,), "0123456789abcdef")),))
    schema = TableSchema("db.t", Order(1, 1, 1), (ID, Column("a", "VARCHAR", 9)), ("id",))
    own = Standards((rule,)).of("db.t")

    if there:
        refuse_odd(own, TABLE, schema)
    else:
        with pytest.raises(HeldError, match="has no column b, for which"):
            refuse_odd(own, TABLE, schema)


def test_tables_without_standards_are_not_looked_at() -> None:
    refuse_odd(None, TABLE, TableSchema("db.t", Order(1, 1, 1), (Column("a", "JSON"),), ("id",)))
