import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.changelog.table import CHANGES
from pipeline.checkpoint import DescribedSchema
from pipeline.formats.format import AROUND
from pipeline.landing import plan
from pipeline.landing.batch_stats import (
    NAMED,
    BatchStats,
    DroppedDatabase,
    RunStats,
    SchemaDeduplicator,
    SnapshotRows,
    UnreadChanges,
    drop_repeated,
    find_newest_schemas,
    gather_stats,
    merge_schemas,
    tally_rows,
)
from pipeline.landing.task import SLIM
from pipeline.model import Op, Order, Origin, SourcePartition, TopicPartition
from pipeline.schema.history import History
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.postgres.dialect import POSTGRES
from tests.builders import orders_at
from tests.builders.harness import LandingHarness
from tests.example_count import examples
from tests.pipeline.landing.test_unbased_tables import MORE
from tests.pipeline.landing.test_unbased_tables import message as row_message
from tests.pipeline.reading import READING, readings
from tests.pipeline.schema_messages import described, message

TP = TopicPartition("shop.db.t", 0)


def slim_row(offset: int, pos: int | None, **changed: Any) -> dict[str, Any]:
    plain = {
        "source": "shop", "topic": "shop.db.t", "partition": 0, "offset": offset, "table": "db.t",
        "shard": "db.t", "op": "u", "origin": int(Origin.LIVE),
        "epoch": None if pos is None else 1, "log": None if pos is None else 1, "pos": pos,
        "row": None if pos is None else 0, "snapshot": None, "note": None,
    }  # fmt: skip
    return plain | changed


