from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pipeline.checkpoint import (
    MAX_NAMED_CHANGES,
    Checkpoint,
    Epoch,
    EpochStart,
    Existence,
    Gap,
    OpenSnapshot,
    active_shards,
)
from pipeline.landing.bases import Settled
from pipeline.landing.batch_stats import NAMED, BatchStats, SchemaNews, SnapshotRows, UnreadChanges
from pipeline.landing.listing import TopicNames
from pipeline.landing.next_checkpoint import next_checkpoint
from pipeline.landing.plan import Plan
from pipeline.model import (
    Acknowledged,
    Fence,
    Head,
    Order,
    PartitionEnd,
    Shard,
    ShardId,
    SourcePartition,
    TopicPartition,
)
from pipeline.schema.history import SchemaChange
from pipeline.settings import Router, TableRule
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.position import binlog_position
from tests.builders import batch_context, orders_at, schema_news
from tests.builders.change_log import NOON
from tests.builders.harness import load_gaps
from tests.builders.values import by_shard

ROUTER = Router((TableRule(r"sluice\.heartbeat", "x", ignore=True),))
EPOCH = Epoch(1, "uuid", binlog_position(1, 100))
ACK = Acknowledged(binlog_position(1, 90))
OLD = Checkpoint(
    "main", 4, epochs={"s": EPOCH}, acknowledged={"s": Acknowledged(binlog_position(1, 50))}
)
END = {TopicPartition("s.db.t", 0): PartitionEnd(9)}
GAP = Gap("s.db.t:0:5", "s.db.t", 0, 5, 8, "deleted")
OPEN = f"{GAP.id}@5"  # once the batch after OLD has landed


def names_of(topic: str) -> TopicNames | None:
    """Of sources that are called as their topics begin."""
    source = topic.partition(".")[0]
    return TopicNames(source, source, frozenset({f"{source}.transaction"}))


def step(
    checkpoint: Checkpoint = OLD,
    facts: BatchStats | None = None,
    gaps: tuple[Gap, ...] = (),
    **more: Any,
) -> Checkpoint:
    epochs, acknowledged = more.pop("epochs", None), more.pop("acknowledged", {})
    context = batch_context(
        checkpoint,
        stats=facts or BatchStats(),
        epochs=epochs,
        starts=more.pop("starts", checkpoint.starts),
        **{"router": ROUTER} | more,
    )
    chosen = Plan({}, END, gaps, capped=False)
    return next_checkpoint(context, chosen, acknowledged=acknowledged, names_of=names_of)[0]


def planned(
    checkpoint: Checkpoint, chosen: Plan, facts: BatchStats | None = None
) -> tuple[Checkpoint, tuple[Settled, ...]]:
    """The mark after a batch of that plan, and the bases that it settles."""
    context = batch_context(checkpoint, stats=facts or BatchStats(), router=ROUTER)
    return next_checkpoint(context, chosen, acknowledged={}, names_of=names_of)


def test_what_a_trimmed_topic_still_holds_of_a_snapshot_is_remembered_as_a_part() -> None:
    chosen = Plan({}, END, (), capped=False, trimmed=frozenset({"s.db.t"}))
    snapshots = {
        "s/db.t": SnapshotRows(Order(1, 1, 9), 2, ended=True, topics=frozenset({"s.db.t"})),
        "s/db.u": SnapshotRows(Order(1, 1, 9), 2, ended=True, topics=frozenset({"s.db.u"})),
    }
    facts = BatchStats(snapshots=snapshots, high=orders_at({"s/s.db.u:0": Order(1, 1, 50)}))

    made, settled = planned(replace(OLD, trimmed=("s.db.v",)), chosen, facts)

    assert made.trimmed == ("s.db.t", "s.db.v")
    assert made.parts == {Shard("s", "db.t"): Order(1, 1, 9)}
    assert [str(one.shard) for one in settled] == ["s/db.u"]
    assert not made.snaps


def test_the_tables_of_a_batch_carry_its_number() -> None:
    checkpoint = step(replace(OLD, tables={"db.a": 1, "db.t": 2}), BatchStats(tables={"db.t": 9}))

    assert (checkpoint.batch, checkpoint.tables) == (5, {"db.a": 1, "db.t": 5})


