"""Snapshots that come again, of two servers, without their beginning, or below changes."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checks.blocks import is_waivable
from pipeline.backfill_state import Backfill
from pipeline.checkpoint import Checkpoint, Existence, Gap, OpenSnapshot
from pipeline.formats.format import AROUND
from pipeline.landing.bases import detect_repeated_snapshots, detect_split_snapshots, with_overlaps
from pipeline.landing.batch_stats import (
    BatchStats,
    SnapshotRows,
    UnreadChanges,
    gather_stats,
    tally_rows,
)
from pipeline.landing.task import SLIM
from pipeline.model import Op, Order, Origin, Shard, SnapshotAgain
from pipeline.sources.postgres.dialect import POSTGRES
from tests.builders import batch_context, orders_at
from tests.builders.harness import LandingHarness, load_gaps, place, record
from tests.pipeline.landing.test_next_checkpoint import step
from tests.pipeline.landing.test_unbased_tables import heartbeat_message, message
from tests.pipeline.reading import readings
from tests.pipeline.schema_messages import described
from tests.pipeline.schema_messages import message as statement

AT = datetime(2026, 11, 23, 9, tzinfo=UTC)
T, U = "a/public.t", "a/public.u"
BASE, ANEW = Order(1, 500, 500, 1), Order(1, 900, 900, 1)
KNOWN = Checkpoint(
    "main",
    7,
    shards={Shard.parse(T): "public.t", Shard.parse(U): "public.u"},
    bases={Shard.parse(T): BASE, Shard.parse(U): BASE},
)


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    """Two tables with their bases, landed."""
    made = LandingHarness(tmp_path, names="a", dialect=POSTGRES)
    for name in ("t", "u"):
        made.topics.held[f"a.public.{name}"] = [message(name, 500, 1, "last_in_data_collection")]
    made.topics.held["a.sluice.heartbeat"] = [
        heartbeat_message(500, 1),
        heartbeat_message(600, 2, "false"),
    ]
    made.land()
    assert made.checkpoint.bases.keys() == {Shard.parse(T), Shard.parse(U)}
    assert (made.checkpoint.again, made.checkpoint.gaps) == ({}, {})
    return made


def read_again(harness: LandingHarness, *tables: str, lsn: int = 900) -> None:
    for name in tables:
        rows = harness.topics.held[f"a.public.{name}"]
        rows.append(message(name, lsn, 1, "last_in_data_collection"))
    harness.topics.held["a.sluice.heartbeat"].append(heartbeat_message(lsn, number(harness)))


def number(harness: LandingHarness) -> int:
    """The number after the highest heartbeat that was sent."""
    sent = (json.loads(value) for _, value in harness.topics.held["a.sluice.heartbeat"])
    return 1 + max(int(one["payload"]["after"]["n"]) for one in sent)


def live(harness: LandingHarness, lsn: int) -> None:
    harness.topics.held["a.sluice.heartbeat"].append(
        heartbeat_message(lsn, number(harness), "false")
    )
    harness.land()


def test_a_table_without_a_row_in_it_stays_short_and_the_others_are_not(
    harness: LandingHarness,
) -> None:
    read_again(harness, "t")
    harness.land()
    assert harness.short() == [(T, U)]

    live(harness, 1000)

    assert harness.short() == [(U,)]
    assert harness.checkpoint.lost[Shard.parse(T)] == ANEW
    assert harness.checkpoint.again["a"] == SnapshotAgain(
        Order(1, 900, 900), harness.now, 1, 2, False
    )


def test_what_is_whole_in_the_same_batch_is_no_gap_and_yet_lost_what_was_before(
    harness: LandingHarness,
) -> None:
    """No image of a cut between is right."""
    read_again(harness, "t", "u")
    live(harness, 1000)

    assert harness.short() == []
    assert harness.checkpoint.lost == {Shard.parse(T): ANEW, Shard.parse(U): ANEW}
    assert harness.checkpoint.again["a"].tables == 2


def test_it_is_told_once_and_the_next_one_again(harness: LandingHarness) -> None:
    read_again(harness, "t", "u")
    live(harness, 1000)
    harness.topics.held["a.sluice.heartbeat"].append(heartbeat_message(900, 3))
    harness.land()
    first = harness.checkpoint.again["a"]
    assert first.batch == 1

    read_again(harness, "t", "u", lsn=2000)
    harness.land()
    assert harness.short() == [(T, U)]
    live(harness, 2100)
    assert harness.short() == []
    assert harness.checkpoint.again["a"].order == Order(1, 2000, 2000)


def read_past(harness: LandingHarness) -> None:
    """Let the collector have sent all from before the newest change, and land that."""
    harness.server.log = 2_000
    live(harness, 1100)
    live(harness, 1200)


@pytest.mark.parametrize(
    "batches", [pytest.param(1, id="in one batch"), pytest.param(2, id="in two batches")]
)
def test_f102_a_snapshot_of_single_tables_is_no_base_and_deletes_nothing(
    harness: LandingHarness, batches: int
) -> None:
    """It may have been asked for with a condition on the rows, and no event shows that."""
    rows = harness.topics.held["a.public.t"]
    rows += [message("t", 900, key, kind) for key, kind in ((7, "true"), (8, "last"))]
    if batches == 2:
        harness.land()
    live(harness, 1000)
    assert harness.checkpoint.snaps.keys() == {Shard.parse(T)}, (
        "the heartbeat's rows of it may still come"
    )

    read_past(harness)

    assert (harness.checkpoint.bases[Shard.parse(T)], harness.checkpoint.snaps) == (BASE, {})
    assert (harness.short(), harness.checkpoint.lost, harness.checkpoint.again) == ([], {}, {})
    assert [row["key"] for row in harness.landed(Op.READ)][-2:] == [
        '["a","public.t","7"]',
        '["a","public.t","8"]',
    ]
    assert not [row for row in harness.landed(Op.SETTLE) if row["order"]["pos"] == 900]


def signal(harness: LandingHarness, table: str, *keys: int) -> None:
    """Read some rows of *table* and the heartbeat's table, as a signal with a condition does."""
    rows = harness.topics.held.setdefault(f"a.public.{table}", [])
    rows += [message(table, 900, key, "true", signalled=True) for key in keys[:-1]]
    rows.append(message(table, 900, keys[-1], "last_in_data_collection", signalled=True))
    newest = number(harness) - 1
    harness.topics.held["a.sluice.heartbeat"].append(
        heartbeat_message(900, newest, "last", signalled=True)
    )