def facts(*rows: dict[str, Any], high: dict[SourcePartition, Order] | None = None) -> BatchStats:
    """Of one run of rows; cut into runs at any place, they come to the same."""
    found = gather_stats(_tallied([rows]), high or {}, readings("shop"))
    for cut in {1, len(rows) // 2, len(rows) - 1} & set(range(1, len(rows))):
        apart = gather_stats(_tallied([rows[:cut], rows[cut:]]), high or {}, readings("shop"))
        assert apart == replace(found, doubted=apart.doubted)
    return found


def _tallied(runs: Sequence[Sequence[dict[str, Any]]]) -> list[RunStats]:
    return [tally_rows(pa.Table.from_pylist(list(rows), schema=SLIM)) for rows in runs if rows]


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
    found = facts(*(slim_row(offset, pos) for offset, pos in enumerate(positions)))

    assert found.doubted == ({TP} if doubted else frozenset())


def test_the_batch_before_counts_too() -> None:
    found = facts(
        slim_row(7, 20), slim_row(8, 60), high=orders_at({"shop/shop.db.t:0": Order(1, 1, 50)})
    )

    assert found.doubted == {TP}
    assert found.high == orders_at({"shop/shop.db.t:0": Order(1, 1, 60)})


def test_rows_are_judged_by_offset_not_by_where_they_stand_in_the_file() -> None:
    found = facts(slim_row(2, 30), slim_row(0, 10), slim_row(1, 20))

    assert not found.doubted
    assert found.high[SourcePartition.parse("shop/shop.db.t:0")].pos == 30


def test_partitions_are_judged_apart() -> None:
    found = facts(slim_row(0, 50), slim_row(0, 10, partition=1))

    assert not found.doubted


def test_incremental_snapshot_rows_may_stand_anywhere() -> None:
    found = facts(slim_row(0, 50), slim_row(1, 10, op="r", snapshot="incremental", origin=0))

    assert not found.doubted
    assert not found.snapshots


@pytest.mark.parametrize(
    ("marker", "ended"),
    [("last", True), ("last_in_data_collection", True), ("first", False), ("true", False)],
)
def test_the_last_row_of_a_snapshot_or_of_its_table_ends_it(marker: str, ended: bool) -> None:
    read = slim_row(3, 50, op="r", origin=int(Origin.SNAPSHOT), snapshot=marker)

    assert facts(read).snapshots["shop/db.t"].ended is ended


def test_a_restarted_snapshot_is_told_by_its_order() -> None:
    reads = [slim_row(n, 100, op="r", snapshot="true", origin=0) for n in range(3)]
    again = [slim_row(n + 3, 200, op="r", snapshot="true", origin=0) for n in range(2)]

    found = facts(*reads, *again, slim_row(5, 200, op="r", snapshot="last", origin=0))

    snapshot = found.snapshots["shop/db.t"]
    assert (snapshot.order.pos, snapshot.rows, snapshot.ended) == (200, 3, True)


def test_only_rows_that_change_a_mirror_are_counted_for_its_table() -> None:
    found = facts(
        slim_row(0, 10),
        slim_row(1, 20, op="d"),
        slim_row(2, None, op="tombstone"),
        slim_row(3, None, op="error"),
    )

    assert found.tables == {"db.t": 2}
    assert found.rows == 4


def test_f09_a_broken_message_concerns_its_shard_or_where_that_is_not_known_its_topic() -> None:
    found = facts(
        slim_row(0, None, op="error"),
        slim_row(1, None, op="error", table=None),
        slim_row(2, None, op="error", shard=None, table=None),
        slim_row(3, None, op="error", shard="db_2.t"),
    )

    assert found.errors == {
        "shop/db.t": UnreadChanges("shop", "db.t", 1, ("shop.db.t:0:0",)),
        "shop/db_2.t": UnreadChanges("shop", "db.t", 1, ("shop.db.t:0:3",)),
        "topic:shop.db.t": UnreadChanges("shop", None, 2, ("shop.db.t:0:1", "shop.db.t:0:2")),
    }


def test_a_schema_change_that_cannot_be_read_concerns_its_topic() -> None:
    found = facts(slim_row(4, 10, topic="shop", op="ddl", table=None, shard=None, note="{"))

    assert found.errors == {"topic:shop": UnreadChanges("shop", None, 1, ("shop:0:4",))}


def test_f38_broken_messages_by_the_thousand_are_counted_and_the_first_named() -> None:
    many = (slim_row(n, None, op="error", shard=f"db_{n % 2}.t") for n in reversed(range(5_000)))

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
    ddl = slim_row(
        0, 50, topic="shop", op="ddl", table=None, shard=None, snapshot=snapshot, note=note
    )

    found = facts(ddl, slim_row(1, 30), slim_row(0, 20), slim_row(2, 5, shard="db.u"))

    assert [news.change.shard for news in found.news] == ["db.t"]
    assert found.firsts == firsts


def statement_row(offset: int, pos: int | None, text: str, kind: str = "CREATE") -> dict[str, Any]:
    note = message(text, described(text, "t", "", kind=kind))
    return slim_row(offset, pos, topic="shop", op="ddl", table=None, shard=None, note=note)


def test_schema_changes_are_told_in_the_log_s_order_wherever_they_stand() -> None:
    found = facts(
        statement_row(9, 60, "ALTER TABLE t ADD c INT", "ALTER"), statement_row(3, 50, "CREATE")
    )

    assert [(news.change.kind, news.former) for news in found.news] == [
        ("create", None),
        ("alter", None),
    ]


def test_a_statement_without_a_place_is_counted_and_changes_nothing() -> None:
    found = facts(statement_row(3, None, "CREATE TABLE t (id INT)"))

    assert (found.statements, found.news, found.texts, found.errors) == (1, (), (), {})


@pytest.mark.parametrize(
    ("text", "empty", "over"),
    [
        pytest.param("CREATE TABLE t (id INT)", True, False, id="only where none was"),
        pytest.param("CREATE OR REPLACE TABLE t (id INT)", True, True, id="over another, too"),
    ],
)
def test_where_a_create_begins_an_empty_table_is_told(text: str, empty: bool, over: bool) -> None:
    (news,) = facts(statement_row(3, 50, text)).news

    assert (news.empty, news.over) == (empty, over)


@dataclass(eq=False)
class Noting:
    """MySQL's statements; notes of which it was asked what they make."""

    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(MYSQL, name)

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        self.asked.append(statement)
        return MYSQL.makes_anew(statement, there=there)


def test_how_a_table_begins_is_asked_of_statements_that_make_one_and_of_no_others() -> None:
    """A snapshot describes each table by its CREATE, and to read a long one takes milliseconds."""
    created, altered = "CREATE TABLE t (id INT)", "ALTER TABLE t ADD c INT"
    rows = [statement_row(3, 50, created), statement_row(4, 60, altered, "ALTER")]
    described_ = statement_row(5, 70, "CREATE TABLE t (id INT, c INT)") | {"snapshot": "true"}
    dialect = Noting()

    gather_stats(_tallied([[*rows, described_]]), {}, {"shop": replace(READING, dialect=dialect)})

    assert dialect.asked == [created] * 3, "where there was none, and where there was one"


def test_the_first_row_of_an_altered_shard_says_nothing() -> None:
    assert (
        facts(statement_row(3, 50, "ALTER TABLE t ADD c INT", "ALTER"), slim_row(1, 30)).firsts
        == {}
    )


def test_a_statement_is_told_though_it_describes_no_table_but_not_a_snapshot_s() -> None:
    """`skip.unparseable.ddl` lets a collector send what it could not read without any table."""
    notes = [json.dumps({"ddl": f"ALTER TABLE t FROB {n}"}) for n in range(2)]
    rows = [
        slim_row(
            n, 50, topic="shop", op="ddl", table=None, shard=None, snapshot=snapshot, note=notes[n]
        )
        for n, snapshot in enumerate([None, "true"])
    ]

    found = facts(*rows)

    assert (found.news, found.statements) == ((), 2)
    assert found.texts == (("shop", "ALTER TABLE t FROB 0"),)


def test_a_database_that_is_dropped_is_told_and_one_that_is_made_is_not() -> None:
    """Its tables go with it, and of none is it told."""
    texts = ["CREATE DATABASE shop", "DROP DATABASE shop"]
    rows = [
        slim_row(
            n, 50 + n, topic="s", op="ddl", table=None, shard=None, note=json.dumps({"ddl": text})
        )
        for n, text in enumerate(texts)
    ]

    assert facts(*rows).databases == (DroppedDatabase("shop", Order(1, 1, 51), "shop", texts[1]),)


def test_the_highest_heartbeat_number_is_kept() -> None:
    beats = [slim_row(n, 10 + n, op="heartbeat", table=None, note=str(n)) for n in (3, 9, 4)]

    assert facts(*beats).heartbeats == {"shop": 9}


@pytest.mark.parametrize("note", [None, "", "x", "-3"])
def test_a_heartbeat_without_a_number_is_below_every_number(note: str | None) -> None:
    """And not taken for the first, which is 0."""
    beat = slim_row(1, 10, op="heartbeat", table=None, note=note)

    assert facts(beat).heartbeats == {"shop": -1}
    assert facts(beat, slim_row(2, 11, op="heartbeat", table=None, note="0")).heartbeats == {
        "shop": 0
    }


def test_an_empty_batch_has_no_facts() -> None:
    found = gather_stats([], orders_at({"shop/shop.db.t:0": Order(1, 1, 50)}), {})

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
        slim_row(
            n, pos, topic="shop", op="ddl", table=None, shard=None, snapshot=snapshot, note=note
        )
        for n, pos in enumerate((60, 50))
    ]

    assert facts(*rows).initial == found