def test_a_batch_that_changes_no_shard_keeps_the_very_maps_of_them() -> None:
    """Else each batch would compare all shards with those before."""
    shard, order = Shard("s", "db.t"), Order(1, 1, 3)
    orders, batches = {shard: order}, {shard: 3}
    own = {"bases": orders, "lost": orders, "based": batches, "complete": batches}
    checkpoint = replace(OLD, shards={shard: "db.t"}, existing=DROPPED, **own)  # type: ignore[arg-type]

    made = step(checkpoint, BatchStats(tables={"db.t": 9}, shards={"s/db.t": "db.t"}))

    for name in ("shards", "existing", *own):
        assert getattr(made, name) is getattr(checkpoint, name), name


def test_a_schema_change_without_rows_gives_its_mirror_something_to_do() -> None:
    change = SchemaChange("alter", "db.t", Order(1, 1, 5), None, "ALTER ...")

    facts = BatchStats(news=(SchemaNews("s", change, snapshot=False),))

    assert step(replace(OLD, shards={Shard.parse("s/db.t"): "db.t"}), facts).tables == {"db.t": 5}


def test_a_statement_about_a_table_that_is_not_captured_touches_no_mirror() -> None:
    made = SchemaChange("create", "db.x", Order(1, 1, 5), None, "CREATE TABLE x (id INT)")
    facts = BatchStats(news=(SchemaNews("s", made, snapshot=False, captured=False),))

    checkpoint = step(facts=facts)

    assert (checkpoint.tables, checkpoint.shards, checkpoint.bases) == ({}, OLD.shards, OLD.bases)


def test_a_renamed_table_has_the_base_of_the_table_it_was() -> None:
    checkpoint = replace(
        OLD, bases={Shard("s", "db.u"): Order(1, 1, 3)}, shards={Shard.parse("s/db.u"): "db.u"}
    )

    made = step(
        checkpoint,
        BatchStats(
            news=(
                schema_news("alter", 9, shard="db.x", previous="db.u", source="s"),
                schema_news("alter", 9, shard="db.y", previous="db.unknown", source="s"),
            )
        ),
    )
    left_out = step(
        checkpoint,
        BatchStats(
            news=(
                schema_news("alter", 9, shard="db.x", previous="db.u", source="s", captured=False),
            )
        ),
    )

    assert made.bases == {**checkpoint.bases, Shard("s", "db.x"): Order(1, 1, 3)}
    assert made.shards == {**checkpoint.shards, **by_shard({"s/db.x": "db.x", "s/db.y": "db.y"})}
    assert made.tables["db.x"] == 5
    assert left_out.bases == checkpoint.bases


@pytest.mark.parametrize(
    ("based", "captured", "bases", "listed"),
    [
        pytest.param(True, True, {"s/b.t"}, {"s/b.t"}, id="with a base"),
        pytest.param(False, True, set(), {"s/b.t"}, id="without one: blocked at once"),
        pytest.param(True, False, set(), set(), id="to a database that is not captured"),
    ],
)
def test_f117_a_table_renamed_to_another_database_is_listed_at_once(
    based: bool, captured: bool, bases: set[str], listed: set[str]
) -> None:
    text = "RENAME TABLE `a`.`t` TO `b`.`t`"
    former = MYSQL.renamed_from(text, ShardId("b", "t"))
    change = SchemaChange("alter", "b.t", Order(1, 1, 9), None, text, str(former))
    known = {Shard("s", "a.t"): Order(1, 1, 3)} if based else {}
    checkpoint = replace(OLD, bases=known, shards={Shard.parse("s/a.t"): "a.t"})

    made = step(
        checkpoint, BatchStats(news=(SchemaNews("s", change, snapshot=False, captured=captured),))
    )

    assert {*map(str, made.bases.keys() - known.keys())} == bases
    assert {*map(str, active_shards(made, ROUTER))} == listed
    assert made.departed == {"a.t": 5}