def bases_given(harness: LandingHarness) -> list[tuple[str, int]]:
    return [
        (row["shard"], row["order"]["pos"]) for row in harness.landed(Op.SETTLE, more=["shard"])
    ]


@pytest.mark.parametrize("tables", [("t",), ("t", "u")], ids=["one table", "all tables"])
def test_f102_a_signal_that_names_the_table_of_heartbeats_gives_no_base_and_opens_no_gap(
    harness: LandingHarness, tables: tuple[str, ...]
) -> None:
    before = bases_given(harness)
    for table in tables:
        signal(harness, table, 7, 8)
    live(harness, 1000)
    read_past(harness)

    assert bases_given(harness) == before
    assert (harness.checkpoint.bases[Shard.parse(T)], harness.checkpoint.snaps) == (BASE, {})
    assert (harness.short(), harness.checkpoint.lost, harness.checkpoint.again) == ([], {}, {})
    assert '["a","public.t","8"]' in [row["key"] for row in harness.landed(Op.READ)]


@pytest.mark.parametrize("first", [True, False], ids=["behind the first snapshot", "without one"])
def test_f102_a_signal_that_lands_before_the_first_base_gives_none(
    tmp_path: Path, *, first: bool
) -> None:
    harness = LandingHarness(tmp_path, names="a", dialect=POSTGRES)
    harness.topics.held["a.sluice.heartbeat"] = [heartbeat_message(600, 2, "false")]
    if first:
        harness.topics.held["a.sluice.heartbeat"].insert(0, heartbeat_message(500, 1))
        for name in ("t", "u"):
            rows = [message(name, 500, 1, "true"), message(name, 500, 2, "last_in_data_collection")]
            harness.topics.held[f"a.public.{name}"] = rows
    signal(harness, "t", 7, 8)
    live(harness, 1000)
    read_past(harness)

    expected = [("public.t", 500), ("public.u", 500)] if first else []
    assert sorted(bases_given(harness)) == expected
    assert harness.checkpoint.snaps == {}