# runs

PLACES = st.builds(
    Order, st.integers(1, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)
)


def update_rows(*said: tuple[str, Order | None]) -> pa.Table:
    """An update of each shard at each order, offset by offset."""
    plain = {"source": "shop", "topic": "t", "partition": 0, "op": "u", "origin": int(Origin.LIVE)}
    made = [
        {
            **plain,
            "offset": offset,
            "shard": shard,
            "table": shard.partition(".")[0],
            **{part: getattr(order, part, None) for part in ("epoch", "log", "pos", "row")},
        }
        for offset, (shard, order) in enumerate(said)
    ]
    return pa.Table.from_pylist(made, schema=SLIM)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.sampled_from(["a.1", "a.2", "b.1"]), st.none() | PLACES)))
def test_the_first_of_a_shard_is_its_lowest_order(said: list[tuple[str, Order | None]]) -> None:
    found = tally_rows(update_rows(*said)).firsts

    placed = {
        shard: [order for name, order in said if name == shard and order] for shard, _ in said
    }
    assert found == {f"shop/{shard}": min(orders) for shard, orders in placed.items() if orders}


def test_shards_of_one_table_are_counted_together() -> None:
    order = Order(1, 1, 1)

    found = tally_rows(update_rows(("a.1", order), ("b.1", order), ("a.2", order)))

    assert found.tables == {"a": 2, "b": 1}
    assert found.shards == {"shop/a.1": "a", "shop/a.2": "a", "shop/b.1": "b"}


