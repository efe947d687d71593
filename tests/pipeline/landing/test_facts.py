import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from pipeline.landing.batch_stats import (
    NAMED,
    BatchStats,
    DroppedDatabase,
    RunStats,
    UnreadChanges,
    gather,
    tally,
)
from pipeline.landing.task import SLIM
from pipeline.model import Order, Origin, TopicPartition
from pipeline.sources.mysql.dialect import MYSQL
from tests.pipeline.reading import READING, readings
from tests.pipeline.schema_messages import described, message

TP = TopicPartition("shop.db.t", 0)


def row(offset: int, pos: int | None, **changed: Any) -> dict[str, Any]:
    plain = {
        "source": "shop", "topic": "shop.db.t", "partition": 0, "offset": offset, "table": "db.t",
        "shard": "db.t", "op": "u", "origin": int(Origin.LIVE),
        "epoch": None if pos is None else 1, "log": None if pos is None else 1, "pos": pos,
        "row": None if pos is None else 0, "snapshot": None, "note": None,
    }  # fmt: skip
    return plain | changed


def facts(*rows: dict[str, Any], high: dict[str, Order] | None = None) -> BatchStats:
    """Of one run of rows; cut into runs at any place, they come to the same."""
    found = gather(_tallied([rows]), high or {}, readings("shop"))
    for cut in {1, len(rows) // 2, len(rows) - 1} & set(range(1, len(rows))):
        apart = gather(_tallied([rows[:cut], rows[cut:]]), high or {}, readings("shop"))
        assert apart == replace(found, doubted=apart.doubted)
    return found


def _tallied(runs: Sequence[Sequence[dict[str, Any]]]) -> list[RunStats]:
    return [tally(pa.Table.from_pylist(list(rows), schema=SLIM)) for rows in runs if rows]


@pytest.mark.parametrize(
    ("positions", "doubted"),
    [
        pytest.param((10, 20, 30), False, id="rising"),
        pytest.param((10, 20, 20), False, id="a key update is a delete and a create at one place"),
        pytest.param((10, 20, 10, 20, 30), True, id="sent again after a restart"),
        pytest.param((10, None, 5), True, id="a tombstone between has no place"),
    ],
)
def test_a_partition_is_doubted_where_its_orders_fall(
    positions: tuple[int | None, ...], doubted: bool
) -> None:
    found = facts(*(row(offset, pos) for offset, pos in enumerate(positions)))

    assert found.doubted == ({TP} if doubted else frozenset())


def test_the_batch_before_counts_too() -> None:
    found = facts(row(7, 20), row(8, 60), high={"shop/shop.db.t:0": Order(1, 1, 50)})

    assert found.doubted == {TP}
    assert found.high == {"shop/shop.db.t:0": Order(1, 1, 60)}


def test_rows_are_judged_by_offset_not_by_where_they_stand_in_the_file() -> None:
    found = facts(row(2, 30), row(0, 10), row(1, 20))

    assert not found.doubted
    assert found.high["shop/shop.db.t:0"].pos == 30


def test_partitions_are_judged_apart() -> None:
    found = facts(row(0, 50), row(0, 10, partition=1))

    assert not found.doubted


def test_incremental_snapshot_rows_may_stand_anywhere() -> None:
    found = facts(row(0, 50), row(1, 10, op="r", snapshot="incremental", origin=0))

    assert not found.doubted
    assert not found.snapshots


@pytest.mark.parametrize(
    ("marker", "ended"),
    [("last", True), ("last_in_data_collection", True), ("first", False), ("true", False)],
)
def test_the_last_row_of_a_snapshot_or_of_its_table_ends_it(marker: str, ended: bool) -> None:
    read = row(3, 50, op="r", origin=int(Origin.SNAPSHOT), snapshot=marker)

    assert facts(read).snapshots["shop/db.t"].ended is ended


def test_a_restarted_snapshot_is_told_by_its_order() -> None:
    reads = [row(n, 100, op="r", snapshot="true", origin=0) for n in range(3)]
    again = [row(n + 3, 200, op="r", snapshot="true", origin=0) for n in range(2)]

    found = facts(*reads, *again, row(5, 200, op="r", snapshot="last", origin=0))

    snapshot = found.snapshots["shop/db.t"]
    assert (snapshot.order.pos, snapshot.rows, snapshot.ended) == (200, 3, True)


def test_only_rows_that_change_a_mirror_are_counted_for_its_table() -> None:
    found = facts(
        row(0, 10), row(1, 20, op="d"), row(2, None, op="tombstone"), row(3, None, op="error")
    )

    assert found.tables == {"db.t": 2}
    assert found.rows == 4


def test_f09_a_broken_message_concerns_its_shard_or_where_that_is_not_known_its_topic() -> None:
    found = facts(
        row(0, None, op="error"),
        row(1, None, op="error", table=None),
        row(2, None, op="error", shard=None, table=None),
        row(3, None, op="error", shard="db_2.t"),
    )

    assert found.errors == {
        "shop/db.t": UnreadChanges("shop", "db.t", 1, ("shop.db.t:0:0",)),
        "shop/db_2.t": UnreadChanges("shop", "db.t", 1, ("shop.db.t:0:3",)),
        "topic:shop.db.t": UnreadChanges("shop", None, 2, ("shop.db.t:0:1", "shop.db.t:0:2")),
    }


def test_a_schema_change_that_cannot_be_read_concerns_its_topic() -> None:
    found = facts(row(4, 10, topic="shop", op="ddl", table=None, shard=None, note="{"))

    assert found.errors == {"topic:shop": UnreadChanges("shop", None, 1, ("shop:0:4",))}


def test_f38_broken_messages_by_the_thousand_are_counted_and_the_first_named() -> None:
    many = (row(n, None, op="error", shard=f"db_{n % 2}.t") for n in reversed(range(5_000)))

    errors = facts(*many).errors

    assert {name: one.count for name, one in errors.items()} == {
        "shop/db_0.t": 2_500,
        "shop/db_1.t": 2_500,
    }
    assert errors["shop/db_1.t"].ids == tuple(f"shop.db.t:0:{2 * n + 1}" for n in range(NAMED))


@pytest.mark.parametrize(
    ("snapshot", "firsts"),
    [
        pytest.param(None, {"shop/db.t": Order(1, 1, 20)}, id="born before our eyes"),
        pytest.param("true", {}, id="described before it is read"),
    ],
)
def test_the_first_row_of_a_created_shard_is_told(
    snapshot: str | None, firsts: dict[str, Order]
) -> None:
    note = message("CREATE TABLE t ...", described("CREATE TABLE t ...", "t", ""))
    ddl = row(0, 50, topic="shop", op="ddl", table=None, shard=None, snapshot=snapshot, note=note)

    found = facts(ddl, row(1, 30), row(0, 20), row(2, 5, shard="db.u"))

    assert [news.change.shard for news in found.news] == ["db.t"]
    assert found.firsts == firsts


def statement(offset: int, pos: int | None, text: str, kind: str = "CREATE") -> dict[str, Any]:
    note = message(text, described(text, "t", "", kind=kind))
    return row(offset, pos, topic="shop", op="ddl", table=None, shard=None, note=note)


def test_schema_changes_are_told_in_the_log_s_order_wherever_they_stand() -> None:
    found = facts(statement(9, 60, "ALTER TABLE t ADD c INT", "ALTER"), statement(3, 50, "CREATE"))

    assert [(news.change.kind, news.former) for news in found.news] == [
        ("create", None),
        ("alter", None),
    ]


def test_a_statement_without_a_place_is_counted_and_changes_nothing() -> None:
    found = facts(statement(3, None, "CREATE TABLE t (id INT)"))

    assert (found.statements, found.news, found.texts, found.errors) == (1, (), (), {})


@pytest.mark.parametrize(
    ("text", "empty", "over"),
    [
        pytest.param("CREATE TABLE t (id INT)", True, False, id="only where none was"),
        pytest.param("CREATE OR REPLACE TABLE t (id INT)", True, True, id="over another, too"),
    ],
)
def test_where_a_create_begins_an_empty_table_is_told(text: str, empty: bool, over: bool) -> None:
    (news,) = facts(statement(3, 50, text)).news

    assert (news.empty, news.over) == (empty, over)


@dataclass(eq=False)
class Noting:
    """MySQL's statements; notes of which it was asked what they make."""

    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        """All else is as it is."""
        return getattr(MYSQL, name)

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        """Noted."""
        self.asked.append(statement)
        return MYSQL.makes_anew(statement, there=there)


def test_how_a_table_begins_is_asked_of_statements_that_make_one_and_of_no_others() -> None:
    """A snapshot describes each table by its CREATE, and to read a long one takes milliseconds."""
    created, altered = "CREATE TABLE t (id INT)", "ALTER TABLE t ADD c INT"
    rows = [statement(3, 50, created), statement(4, 60, altered, "ALTER")]
    described_ = statement(5, 70, "CREATE TABLE t (id INT, c INT)") | {"snapshot": "true"}
    dialect = Noting()

    gather(_tallied([[*rows, described_]]), {}, {"shop": replace(READING, dialect=dialect)})

    assert dialect.asked == [created] * 3, "where there was none, and where there was one"


def test_the_first_row_of_an_altered_shard_says_nothing() -> None:
    assert facts(statement(3, 50, "ALTER TABLE t ADD c INT", "ALTER"), row(1, 30)).firsts == {}


def test_a_statement_is_told_though_it_describes_no_table_but_not_a_snapshot_s() -> None:
    """`skip.unparseable.ddl` lets a collector send what it could not read without any table."""
    notes = [json.dumps({"ddl": f"ALTER TABLE t FROB {n}"}) for n in range(2)]
    rows = [
        row(n, 50, topic="shop", op="ddl", table=None, shard=None, snapshot=snapshot, note=notes[n])
        for n, snapshot in enumerate([None, "true"])
    ]

    found = facts(*rows)

    assert (found.news, found.statements) == ((), 2)
    assert found.texts == (("shop", "ALTER TABLE t FROB 0"),)


def test_a_database_that_is_dropped_is_told_and_one_that_is_made_is_not() -> None:
    """Its tables go with it, and of none is it told."""
    texts = ["CREATE DATABASE shop", "DROP DATABASE shop"]
    rows = [
        row(n, 50 + n, topic="s", op="ddl", table=None, shard=None, note=json.dumps({"ddl": text}))
        for n, text in enumerate(texts)
    ]

    assert facts(*rows).databases == (DroppedDatabase("shop", Order(1, 1, 51), "shop", texts[1]),)


def test_the_highest_heartbeat_number_is_kept() -> None:
    beats = [row(n, 10 + n, op="heartbeat", table=None, note=str(n)) for n in (3, 9, 4)]

    assert facts(*beats).heartbeats == {"shop": 9}


@pytest.mark.parametrize("note", [None, "", "x", "-3"])
def test_a_heartbeat_without_a_number_is_below_every_number(note: str | None) -> None:
    """And not taken for the first, which is 0."""
    beat = row(1, 10, op="heartbeat", table=None, note=note)

    assert facts(beat).heartbeats == {"shop": -1}
    assert facts(beat, row(2, 11, op="heartbeat", table=None, note="0")).heartbeats == {"shop": 0}


def test_an_empty_batch_has_no_facts() -> None:
    found = gather([], {"shop/shop.db.t:0": Order(1, 1, 50)}, {})

    assert found == BatchStats()
    assert (found.rows, found.statements) == (0, 0)


BOTH = frozenset({Order(1, 1, 50), Order(1, 1, 60)})


@pytest.mark.parametrize(
    ("text", "snapshot", "found"),
    [
        pytest.param("DROP DATABASE IF EXISTS `db`", "true", {"shop": BOTH}, id="all"),
        pytest.param("DROP TABLE IF EXISTS `db`.`t`", "true", {}, id="single tables"),
        pytest.param("DROP DATABASE IF EXISTS `db`", None, {}, id="a live statement"),
    ],
)
def test_a_snapshot_of_all_tables_is_one_that_makes_their_databases_anew(
    text: str, snapshot: str | None, found: dict[str, frozenset[Order]]
) -> None:
    note = json.dumps({"ddl": text, "databaseName": "db"})
    rows = [
        row(n, pos, topic="shop", op="ddl", table=None, shard=None, snapshot=snapshot, note=note)
        for n, pos in enumerate((60, 50))
    ]

    assert facts(*rows).initial == found