def test_f117_a_table_is_listed_at_once_though_its_old_name_is_in_an_untold_database() -> None:
    text = "RENAME TABLE t TO b.t"
    assert MYSQL.renamed_from(text, ShardId("b", "t")) is None
    change = SchemaChange("alter", "b.t", Order(1, 1, 9), None, text, None)
    checkpoint = replace(
        OLD, bases={Shard("s", "a.t"): Order(1, 1, 3)}, shards={Shard.parse("s/a.t"): "a.t"}
    )

    made = step(checkpoint, BatchStats(news=(SchemaNews("s", change, snapshot=False),)))

    assert {*map(str, active_shards(made, ROUTER))} == {"s/a.t", "s/b.t"}, (
        "nobody tells which one went"
    )
    assert {*made.bases} == {Shard("s", "a.t")}
    for one in (
        SchemaNews("s", change, snapshot=True),
        SchemaNews("s", change, False, captured=False),
    ):
        after = step(checkpoint, BatchStats(news=(one,)))
        assert {*active_shards(after, ROUTER)} == {Shard("s", "a.t")}


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE Archive", {"db.archive"}),
        ("ALTER TABLE `o``dd` FROB", {"db.o`dd"}),
        ("CREATE USER x", set()),
        ("DROP DATABASE `DB`", {"db.archive", "db.o`dd"}),
    ],
    ids=["beside the one it is told of", "told of none", "of no table", "all of a database"],
)
def test_a_table_that_a_statement_names_has_something_to_do(text: str, touched: set[str]) -> None:
    """Else an idle one would be READY with rows that the statement took away."""
    shards = {f"{source}/{name}": name for source in "sz" for name in ("db.archive", "db.o`dd")}

    checkpoint = step(replace(OLD, shards=by_shard(shards)), BatchStats(texts=(("s", text),)))

    assert checkpoint.tables == dict.fromkeys(touched, 5)


def test_the_heartbeat_is_never_a_table() -> None:
    snapshot = SnapshotRows(Order(1, 1, 5), 1, ended=True)
    facts = BatchStats(
        snapshots={"s/sluice.heartbeat": snapshot}, high=orders_at({"s/x:0": Order(1, 1, 9)})
    )

    assert step(facts=facts).tables == {}


def test_what_was_acknowledged_is_kept_until_more_is() -> None:
    assert step().acknowledged == OLD.acknowledged
    assert step(acknowledged={"s": ACK}).acknowledged == {"s": ACK}


def test_a_new_epoch_forgets_what_the_old_log_had_acknowledged() -> None:
    """Positions of two logs prove nothing about each other: a READY could be false."""
    moved = {"s": replace(EPOCH, number=2, identity="other")}

    assert step(epochs=moved, acknowledged={"s": ACK}).acknowledged == {}


def test_a_gap_is_open_until_each_of_its_shards_has_a_later_base() -> None:
    opened = step(
        replace(OLD, shards={Shard.parse("s/db.t"): "db.t", Shard.parse("s/db.u"): "db.u"}),
        gaps=(GAP,),
    )
    order = Order(1, 1, 700)
    begun = BatchStats(snapshots={"s/db.t": SnapshotRows(order, 2, ended=True)})

    closed = step(step(opened, begun), BatchStats(high=orders_at({"s/s.db.t:0": Order(1, 1, 900)})))

    assert opened.gaps[OPEN].shards == ("s/db.t",)
    assert closed.gaps == {}


@pytest.mark.parametrize(
    ("tables", "shared"),
    [
        pytest.param(("db.t", "db.u"), True, id="of two tables"),
        pytest.param(("t", "t"), False, id="of two shards of one table"),
    ],
)
def test_f198_a_gap_of_several_tables_stays_one_of_several_when_one_is_left(
    tables: tuple[str, str], *, shared: bool
) -> None:
    gap = Gap.noticed("log:s", 4, "promoted", ("s/db.t", "s/db.u"))
    shards = dict(zip(gap.shards, tables, strict=True))
    known = replace(OLD, shards=by_shard(shards), gaps={gap.id: gap})
    rows = SnapshotRows(Order(1, 1, 700), 2, ended=True)
    begun = BatchStats(snapshots={"s/db.u": rows}, shards=shards)

    left = step(step(known, begun), BatchStats(high=orders_at({"s/s.db.t:0": Order(1, 1, 900)})))

    (found,) = load_gaps(left)
    assert (found.shards, found.shared) == (("s/db.t",), shared)


ANEW = BatchStats(
    news=(
        SchemaNews("s", SchemaChange("create", "db.t", Order(1, 1, 500), None, ""), snapshot=False),
    )
)
DROPPED = {Shard.parse("s/db.t"): Existence(Order(1, 1, 400), there=False)}