@pytest.mark.parametrize(
    ("snapshots", "found"),
    [
        pytest.param(("true",), {"shop": Order(1, 0, 5, 0)}, id="read"),
        pytest.param(("last", "first"), {"shop": Order(1, 0, 6, 0)}, id="the newest of two"),
        pytest.param((None, AROUND, "incremental"), {}, id="written, or read beside the stream"),
    ],
)
def test_a_snapshot_of_the_whole_source_reads_the_heartbeat(
    snapshots: tuple[str | None, ...], found: dict[str, Order]
) -> None:
    orders = [("sluice.heartbeat", Order(1, 0, 5 + n)) for n, _ in enumerate(snapshots)]
    beats = update_rows(*orders).to_pylist()
    for beat, snapshot in zip(beats, snapshots, strict=True):
        beat.update(op=str(Op.HEARTBEAT), table=None, snapshot=snapshot, note="7")

    assert tally_rows(pa.Table.from_pylist(beats, schema=SLIM)).wholes == found


@pytest.mark.parametrize(
    ("snapshot", "origin", "highest", "followed"),
    [
        pytest.param(None, Origin.LIVE, 9, [7, 9], id="out of the log"),
        pytest.param("incremental", Origin.SNAPSHOT, 7, [7], id="read beside the log"),
        pytest.param(None, Origin.REPLAY, 7, [7], id="sent again from elsewhere"),
        pytest.param(
            "last", Origin.SNAPSHOT, 9, [7], id="of a snapshot, before which all is in it"
        ),
    ],
)
def test_a_heartbeat_that_was_read_beside_the_log_tells_nothing_of_it(
    snapshot: str | None, origin: Origin, highest: int, followed: list[int]
) -> None:
    """A bootstrap reads it as the server has it now, while the log may be hours behind."""
    one, other = update_rows(
        ("sluice.heartbeat", Order(1, 0, 5)), ("sluice.heartbeat", Order(1, 0, 6))
    ).to_pylist()
    one.update(op=str(Op.HEARTBEAT), table=None, note="7")
    other.update(op=str(Op.HEARTBEAT), table=None, note="9", snapshot=snapshot, origin=int(origin))

    told = tally_rows(pa.Table.from_pylist([one, other], schema=SLIM))

    assert told.heartbeats == {"shop": highest}
    assert [beat.number for beat in told.landed_heartbeats["shop"]] == followed


# schema events

Step = tuple[int, str]  # where in the log, and what is told
NAME = "s/public.t"