def test_f102_a_signal_takes_no_base_from_a_table_whose_first_rows_are_still_landing(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path, names="a", dialect=POSTGRES, most=6)
    held = harness.topics.held
    held["a.public.t"] = [message("t", 500, 1, "last_in_data_collection")]
    held["a.public.u"] = [message("u", 500, key, "true") for key in range(20)]
    held["a.public.u"].append(message("u", 500, 20, "last_in_data_collection"))
    held["a.sluice.heartbeat"] = [heartbeat_message(500, 1), heartbeat_message(600, 2, "false")]
    signal(harness, "t", 7)
    held["a.sluice.heartbeat"].append(heartbeat_message(950, 3, "false"))
    for _ in range(12):
        harness.land()
    read_past(harness)

    assert sorted(bases_given(harness)) == [("public.t", 500), ("public.u", 500)]
    assert harness.short() == []


def mysql_read(harness: LandingHarness, pos: int, table: str, *keys: int, server: int = 0) -> None:
    """The description and the rows of a table, as a snapshot of MySQL or a signal reads them."""
    at = place(table, pos, server_id=server, snapshot="true")
    text = f"CREATE TABLE {table} (id INT)"
    ddl = statement(text, described(text, table, "id BIGINT!"), source=at)
    harness.topics.held.setdefault("a", []).append((b"{}", ddl.encode()))
    for key in keys:
        kind = "last_in_data_collection" if key == keys[-1] else "true"
        value = {"after": {"id": key}, "source": {**at, "snapshot": kind}, "op": "r"}
        harness.topics.held.setdefault(f"a.db.{table}", []).append(record(key, value))


def mysql_heartbeat(harness: LandingHarness, pos: int, server: int) -> None:
    at = place("heartbeat", pos, database="sluice", snapshot="last", server_id=server)
    value = {"after": {"id": "a", "source": "a", "n": 1}, "source": at, "op": "r"}
    harness.topics.held.setdefault("a.sluice.heartbeat", []).append(record("a", value))


@pytest.mark.parametrize("batches", [1, 2])
def test_f102_a_signal_to_mysql_takes_no_place_of_a_snapshot_that_is_landing(
    tmp_path: Path, batches: int
) -> None:
    """Its own snapshot is of one table and of the heartbeat's, with a condition."""
    harness = LandingHarness(tmp_path, names="a")
    harness.topics.say("a", 90, "SET character_set_server=utf8mb4")
    for pos, keys in ((100, (1, 2, 3)), (1000, (1, 2))):
        at = place("", pos, snapshot="true")
        made = statement("DROP DATABASE IF EXISTS `db`", source=at)
        harness.topics.held["a"].append((b"{}", made.encode()))
        for table in ("t", "u"):
            mysql_read(harness, pos, table, *keys)
        mysql_heartbeat(harness, pos, 0)
        if pos == 100:
            harness.topics.write_heartbeat("a", 2, pos=200)
            harness.land()
    if batches == 2:
        harness.land()
    mysql_read(harness, 1300, "t", 1, server=1)
    mysql_heartbeat(harness, 1300, 1)
    harness.server.end = 10 * 2**32
    for number_ in (3, 4, 5):
        harness.topics.write_heartbeat("a", number_, pos=1400 + number_)
        harness.land()

    given = [("db.t", 100), ("db.t", 1000), ("db.u", 100), ("db.u", 1000)]
    assert sorted(bases_given(harness)) == given
    assert (harness.short(), harness.checkpoint.snaps) == ([], {})
    assert harness.checkpoint.again["a"].order.pos == 1000