@pytest.mark.parametrize(
    ("passed_at", "closed"),
    [
        pytest.param(None, False, id="the CREATE may be older than what is lost, and come late"),
        pytest.param("the gap", True, id="all that was there beside the gap is read"),
        pytest.param("later", True, id="all that was there after the gap is read"),
        pytest.param("the CREATE", False, id="what comes with the CREATE says nothing of before"),
    ],
)
@pytest.mark.parametrize("lost", ["a gap", "an unread change"])
def test_a_create_closes_only_what_was_lost_before_an_end_that_is_passed(
    lost: str, passed_at: str | None, *, closed: bool
) -> None:
    def at(when: str) -> dict[str, Any]:
        return {"acknowledged": {"s": ACK} if passed_at == when else {}}

    known = replace(OLD, shards={Shard.parse("s/db.t"): "t"}, existing=DROPPED)
    gaps = (GAP,) if lost == "a gap" else ()
    unread_ = BatchStats(errors={"s/db.t": unread(7)} if not gaps else {})

    opened = step(known, unread_, gaps, **at("the gap"))
    later = step(opened, **at("later"))
    created = step(later, ANEW, **at("the CREATE"))

    assert opened.gaps or opened.quarantine
    assert (not created.gaps and not created.quarantine) is closed
    assert created.bases[Shard("s", "db.t")].pos == 500
    assert created.complete == {Shard("s", "db.t"): 7}


def test_a_base_that_closes_a_gap_leaves_word_of_how_far_changes_are_missing() -> None:
    """Rows that were renamed away before are still folded from below it."""
    opened = step(replace(OLD, shards={Shard.parse("s/db.t"): "db.t"}), gaps=(GAP,))
    order = Order(1, 1, 700)
    begun = BatchStats(snapshots={"s/db.t": SnapshotRows(order, 2, ended=True)})
    live = BatchStats(high=orders_at({"s/s.db.t:0": Order(1, 1, 900)}))

    assert step(step(opened, begun), live).lost == {Shard("s", "db.t"): order}
    assert step(step(OLD, begun), live).lost == {}


def test_a_base_begun_before_the_gap_does_not_close_it() -> None:
    order = Order(1, 1, 700)
    begun = step(
        replace(OLD, shards={Shard.parse("s/db.t"): "db.t"}),
        BatchStats(snapshots={"s/db.t": SnapshotRows(order, 2, ended=True)}),
    )

    gapped = step(begun, BatchStats(high=orders_at({"s/s.db.t:0": Order(1, 1, 900)})), gaps=(GAP,))

    assert list(gapped.gaps) == [f"{GAP.id}@6"]


def test_a_gap_can_be_waived_by_name_only() -> None:
    opened = step(replace(OLD, shards={Shard.parse("s/db.t"): "db.t"}), gaps=(GAP,))

    assert step(opened, waived=frozenset({"other"})).gaps
    assert not step(opened, waived=frozenset({OPEN})).gaps


def test_a_gap_that_begins_where_a_waived_one_began_is_open() -> None:
    """A topic created anew twice, each time landed up to the same offset."""
    opened = step(replace(OLD, shards={Shard.parse("s/db.t"): "db.t"}), gaps=(GAP,))
    closed = step(opened, waived=frozenset({OPEN}))

    again = step(closed, gaps=(replace(GAP, until=90),), waived=frozenset({OPEN}))

    assert closed.gaps == {}
    assert list(again.gaps) == [f"{GAP.id}@7"]


def test_a_gap_in_a_topic_of_no_single_shard_concerns_all_of_them() -> None:
    gap = replace(GAP, topic="s")
    opened = step(
        replace(OLD, shards={Shard.parse("s/db.t"): "db.t", Shard.parse("s/db.u"): "db.u"}),
        gaps=(gap,),
    )

    assert opened.gaps[OPEN].shards == ("s/db.t", "s/db.u")


def test_a_snapshot_that_will_never_end_can_be_waived_by_name() -> None:
    begun = BatchStats(snapshots={"s/db.t": SnapshotRows(Order(1, 1, 700), 2, ended=False)})
    opened = step(facts=begun)

    assert list(opened.snaps) == [Shard("s", "db.t")]
    assert list(step(opened).snaps) == [Shard("s", "db.t")]
    assert step(opened, waived=frozenset({"snapshot:s/db.t@5"})).snaps == {}