def statement_rows(*steps: Step, op: Op = Op.DDL, schema_id: int | None = 1) -> pa.RecordBatch:
    told = [
        {
            "source": "s",
            "shard": "public.t",
            "op": str(op),
            "order": {"epoch": 1, "log": log, "pos": 0, "row": 0},
            "after": text,
            "schema_id": schema_id,
        }
        for log, text in steps
    ]
    return pa.RecordBatch.from_pylist(told, CHANGES)


def statements(*steps: Step) -> list[dict[str, object]]:
    place = {"epoch": 1, "pos": 0, "row": 0, "source": "s", "shard": "public.t", "schema_id": 1}
    return [{**place, "log": log, "note": text} for log, text in steps]


def land_all(*batches: Sequence[Step]) -> list[list[Step]]:
    """What is left of each batch, which one task reads in as many parts as it has steps."""
    known: dict[str, DescribedSchema] = {}
    left = []
    for steps in batches:
        found = list(SchemaDeduplicator(known).among(statement_rows(step) for step in steps))
        told = [row for one in found for row in one.to_pylist()]
        left.append([(row["order"]["log"], row["after"]) for row in told])
        known = merge_schemas(known, find_newest_schemas(statements(*left[-1])))
    return left


@pytest.mark.parametrize(
    ("batches", "left"),
    [
        pytest.param([[(1, "a")], [(2, "a")]], [[(1, "a")], []], id="said again"),
        pytest.param([[(1, "a"), (2, "b")], [(3, "b")]], [[(1, "a"), (2, "b")], []], id="new"),
        pytest.param([[(1, "a"), (2, "b"), (3, "a")]], [[(1, "a"), (2, "b"), (3, "a")]], id="back"),
        pytest.param(
            [[(1, "a"), (9, "b")], [(5, "a"), (9, "b")]],
            [[(1, "a"), (9, "b")], [(5, "a")]],
            id="a partition that is behind",
        ),
        pytest.param([[(9, "b")], [(5, "b")]], [[(9, "b")], [(5, "b")]], id="older and alike"),
        pytest.param(
            [[(1, "a")], [(9, "a"), (5, "b"), (10, "a")]],
            [[(1, "a")], [(5, "b"), (9, "a")]],
            id="back again, told before what was between",
        ),
        pytest.param(
            [[(2, "a"), (3, "a"), (1, "a")]],
            [[(1, "a"), (3, "a")]],
            id="the first and the last, where others may tell what was between",
        ),
    ],
)
def test_columns_in_force_are_not_landed_again(
    batches: list[list[Step]], left: list[list[Step]]
) -> None:
    assert land_all(*batches) == left


def test_statements_and_rows_all_stay() -> None:
    for one in (
        statement_rows((1, "a"), (2, "a"), schema_id=None),
        statement_rows((1, "a"), (2, "a"), op=Op.CREATE),
    ):
        assert list(SchemaDeduplicator({}).among([one])) == [one]


def test_of_what_several_tasks_tell_only_news_is_judged() -> None:
    known = find_newest_schemas(statements((1, "a")))
    alter = {**statements((4, "ALTER"))[0], "schema_id": None}
    told = [*statements((5, "b"), (9, "a")), *statements((7, "b"), (8, "a"), (3, "a")), alter]

    left = drop_repeated(told, known)

    assert [(row["log"], row["note"]) for row in left] == [(4, "ALTER"), (5, "b"), (8, "a")]