def test_f102_a_table_that_is_added_later_needs_more_than_a_snapshot_of_it_alone(
    harness: LandingHarness,
) -> None:
    harness.topics.held["a.public.v"] = [message("v", 900, 1, "last")]
    live(harness, 1000)
    read_past(harness)

    assert harness.checkpoint.bases.keys() == {Shard.parse(T), Shard.parse(U)}
    assert harness.checkpoint.snaps == {}


def test_a_snapshot_that_came_while_its_server_was_replaced_is_no_base(
    harness: LandingHarness,
) -> None:
    """As of its newer rows it would delete the older ones from the mirror."""
    harness.topics.held["a.public.t"].append(message("t", 900, 1, "first_in_data_collection"))
    harness.server.identity = "promoted"
    harness.land()

    read_again(harness, "t")
    live(harness, 1000)

    assert [row["order"]["epoch"] for row in harness.landed(Op.READ)[-2:]] == [1, 2]
    assert (harness.checkpoint.bases[Shard.parse(T)], harness.checkpoint.snaps) == (BASE, {})
    assert sorted(harness.short()) == [(T,), (T, U), (T, U)]  # no GTIDs: nor is the old end shown

    read_again(harness, "t", "u", lsn=1100)
    live(harness, 1200)
    assert (harness.checkpoint.bases[Shard.parse(T)], harness.short()) == (
        Order(2, 1100, 1100, 1),
        [],
    )


def snapshot_again(before: Checkpoint) -> Checkpoint:
    return detect_repeated_snapshots(
        replace(before, batch=8), batch_context(before, stats=BatchStats(wholes={"a": ANEW}), at=AT)
    )


def gap(shard: str) -> dict[str, Gap]:
    return {"g": Gap("g", "g", 0, 0, 0, "lost", shards=(shard,))}


@pytest.mark.parametrize(
    ("before", "tables"),
    [
        pytest.param(KNOWN, (T, U), id="all"),
        pytest.param(
            replace(KNOWN, bases={Shard.parse(T): BASE}), (T,), id="not one that is first read"
        ),
        pytest.param(replace(KNOWN, bases={Shard.parse(T): ANEW}), None, id="it is their first"),
        pytest.param(
            replace(KNOWN, existing={Shard.parse(U): Existence(BASE, there=False)}),
            (T,),
            id="not what is gone",
        ),
        pytest.param(
            replace(KNOWN, shards={Shard.parse(T): "public.t", Shard.parse(U): None}),
            (T,),
            id="not what is ignored",
        ),
        pytest.param(
            replace(
                KNOWN, shards={Shard.parse("b/public.t"): "t"}, bases={Shard("b", "public.t"): BASE}
            ),
            None,
            id="not of another source",
        ),
    ],
)
def test_tables_that_had_a_base_and_are_there_are_short(
    before: Checkpoint, tables: tuple[str, ...] | None
) -> None:
    found = load_gaps(snapshot_again(before))

    assert [one.shards for one in found] == ([] if tables is None else [tables])
    assert all(is_waivable(one.id) for one in found)


def test_it_was_asked_for_where_something_was_lost_before() -> None:
    assert not snapshot_again(KNOWN).again["a"].asked
    assert snapshot_again(replace(KNOWN, gaps=gap(T))).again["a"].asked
    assert not snapshot_again(replace(KNOWN, gaps=gap("b/public.t"))).again["a"].asked


# snapshots of two servers