def test_a_snapshot_after_one_that_was_given_up_is_waited_for_and_settled() -> None:
    """Else it would be READY in the middle of it, and rows deleted before it would stay."""
    waived = frozenset({"snapshot:s/db.t@5"})
    first = SnapshotRows(Order(1, 1, 700), 2, ended=False)
    given_up = step(step(facts=BatchStats(snapshots={"s/db.t": first})), waived=waived)
    second = SnapshotRows(Order(1, 1, 900), 2, ended=True)

    begun = step(given_up, BatchStats(snapshots={"s/db.t": second}), waived=waived)
    done = step(begun, BatchStats(high=orders_at({"s/s.db.t:0": Order(1, 1, 950)})), waived=waived)

    assert given_up.snaps == {}
    assert list(begun.snaps) == [Shard("s", "db.t")]
    assert done.bases == {Shard("s", "db.t"): Order(1, 1, 900)}


def unread(*offsets: int, table: str | None = "t", count: int = 0) -> UnreadChanges:
    ids = tuple(f"s.db.t:0:{offset}" for offset in offsets)
    return UnreadChanges("s", table, count or len(ids), ids)


def test_quarantine_is_open_until_it_is_waived() -> None:
    opened = step(facts=BatchStats(errors={"s/db.t": unread(7)}))

    assert opened.quarantined == {"t": ("s.db.t:0:7@5",)}
    assert step(opened).quarantined == opened.quarantined
    assert step(opened, waived=frozenset({"s.db.t:0:7@5"})).quarantined == {}


AT = TopicPartition("s.db.t", 0)


@pytest.mark.parametrize(
    ("before", "now", "starts", "epoch"),
    [
        pytest.param(1, 1, {}, 1, id="the log goes on"),
        pytest.param(3, 3, {}, 3, id="that of a later epoch, too"),
        pytest.param(None, 1, {}, 1, id="its first"),
        pytest.param(None, None, {}, 0, id="its server was never reached"),
        pytest.param(1, 2, {}, 0, id="a new epoch begins in this batch"),
        pytest.param(None, 2, {}, 0, id="two began before any was landed"),
        pytest.param(2, 2, {EpochStart("s", 2, AT): 9}, 0, id="its epoch began, but not here yet"),
        pytest.param(2, 2, {EpochStart("a", 2, AT): 9}, 2, id="another source's did"),
    ],
)
def test_a_quarantined_change_has_an_epoch_only_if_all_of_its_batch_is_of_one(
    before: int | None, now: int | None, starts: dict[EpochStart, int], epoch: int
) -> None:
    """Without one it is never read again: its offsets may hold other messages now."""
    known = [{} if one is None else {"s": replace(EPOCH, number=one)} for one in (before, now)]

    made = step(
        replace(OLD, epochs=known[0], starts=starts),
        BatchStats(errors={"s/db.t": unread(7)}),
        epochs=known[1],
    )

    assert made.quarantine["s/db.t"].epoch == epoch


def test_f38_quarantine_by_the_thousand_is_named_in_part_and_none_is_forgotten() -> None:
    many = BatchStats(errors={"s/db.t": unread(*range(NAMED), count=2 * NAMED)})
    first = step(facts=many)

    second = step(first, many)

    (one,) = second.quarantine.values()
    assert (len(one.ids), one.count, one.batch) == (NAMED, 4 * NAMED, 6)
    *names, rest = second.quarantined["t"]
    assert (len(names), rest) == (
        MAX_NAMED_CHANGES,
        f"s/db.t:and {4 * NAMED - MAX_NAMED_CHANGES} more@6",
    )
    left = step(second, waived=frozenset({rest, names[0]}))
    assert left.quarantined == {"t": tuple(names[1:])}
    assert step(second, waived=frozenset({rest, *names})).quarantined == {}
    *others, fewer = step(second, waived=frozenset(names)).quarantined["t"]
    assert (len(others), fewer) == (
        MAX_NAMED_CHANGES,
        f"s/db.t:and {4 * NAMED - 2 * MAX_NAMED_CHANGES} more@6",
    )
    stale = step(second, many, waived=frozenset({rest}))
    assert stale.quarantine["s/db.t"].count == MAX_NAMED_CHANGES + 2 * NAMED, (
        "what came since is not waived"
    )