def test_columns_that_another_task_knows_to_have_been_others_between_are_in_force_again() -> None:
    told = [
        row
        for steps in ([(2, "a"), (10, "a")], [(5, "b")])
        for found in SchemaDeduplicator({}).among(statement_rows(step) for step in steps)
        for row in statements(*((one["order"]["log"], one["after"]) for one in found.to_pylist()))
    ]

    left = drop_repeated(told, find_newest_schemas(statements((1, "a"))))

    assert [(row["log"], row["note"]) for row in left] == [(5, "b"), (10, "a")]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_in_whichever_order_tasks_tell_columns_are_in_force_from_where_they_came_back(
    order: Sequence[int],
) -> None:
    tasks: list[list[Step]] = [[(1, "a"), (10, "a")], [(3, "a"), (7, "a")], [(5, "b")]]
    told = [
        row
        for steps in (tasks[n] for n in order)
        for found in SchemaDeduplicator({}).among(statement_rows(step) for step in steps)
        for row in statements(*((one["order"]["log"], one["after"]) for one in found.to_pylist()))
    ]

    left = drop_repeated(told, {})

    assert [(row["log"], row["note"]) for row in left] == [(1, "a"), (5, "b"), (7, "a")]


def test_columns_that_come_back_in_another_task_of_the_batch_are_in_force_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "LEAST", 1)
    harness = LandingHarness(tmp_path, names="a", dialect=POSTGRES)
    topic = harness.topics.held.setdefault("a.public.t", [row_message("t", 100, 1)])
    harness.land()
    for lsn, more in ((200, (MORE,)), (300, (MORE,)), (400, ()), (500, ())):
        topic.append(row_message("t", lsn, lsn, "false", *more))
    harness.land()

    readings = {feed.settings.name: feed.reading for feed in harness.loop.feeds}
    log = harness.log()
    log.look()
    told = log.schema_changes(-1)
    history = History(*(c for _, order, text in told for c in readings["a"].read(text, order)[1]))
    width = {
        lsn: len(found.columns)
        for lsn in (100, 200, 300, 400, 500)
        if (found := history.at("public.t", Order(1, lsn - 50, lsn, 1))) is not None
    }
    assert harness.tasks[-1] > 1
    assert width == {100: 1, 200: 2, 300: 2, 400: 1, 500: 1}
    newest_told = history.newest("public.t")
    assert newest_told is not None
    assert newest_told.order == Order(1, 350, 400, 1)
    assert harness.checkpoint.schemas["a/public.t"].order == Order(1, 350, 400, 1)


def test_the_mark_keeps_the_newest() -> None:
    place = {"epoch": 1, "pos": 0, "row": 0, "source": "s", "shard": "public.t"}
    told = find_newest_schemas(
        [
            {**place, "log": 2, "note": "b", "schema_id": 1},
            {**place, "log": 1, "note": "a", "schema_id": 1},
            {**place, "log": 3, "note": "ALTER ..", "schema_id": None},
        ]
    )
    old = {
        NAME: DescribedSchema(Order(1, 1, 0), "x"),
        "s/public.u": DescribedSchema(Order(1, 9, 0), "y"),
    }

    assert told[NAME].order == Order(1, 2, 0)
    assert merge_schemas(old, told) == {**old, **told}
    assert merge_schemas(told, old) == {**old, **told}


OLDER, NEWER = Order(1, 2, 3), Order(1, 2, 4)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        pytest.param(
            SnapshotRows(OLDER, 2, ended=False, torn=True),
            SnapshotRows(OLDER, 3, ended=True),
            SnapshotRows(OLDER, 5, ended=True, torn=True),
            id="of one snapshot",
        ),
        pytest.param(
            SnapshotRows(OLDER, 2, ended=True, torn=True),
            SnapshotRows(NEWER, 3, ended=False),
            SnapshotRows(NEWER, 3, ended=False),
            id="the newer of two",
        ),
        pytest.param(
            SnapshotRows(OLDER, 2, ended=False),
            SnapshotRows(replace(OLDER, epoch=2), 3, ended=True),
            SnapshotRows(replace(OLDER, epoch=2), 3, ended=True, torn=True),
            id="of one that goes on in a later epoch",
        ),
    ],
)
def test_rows_of_a_snapshot_add_up_in_either_order(
    one: SnapshotRows, other: SnapshotRows, both: SnapshotRows
) -> None:
    """A base must never come of one that is parted by an epoch."""
    assert one.with_rows(other) == other.with_rows(one) == both
