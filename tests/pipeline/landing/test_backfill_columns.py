"""Backfilled rows describe their columns where no row of the log does."""

from dataclasses import dataclass, replace
from typing import Any, cast

from pipeline.backfill_state import Backfill, KeyRange
from pipeline.changelog.table import Stamp, column_event_rows
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.landing.backfill import (
    BackfilledRows,
    BackfillNews,
    BackfillStep,
    advance_backfills,
    with_columns,
)
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.listing import LandingSource
from pipeline.model import Order, Origin, Shard, ShardId
from pipeline.schema.history import SchemaReader
from pipeline.schema.model import ColumnDescription, TableDescription
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.sources.postgres.position import log_position
from tests.pipeline.live import now

NAME, P1 = "a/d.t", Order(1, 100, 0)
EPOCH = Epoch(1, "server", log_position(100))
OPEN = Backfill("x", Origin.SNAPSHOT, P1, "server", 5, (KeyRange(("9",)), KeyRange()), key=("id",))
TOLD = TableDescription(
    ShardId("d", "t"), "alter", (ColumnDescription("id", "INT4 as int32", nullable=False),), ("id",)
)


@dataclass
class Own:
    name: str = "a"


@dataclass
class Told:
    """A feed as far as it is asked."""

    settings: Own
    format: DebeziumJson
    reading: SchemaReader


FEED = cast(
    LandingSource,
    Told(Own(), DebeziumJson(), SchemaReader(DebeziumJson().schema_change, POSTGRES)),
)


def rows_read(
    stretch: int, columns: str, told: TableDescription | None = None, **other: Any
) -> BackfilledRows:
    one = BackfilledRows(
        Shard.parse(NAME), "d.t", "x", P1, stretch, None, ("3",), False, 10, None, columns, told
    )
    return replace(one, **other)


def advance_backfill(known: Backfill, *news: BackfilledRows) -> BackfillStep:
    checkpoint = Checkpoint("main", 9, epochs={"a": EPOCH}, backfills={Shard.parse(NAME): known})
    return advance_backfills(
        checkpoint, BatchStats(), {"a": EPOCH}, BackfillNews(rows=news), lambda *_: True
    )


def test_columns_are_told_once_by_the_first_rows_that_are_landed() -> None:
    made = advance_backfill(OPEN, rows_read(0, "c", TOLD), rows_read(1, "c", TOLD))

    assert len(made.taken) == 2
    assert made.described == made.taken[:1]
    assert made.backfills[Shard.parse(NAME)].columns == "c"
    assert (
        advance_backfill(
            made.backfills[Shard.parse(NAME)], rows_read(0, "c", TOLD, after=("3",), read=("6",))
        ).described
        == ()
    )


def test_rows_of_other_columns_end_it_so_that_it_begins_anew() -> None:
    """Nothing in the log of Postgres tells that a column was added between two reads."""
    made = advance_backfill(replace(OPEN, columns="c", rows=10), rows_read(0, "d", TOLD))

    assert (made.taken, made.described) == ((), ())
    assert (made.backfills[Shard.parse(NAME)].id, made.backfills[Shard.parse(NAME)].done) == (
        "",
        10,
    )


def test_what_is_told_holds_from_the_order_of_the_rows_on() -> None:
    facts, told = with_columns(BatchStats(statements=1), [rows_read(0, "c", TOLD)], (FEED,))

    ((news,), (one,)) = facts.news, told
    assert (facts.statements, news.name, news.snapshot) == (2, NAME, False)
    assert news.change.schema is not None
    assert (news.change.order, news.change.schema.key) == (P1, ("id",))
    assert facts.schemas[NAME].order == P1
    (row,) = column_event_rows(told, Stamp("main", 10, now())).to_pylist()
    assert (row["op"], row["source"], row["shard"], row["batch"]) == ("ddl", "a", "d.t", 10)
    assert (row["after"], row["order"]["log"]) == (one.payload, 100)
    assert row["schema_id"] is not None


def test_nothing_is_told_where_statements_tell_columns() -> None:
    assert with_columns(BatchStats(), [rows_read(0, "")], (FEED,)) == (BatchStats(), ())


def test_nothing_is_told_of_a_source_that_is_not_landed_any_more() -> None:
    assert with_columns(BatchStats(), [rows_read(0, "c", TOLD)], ()) == (BatchStats(), ())