def settle_snapshots(checkpoint: Checkpoint, *names: str) -> Checkpoint:
    """The mark two batches on: these shards' snapshots began in the first, and ended."""
    order = Order(1, 1, 700)
    begun = step(
        checkpoint, BatchStats(snapshots={n: SnapshotRows(order, 2, ended=True) for n in names})
    )
    return step(begun, BatchStats(high=orders_at({"s/other:0": Order(1, 1, 900)})))


TWO = replace(
    OLD,
    shards={
        Shard.parse("s/db_0.t"): "t",
        Shard.parse("s/db_1.t"): "t",
        Shard.parse("s/db.u"): "u",
        Shard.parse("b/db.x"): "x",
    },
)


def test_f09_a_base_of_another_shard_of_the_table_closes_no_quarantine() -> None:
    opened = step(TWO, BatchStats(errors={"s/db_0.t": unread(7), "s/db_1.t": unread(8)}))

    assert settle_snapshots(opened, "s/db_1.t").quarantined == {"t": ("s.db.t:0:7@5",)}
    assert settle_snapshots(opened, "s/db_0.t", "s/db_1.t").quarantined == {}


def test_f09_a_topic_of_unknown_shards_is_closed_by_bases_of_all_it_may_concern() -> None:
    checkpoint = replace(TWO, high=orders_at({"s/s:0": Order(1, 1, 9)}))
    opened = step(checkpoint, BatchStats(errors={"topic:s": unread(7, table=None)}))

    assert opened.quarantine["topic:s"].shards == ("s/db.u", "s/db_0.t", "s/db_1.t")
    partly = settle_snapshots(opened, "s/db.u", "s/db_0.t")
    assert partly.quarantined == opened.quarantined
    assert settle_snapshots(partly, "s/db_1.t").quarantined == {}


def test_a_topic_that_concerns_no_known_shard_is_closed_by_a_person_only() -> None:
    opened = step(facts=BatchStats(errors={"topic:s.db.new": unread(7, table=None)}))

    assert opened.quarantined == {"topic:s.db.new": ("s.db.t:0:7@5",)}
    assert settle_snapshots(opened, "s/db.t").quarantined == opened.quarantined


def test_a_base_begun_in_the_batch_of_the_last_quarantined_change_does_not_close_it() -> None:
    errors = BatchStats(errors={"s/db.t": unread(7)})
    begun = BatchStats(
        snapshots={"s/db.t": SnapshotRows(Order(1, 1, 700), 2, ended=True)}, errors=errors.errors
    )

    first = step(step(facts=errors), begun)

    assert (
        step(first, BatchStats(high=orders_at({"s/other:0": Order(1, 1, 900)})))
        .quarantine["s/db.t"]
        .count
        == 2
    )


def test_a_snapshot_begun_in_the_batch_of_a_gap_does_not_close_it() -> None:
    """Its first rows may be what was lost."""
    order = Order(1, 1, 700)
    opened = step(
        replace(OLD, shards={Shard.parse("s/db.t"): "db.t"}),
        BatchStats(snapshots={"s/db.t": SnapshotRows(order, 2, ended=True)}),
        gaps=(GAP,),
    )

    assert step(opened, BatchStats(high=orders_at({"s/s.db.t:0": Order(1, 1, 900)}))).gaps


def test_a_gap_concerns_shards_of_its_own_source_only() -> None:
    checkpoint = replace(TWO, high=orders_at({"s/s:3": Order(1, 1, 1)}))

    opened = step(checkpoint, gaps=(replace(GAP, topic="s"),))

    assert opened.gaps[OPEN].shards == ("s/db.u", "s/db_0.t", "s/db_1.t")


def test_f38_starts_are_dropped_once_w_and_the_new_log_s_heartbeat_are_past_them() -> None:
    epoch = replace(EPOCH, number=2, identity="other", heartbeat=40)
    begins = {EpochStart("s", 2, TopicPartition(topic, 0)): 9 for topic in ("s.db.t", "s.db.u")}
    begun = step(epochs={"s": epoch}, starts=begins)
    still = step(begun, BatchStats(heartbeats={"s": 40}))
    later = step(still, BatchStats(heartbeats={"s": 41}))

    assert (
        begun.starts
        == still.starts
        == {EpochStart.parse("s/2/s.db.t:0"): 9, EpochStart.parse("s/2/s.db.u:0"): 9}
    )
    assert later.starts == {EpochStart.parse("s/2/s.db.u:0"): 9}, "nothing of that one is landed"