OLD, NEW = Order(1, 900, 5), Order(2, 900, 5)  # of the log's 900th file
SHARD = "s/db.t"
HALF = Checkpoint(
    "main",
    3,
    shards={Shard.parse(SHARD): "db.t"},
    snaps={Shard.parse(SHARD): OpenSnapshot(OLD, 3, rows=2)},
)
ROWS = SnapshotRows(NEW, 3, ended=True)


def torn(before: Checkpoint = HALF, rows: SnapshotRows = ROWS) -> Checkpoint:
    return detect_split_snapshots(
        replace(before, batch=4), batch_context(before, stats=BatchStats(snapshots={SHARD: rows}))
    )


def test_it_is_told_with_the_place_that_a_base_must_be_above() -> None:
    (gap,) = load_gaps(torn())

    assert (gap.shards, gap.above, gap.batch) == ((SHARD,), NEW, 4)
    assert gap.why.endswith("above 900:5")
    assert is_waivable(gap.id)


@pytest.mark.parametrize(
    ("before", "rows"),
    [
        pytest.param(replace(HALF, snaps={}), ROWS, id="all of it in one epoch"),
        pytest.param(HALF, replace(ROWS, order=Order(1, 900, 5)), id="it goes on"),
        pytest.param(HALF, replace(ROWS, order=Order(2, 901, 5)), id="another one"),
        pytest.param(replace(HALF, shards={Shard.parse(SHARD): None}), ROWS, id="of no table"),
    ],
)
def test_others_are_no_gap(before: Checkpoint, rows: SnapshotRows) -> None:
    assert torn(before, rows).gaps == {}


@pytest.mark.parametrize(
    ("order", "open_"),
    [
        pytest.param(Order(2, 3, 7), True, id="the new server's log is young"),
        pytest.param(Order(2, 901, 7), False, id="above it"),
    ],
)
def test_only_a_base_above_it_closes_the_gap(order: Order, *, open_: bool) -> None:
    """Rows of the old server stand above what the new one has written, and would win."""
    read = BatchStats(snapshots={SHARD: SnapshotRows(order, 3, ended=True)})
    above = BatchStats(high=orders_at({"s/s.db.t:0": replace(order, pos=order.pos + 1)}))

    made = step(step(torn(), read), above)

    assert bool(made.gaps) is open_


# topics without their beginning


@pytest.mark.parametrize(("deleted", "based"), [(0, True), (1, False), (4, False)])
def test_a_snapshot_whose_first_rows_were_deleted_before_they_were_landed_is_no_base(
    tmp_path: Path, deleted: int, *, based: bool
) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.write_heartbeat("a", 1, pos=50)
    harness.topics.snapshot("a", 100, 4)
    harness.topics.deleted["a.db.t"] = deleted
    harness.topics.put("a", 200, "later")
    harness.land()
    assert (harness.checkpoint.bases != {}) is based

    harness.topics.snapshot("a", 300, 4)
    harness.topics.put("a", 400, "last")
    harness.land()

    assert harness.checkpoint.bases[Shard("a", "db.t")].pos == 300
    assert not harness.checkpoint.snaps


# changes below a snapshot

NAME = "shop/public.t"
SNAPSHOT = Order(1, 500, 500, 1)
LATER = Order(1, 700, 700, 1)
MARK = Checkpoint("shop", 0)


def slim_row(offset: int, lsn: int, **changed: Any) -> dict[str, Any]:
    plain = {
        "source": "shop", "topic": "p.public.t", "partition": 0, "offset": offset,
        "table": "public.t", "shard": "public.t", "op": "c", "origin": int(Origin.LIVE),
        "epoch": 1, "log": lsn, "pos": lsn, "row": 1, "snapshot": AROUND, "note": None,
    }  # fmt: skip
    return plain | changed


READ = slim_row(0, 500, op="r", origin=int(Origin.SNAPSHOT), snapshot="last")


def facts(*runs: list[dict[str, Any]]) -> BatchStats:
    told = [tally_rows(pa.Table.from_pylist(rows, schema=SLIM)) for rows in runs]
    return gather_stats(told, {}, readings("shop"))