def test_a_new_epoch_remembers_what_was_acknowledged_of_the_log_before() -> None:
    moved = {"s": replace(EPOCH, number=2, identity="other")}

    assert step(epochs=moved, acknowledged={"s": ACK}).epochs["s"].passed == Acknowledged(
        binlog_position(1, 50)
    )
    assert step(step(epochs=moved)).epochs["s"].passed == Acknowledged(binlog_position(1, 50))
    assert step().epochs["s"].passed is None


def test_what_is_gone_is_remembered() -> None:
    chosen = Plan({}, {}, (), capped=False, gone=END)

    checkpoint, _ = planned(replace(OLD, offsets=END), chosen)

    assert (checkpoint.offsets, checkpoint.gone) == ({}, END)


def test_a_topic_that_gains_partitions_is_remembered() -> None:
    before = replace(OLD, offsets={TopicPartition("s.db.t", 0): PartitionEnd(9)})
    offsets = {**END, TopicPartition("s.db.t", 1): PartitionEnd(1)}
    chosen = Plan({}, offsets, (), capped=False)

    checkpoint, _ = planned(before, chosen)

    assert checkpoint.grown == ("s.db.t",)


@pytest.mark.parametrize(
    ("changed", "covered"),
    [
        pytest.param({}, True, id="everything is there"),
        pytest.param({"acknowledged": {}}, False, id="nothing is acknowledged"),
        pytest.param(
            {"acknowledged": {"s": Acknowledged(binlog_position(1, 79))}},
            False,
            id="not far enough",
        ),
        pytest.param(
            {"acknowledged": {"s": Acknowledged(binlog_position(1, 90), snapshot=True)}},
            False,
            id="in a snapshot",
        ),
        pytest.param({"heartbeats": {"s": 6}}, False, id="the heartbeat is not landed"),
        pytest.param({"heartbeats": {}}, False, id="no heartbeat ever"),
        pytest.param({"epochs": {}}, False, id="the server was never reached"),
        pytest.param(
            {"epochs": {"s": replace(EPOCH, identity="other")}}, False, id="another server's log"
        ),
        pytest.param(
            {"snaps": {Shard("s", "db.t"): OpenSnapshot(Order(1, 1, 70), 3)}},
            False,
            id="a snapshot is not settled",
        ),
        pytest.param(
            {"snaps": {Shard("other", "db.t"): OpenSnapshot(Order(1, 1, 70), 3)}},
            True,
            id="another source's is not",
        ),
    ],
)
def test_a_fence_is_covered_only_if_every_input_says_so(
    changed: Mapping[str, Any], covered: bool
) -> None:
    fence = Fence("s", 7, NOON, Head("uuid", binlog_position(1, 80)))
    checkpoint = replace(OLD, acknowledged={"s": ACK}, heartbeats={"s": 7})

    assert replace(checkpoint, **changed).covers(fence) is covered


def test_many_gaps_at_once_go_through_what_is_known_once() -> None:
    """A cluster made anew opens a gap in each partition."""
    names = [f"db.t{number}" for number in range(300)]
    high = Walked(orders_at({f"s/s.{name}:0": Order(1, 1, 7) for name in names}))
    gaps = tuple(replace(GAP, id=f"s.{name}:0:5", topic=f"s.{name}") for name in names)

    one = step(replace(OLD, high=high), gaps=gaps[:1])
    walks, high.walks = high.walks, 0
    checkpoint = replace(OLD, high=high, shards={Shard.parse(f"s/{name}"): name for name in names})
    made = step(checkpoint, gaps=gaps)

    assert len(one.gaps) == 1
    assert high.walks == walks
    concerned = [made.gaps[f"s.{name}:0:5@5"].shards for name in names]
    assert concerned == [(f"s/{name}",) for name in names]


class Walked(dict[SourcePartition, Order]):
    """Counts how often it is gone through."""

    walks = 0

    def __iter__(self) -> Iterator[SourcePartition]:
        self.walks += 1
        return super().__iter__()