def test_all_rows_of_a_transaction_that_was_open_while_the_snapshot_was_made_are_named() -> None:
    found = with_overlaps(
        facts([READ, slim_row(1, 400)], [slim_row(2, 410), slim_row(3, 600)]), MARK
    )

    ids = tuple(f"p.public.t:0:{offset}" for offset in (1, 2, 3))
    assert found.errors == {NAME: UnreadChanges("shop", "public.t", 3, ids)}


def test_a_delete_at_the_place_of_the_snapshot_is_below_it() -> None:
    assert with_overlaps(facts([READ, slim_row(1, 500, op="d", row=0)]), MARK).errors


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([READ, slim_row(1, 501)], id="above it"),
        pytest.param(
            [READ, slim_row(1, 400, snapshot=None)], id="sent again, or of a partition behind"
        ),
        pytest.param([READ, slim_row(1, 400, epoch=2)], id="of another log"),
        pytest.param([slim_row(1, 400)], id="of a table without a snapshot"),
        pytest.param([READ, slim_row(1, 400, table=None)], id="of a shard that is ignored"),
    ],
)
def test_other_changes_are_left_alone(rows: list[dict[str, Any]]) -> None:
    found = facts(rows)

    assert with_overlaps(found, MARK) is found


@pytest.mark.parametrize(
    ("checkpoint", "quarantined"),
    [
        pytest.param(
            Checkpoint("shop", 0, snaps={Shard.parse(NAME): OpenSnapshot(SNAPSHOT, 0)}),
            True,
            id="it still comes",
        ),
        pytest.param(
            Checkpoint("shop", 0, bases={Shard.parse(NAME): SNAPSHOT}), True, id="it is the base"
        ),
        pytest.param(
            Checkpoint(
                "shop",
                0,
                bases={Shard.parse(NAME): SNAPSHOT},
                backfills={
                    Shard.parse(NAME): Backfill("1", Origin.SNAPSHOT, SNAPSHOT, "s", 0, done=0)
                },
            ),
            False,
            id="the base was read again, while older changes were on their way",
        ),
        pytest.param(
            Checkpoint(
                "shop",
                0,
                bases={Shard.parse(NAME): SNAPSHOT},
                backfills={
                    Shard.parse(NAME): Backfill("2", Origin.REPAIR, LATER, "s", 0, base=SNAPSHOT)
                },
            ),
            False,
            id="and rows were repaired since",
        ),
    ],
)
def test_a_snapshot_of_a_batch_before_counts_too(checkpoint: Checkpoint, quarantined: bool) -> None:
    assert (NAME in with_overlaps(facts([slim_row(1, 400)]), checkpoint).errors) is quarantined


def change(lsn: int, key: int, **changed: str) -> tuple[bytes, bytes]:
    place = {"connector": "postgresql", "schema": "public", "table": "t", "lsn": lsn}
    source = {**place, "sequence": f'[null,"{lsn}"]', "snapshot": "false"} | changed
    op = "c" if source["snapshot"] == "false" else "r"
    value = {"op": op, "before": None, "after": {"id": key}, "source": source}
    return record(key, value)


@pytest.mark.parametrize(("lsn", "quarantined"), [(400, True), (600, False)])
def test_a_first_transaction_is_quarantined_when_it_lands_and_not_lost(
    tmp_path: Path, lsn: int, *, quarantined: bool
) -> None:
    harness = LandingHarness(tmp_path, names="a")
    topic = harness.topics.held.setdefault("a.public.t", [])
    topic += [change(500, 1, snapshot="first"), change(500, 2, snapshot="last")]
    harness.land()

    topic += [change(lsn, 3), change(700, 4, sequence='["650","700"]')]
    harness.land()

    assert harness.checkpoint.bases == {Shard("a", "public.t"): Order(1, 500, 500, 1)}
    told = {"public.t": ("a.public.t:0:2@1",)} if quarantined else {}
    assert harness.checkpoint.quarantined == told
