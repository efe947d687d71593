"""The checkpoint and its texts: what a batch changed, and everything now and then."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.backfill_state import Backfill, KeyRange
from pipeline.checkpoint import (
    FULL_EVERY,
    ActiveHazard,
    Checkpoint,
    CheckpointDelta,
    CollectorLists,
    DescribedSchema,
    Epoch,
    EpochStart,
    Existence,
    Gap,
    OpenSnapshot,
    Quarantine,
    RowStandards,
    active_shards,
    active_tables,
    has_streaming_table,
    is_outdated,
    source_of,
)
from pipeline.errors import HeldError
from pipeline.finding import REFUSE, Effect, Finding
from pipeline.heartbeats import HeartbeatBacklog, HeartbeatHistory
from pipeline.model import (
    Acknowledged,
    Fence,
    Head,
    Order,
    Ordering,
    Origin,
    PartitionEnd,
    Position,
    RetainedLog,
    Shard,
    SnapshotAgain,
    SourcePartition,
    TopicPartition,
)
from pipeline.settings import Router, TableRule
from pipeline.sources.mysql.position import binlog_position
from tests.builders.change_log import NOON
from tests.builders.values import by_shard
from tests.example_count import examples

OLD, NEW = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
PLACES = st.builds(binlog_position, st.integers(0, 3), st.integers(0, 3))
PASSED = Acknowledged(binlog_position(1, 2))
ORDER = Order(1, 2, 3, 4)
HAZARD = Finding(REFUSE, "errors.tolerance", "c", "what", "fix", Effect.DROPS, r"db\.t")
SOURCES, TABLES, TOPICS = ("s", "shop_01", "r"), ("t", "db.t", "orders ü"), ("t", "shop.db.tä")
PARTITIONS = (TopicPartition("t", 0), TopicPartition('shop.d"b.tä', 12), TopicPartition("a.b-c", 3))
SHARD_NAMES = ("s/db.t", "shop_01/public.order items", 's/"d.b"."t""ü"', "r/äb.t")
KEYS: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(("offsets", "gone"), PARTITIONS),
    "starts": [EpochStart("s", number, at) for number, at in enumerate(PARTITIONS)],
    "high": [SourcePartition(source, at) for source in ("s", "r") for at in PARTITIONS],
    **dict.fromkeys(("tables", "departed", "belated"), TABLES),
    **dict.fromkeys(
        ("schemas", "stores"), SHARD_NAMES,
    ),
    **dict.fromkeys(
        ("shards", "existing", "bases", "based", "complete", "lost", "snaps", "standards",
         "backfills", "parts"),
        tuple(map(Shard.parse, SHARD_NAMES)),
    ),
    "resubmitted": ("t:0:5@3", "t:1:9@4"),
    "hazards": ("setting:s:errors@1", "delay:s"),
    "gaps": ("t:0:5@6", "log:s:0:2@2", "setting:s:ü@4"),
    "quarantine": (*SHARD_NAMES, "topic:tä"),
    "incarnations": ("0", "7"),
}  # fmt: skip
"""By field; those of all others are sources."""
NUMBERS = st.integers(-1, 3)
VALUES = {
    "offsets": st.builds(PartitionEnd, NUMBERS, st.sampled_from(["", "id"]), NUMBERS),
    "gone": st.builds(PartitionEnd, NUMBERS),
    "acknowledged": st.builds(Acknowledged, PLACES, st.booleans()),
    "heartbeats": NUMBERS,
    "heartbeat_histories": st.builds(
        HeartbeatHistory, NUMBERS, st.just(ORDER), NUMBERS, NUMBERS, falls=NUMBERS,
        backlog=st.sampled_from([None, HeartbeatBacklog(3, {"t:0": 4})]),
    ),
    "tables": NUMBERS,
    "epochs": st.builds(
        Epoch, NUMBERS, st.just("uuid"), PLACES, passed=st.sampled_from([None, PASSED])
    ),
    "starts": NUMBERS,
    "high": st.builds(Order, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    "shards": st.none() | st.just("db.t"),
    "existing": st.builds(Existence, st.just(ORDER), st.booleans()),
    "bases": st.builds(Order, NUMBERS, NUMBERS, NUMBERS),
    "based": NUMBERS,
    "complete": NUMBERS,
    "departed": NUMBERS,
    "belated": NUMBERS,
    "resubmitted": NUMBERS,
    "lost": st.builds(Order, NUMBERS, NUMBERS, NUMBERS),
    "lists": st.builds(
        CollectorLists, st.just("d"), st.sampled_from([None, NOON]), NUMBERS,
        st.sampled_from([None, ORDER]),
    ),
    "orderings": st.sampled_from(Ordering),
    "again": st.builds(
        SnapshotAgain, st.just(ORDER), st.just(NOON), NUMBERS, NUMBERS, st.booleans()
    ),
    "keepers": st.builds(
        RetainedLog, st.just("postgres"), st.text(max_size=2), st.just(Position("postgres", "0/1"))
    ),
    "stores": st.text(max_size=2),
    "snapshots": st.builds(Order, NUMBERS, NUMBERS, NUMBERS),
    "initial": st.builds(Order, NUMBERS, NUMBERS, NUMBERS),
    "hazards": st.builds(
        ActiveHazard, st.just("s"), st.just(HAZARD), NUMBERS, st.sampled_from([None, ORDER])
    ),
    "schemas": st.builds(DescribedSchema, st.just(ORDER), st.text(max_size=2)),
    "backfills": st.builds(
        Backfill, st.just("x"), st.sampled_from(Origin), st.just(ORDER), st.just("uuid"), NUMBERS,
        st.lists(st.builds(KeyRange, st.sampled_from([None, ("9",)])), max_size=2).map(tuple),
        closing=st.sampled_from([None, ORDER]), done=st.none() | NUMBERS,
    ),
    "parts": st.builds(Order, NUMBERS, NUMBERS, NUMBERS),
    "snaps": st.builds(OpenSnapshot, st.just(ORDER), NUMBERS, NUMBERS, st.booleans()),
    "gaps": st.builds(
        Gap, st.just("t:0:5@6"), st.just("t"), NUMBERS, NUMBERS, NUMBERS, st.just("ü is gone"),
        tables=st.sampled_from([(), ("t",)]), shards=st.sampled_from([(), SHARD_NAMES]),
        above=st.sampled_from([None, ORDER]), shared=st.booleans(),
    ),
    "incarnations": NUMBERS,
    "standards": st.builds(RowStandards, st.text(max_size=2), NUMBERS),
    "quarantine": st.builds(Quarantine, st.just("t"), NUMBERS, NUMBERS, st.just(("i",))),
}  # fmt: skip


def checkpoints(batch: int) -> st.SearchStrategy[Checkpoint]:
    entries = {
        name: st.dictionaries(st.sampled_from(KEYS.get(name, SOURCES)), one, max_size=3)
        for name, one in VALUES.items()
    }
    topics = st.frozensets(st.sampled_from(TOPICS)).map(lambda names: tuple(sorted(names)))
    return st.builds(
        Checkpoint, st.just("main"), st.just(batch), trimmed=topics, grown=topics, **entries
    )


def test_every_field_of_a_checkpoint_is_tried() -> None:
    assert {*VALUES, "lane", "batch", "trimmed", "grown", "full"} == {
        one.name for one in fields(Checkpoint)
    }


@settings(max_examples=examples(40))
@given(checkpoints(7))
def test_a_mark_survives_being_written_down(checkpoint: Checkpoint) -> None:
    again = Checkpoint.loads(checkpoint.dumps())

    assert again == checkpoint
    assert again.full == 7


@settings(max_examples=examples(40))
@given(checkpoints(6), st.tuples(checkpoints(7), checkpoints(8), checkpoints(9)))
def test_what_changed_applied_in_order_is_the_whole_mark(
    first: Checkpoint, later: tuple[Checkpoint, ...]
) -> None:
    checkpoint = Checkpoint.loads(first.dumps())
    for made in later:
        text = replace(made, full=checkpoint.full).changes_since(checkpoint)
        checkpoint = checkpoint.advanced(text)

        assert checkpoint == made
        assert CheckpointDelta.loads(text).full == (checkpoint.full == checkpoint.batch)


@settings(max_examples=examples(40))
@given(checkpoints(6), checkpoints(7))
def test_a_change_tells_only_what_changed(first: Checkpoint, made: Checkpoint) -> None:
    delta = CheckpointDelta.loads(made.changes_since(Checkpoint.loads(first.dumps())))
    if delta.full:
        return

    for name in VALUES:
        told, before = getattr(delta.changed, name), getattr(first, name)
        assert not [key for key, value in told.items() if before.get(key, ...) == value]


def test_a_text_is_canonical_json() -> None:
    text = Checkpoint("main", 1, tables={"b": 1, "a": 2}).dumps()

    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


def test_everything_is_told_every_so_many_batches_and_when_no_less_has_changed() -> None:
    checkpoint = Checkpoint("main", 0, tables={f"t{n}": 0 for n in range(10)})
    checkpoint = Checkpoint("main", -1).advanced(checkpoint.changes_since(Checkpoint("main", -1)))
    full = []
    for batch in range(1, 2 * FULL_EVERY + 1):
        changed = dict.fromkeys(checkpoint.tables, batch) if batch == 7 else {"t0": batch}
        made = replace(checkpoint, batch=batch, tables={**checkpoint.tables, **changed})
        checkpoint = checkpoint.advanced(made.changes_since(checkpoint))
        full += [batch] if checkpoint.full == batch else []

    assert full == [7, 7 + FULL_EVERY]


def large(tables: int, partitions: int) -> Checkpoint:
    at = {TopicPartition(f"topic{n % tables}", n // tables): n for n in range(partitions)}
    shards = {f"shop/db{n % 50}.table{n}": f"db.table{n}" for n in range(tables)}
    return Checkpoint(
        "main",
        0,
        offsets={one: PartitionEnd(n, "S2Fma2FfaXNfbm90X2tub3du", 3) for one, n in at.items()},
        high={SourcePartition("shop", one): Order(1, 12, n, 0) for one, n in at.items()},
        tables=dict.fromkeys(shards.values(), 0),
        shards=by_shard(shards),
        bases=dict.fromkeys(by_shard(shards), ORDER),
        based=dict.fromkeys(by_shard(shards), 0),
    )


def test_f38_a_text_follows_the_batch_not_the_number_of_tables_and_partitions() -> None:
    checkpoint = Checkpoint.loads(large(5_000, 10_000).dumps())
    touched = [TopicPartition(f"topic{n}", 0) for n in range(10)]

    made = replace(
        checkpoint,
        batch=1,
        offsets={
            **checkpoint.offsets,
            **dict.fromkeys(touched, PartitionEnd(9**9, "x" * 22, 3)),
        },
        high={
            **checkpoint.high,
            **{SourcePartition("shop", at): Order(1, 13, 9**9, 5) for at in touched},
        },
        tables={**checkpoint.tables, **{f"db.table{n}": 1 for n in range(10)}},
        heartbeats={"shop": 99},
    )
    text = made.changes_since(checkpoint)

    assert len(text) < 5_000
    assert checkpoint.advanced(text) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            Checkpoint("main", 9).dumps(), "batch 9 of lane main cannot follow", id="a hole"
        ),
        pytest.param(
            Checkpoint("main", 7).dumps(), "batch 7 of lane main", id="the same batch again"
        ),
        pytest.param(Checkpoint("other", 8).dumps(), "lane other", id="another lane's"),
        pytest.param('{"changed": {"lane": 5}}', "cannot be read", id="no marker"),
        pytest.param("", "cannot be read", id="nothing"),
    ],
)
def test_only_the_next_batch_of_the_lane_follows(text: str, words: str) -> None:
    with pytest.raises(HeldError, match=words) as found:
        Checkpoint("main", 7).advanced(text)

    assert found.value.reason == "mark_lost"


def test_what_changed_is_no_whole_mark() -> None:
    first = Checkpoint.loads(Checkpoint("main", 4, tables={"a": 1, "b": 2, "c": 3}).dumps())
    text = replace(first, batch=5, tables={**first.tables, "a": 5}).changes_since(first)

    with pytest.raises(HeldError, match="read from batch 4 on"):
        Checkpoint.loads(text)


def test_quarantine_is_shown_by_table_or_by_topic() -> None:
    checkpoint = Checkpoint(
        "main",
        9,
        quarantine={
            "a/db.t": Quarantine("t", 5, 1, ("x:0:1@5",)),
            "b/db.t": Quarantine("t", 7, 4, ("y:0:1@6", "y:0:2@7")),
            "topic:z": Quarantine(None, 7, 1, ("z:0:1@7",)),
        },
    )

    assert checkpoint.quarantined == {
        "t": ("x:0:1@5", "y:0:1@6", "y:0:2@7", "b/db.t:and 2 more@7"),
        "topic:z": ("z:0:1@7",),
    }


def test_quarantine_of_thousands_of_shards_of_one_table_is_told_at_once() -> None:
    ids = tuple(f"x:0:{number}@5" for number in range(20))
    many = {f"s/db.t{number}": Quarantine("t", 5, 20, ids) for number in range(5_000)}
    began = time.process_time()

    told = Checkpoint("main", 9, quarantine=many).quarantined

    assert len(told["t"]) == 100_000
    assert time.process_time() - began < 1  # it was 12 s, in each round


BEFORE, BOTH = f"{OLD}:1-80", f"{OLD}:1-80,{NEW}:1"


@pytest.mark.parametrize(
    ("said", "head", "reached"),
    [
        pytest.param((3, 90), (3, 90), True, id="just there"),
        pytest.param((3, 89), (3, 90), False, id="one byte short"),
        pytest.param((4, 1), (3, 90), True, id="a file further"),
        pytest.param((3, 90, f"{NEW}:1-9"), (3, 90, f"{NEW}:1-9"), True, id="every one"),
        pytest.param((3, 90, f"{NEW}:1-8"), (3, 90, f"{NEW}:1-9"), False, id="one short"),
        pytest.param((3, 89, f"{NEW}:1-9"), (3, 90, f"{NEW}:1-9"), False, id="by place"),
        pytest.param((50, 900, BEFORE), (3, 90, BOTH), False, id="larger, of the old server"),
        pytest.param((3, 90, "0-1-5"), (3, 90, "0-1-9"), True, id="MariaDB: by position"),
        pytest.param((3, 90), (3, 90, f"{NEW}:1-9"), True, id="only one has GTIDs"),
    ],
)
def test_f04_what_is_acknowledged_reaches_a_head_by_position_and_by_transactions(
    said: tuple[Any, ...], head: tuple[Any, ...], reached: bool
) -> None:
    checkpoint = Checkpoint(
        "main",
        5,
        epochs={"s": Epoch(2, NEW, binlog_position(9, 9))},
        acknowledged={"s": Acknowledged(binlog_position(*said))},
        heartbeats={"s": 7},
    )
    fence = Fence("s", 7, NOON, Head(NEW, binlog_position(*head)))

    assert checkpoint.covers(fence) is reached


@pytest.mark.parametrize(
    ("order", "passed"),
    [
        pytest.param(Order(2, 7, 99, 5), True, id="below it"),
        pytest.param(Order(2, 7, 100), False, id="what begins there is yet to come"),
        pytest.param(Order(2, 8, 4), False, id="in a later file"),
        pytest.param(Order(1, 9, 900), True, id="of the log before"),
        pytest.param(Order(3, 1, 4), False, id="of a later log"),
    ],
)
def test_what_lies_before_the_acknowledged_place_is_passed(order: Order, passed: bool) -> None:
    said = Acknowledged(binlog_position(7, 100))
    checkpoint = Checkpoint(
        "main", 1, acknowledged={"s": said}, epochs={"s": Epoch(2, NEW, said.position)}
    )

    assert checkpoint.passed("s", order) is passed


def test_nothing_is_passed_by_who_has_said_nothing_or_reads_a_snapshot() -> None:
    epochs = {"s": Epoch(2, NEW, binlog_position(7, 100))}
    reading = Acknowledged(binlog_position(7, 100), snapshot=True)

    for said in ({}, {"s": reading}):
        assert not Checkpoint("main", 1, acknowledged=said, epochs=epochs).passed(
            "s", Order(1, 1, 4)
        )


@given(st.text().filter(lambda source: "/" not in source), st.integers(0), st.text())
def test_every_start_of_an_epoch_comes_back(source: str, number: int, topic: str) -> None:
    one = EpochStart(source, number, TopicPartition(topic, 3))

    assert EpochStart.parse(str(one)) == one
    assert source_of(str(one)) == source


SHARDS = {"s/a.t": "t", "s/b.t": "t", "s/db.u": "u", "s/db.v": None}
MARK = Checkpoint("main", 9, shards=by_shard(SHARDS), tables={"t": 3, "u": 5, "v": 7, "w": 8})


@pytest.mark.parametrize(
    ("told", "shards", "tables"),
    [
        pytest.param({}, {"s/a.t", "s/b.t", "s/db.u"}, {"t": 3, "u": 5}, id="nothing was dropped"),
        pytest.param({"s/a.t": False}, {"s/b.t", "s/db.u"}, {"t": 3, "u": 5}, id="one of two"),
        pytest.param({"s/a.t": False, "s/b.t": False}, {"s/db.u"}, {"u": 5}, id="every shard"),
        pytest.param(
            {"s/db.u": True}, {"s/a.t", "s/b.t", "s/db.u"}, {"t": 3, "u": 5}, id="created again"
        ),
    ],
)
def test_f26_shards_that_are_there(
    told: dict[str, bool], shards: set[str], tables: dict[str, int]
) -> None:
    existing = by_shard({name: Existence(Order(1, 1, 1), one) for name, one in told.items()})
    checkpoint = Checkpoint(
        "main", 9, shards=by_shard(SHARDS), tables=MARK.tables, existing=existing
    )

    assert {*map(str, active_shards(checkpoint, Router()))} == shards
    assert active_tables(checkpoint, Router()) == tables


def test_f26_a_rule_that_ignores_a_table_retires_it_before_anything_lands() -> None:
    rule = TableRule(shards=r"[ab]\.t", table="t", ignore=True)

    assert active_tables(MARK, Router((rule,))) == {"u": 5}


U = Shard("s", "db.u")


@pytest.mark.parametrize(
    ("more", "tier", "streams"),
    [
        pytest.param({}, 0, True, id="it never had a snapshot"),
        pytest.param({"snaps": {U: OpenSnapshot(ORDER, 3)}}, 0, False, id="it is in its first"),
        pytest.param(
            {"snaps": {U: OpenSnapshot(ORDER, 3)}, "bases": {U: ORDER}}, 0, True,
            id="it is in a later one",
        ),
        pytest.param({}, 2, False, id="no table is of that tier"),
        pytest.param({"shards": {U: None}}, 0, False, id="it is ignored"),
    ],
)  # fmt: skip
def test_a_table_streams_once_its_first_snapshot_is_complete(
    more: dict[str, Any], tier: int, streams: bool
) -> None:
    router = Router((TableRule(shards=r"db\.u", table="u", tier=0),))
    checkpoint = replace(Checkpoint("main", 9, shards={U: "u"}), **more)

    assert has_streaming_table(checkpoint, router, tier=tier) is streams


@pytest.mark.parametrize(
    ("more", "outdated"),
    [
        pytest.param({}, False, id="no statement has landed"),
        pytest.param({"existing": {U: Existence(Order(1, 3, 0), True)}}, True, id="a newer one"),
        pytest.param({"existing": {U: Existence(ORDER, True)}}, False, id="the one at its order"),
        pytest.param(
            {
                "existing": {U: Existence(Order(1, 3, 0), True)},
                "schemas": {str(U): DescribedSchema(Order(1, 3, 0), "d")},
            },
            False,
            id="rows described the columns",
        ),
        pytest.param(
            {
                "existing": {U: Existence(Order(1, 3, 0), True)},
                "schemas": {str(U): DescribedSchema(ORDER, "d")},
            },
            True,
            id="rows described earlier ones",
        ),
    ],
)
def test_a_row_is_outdated_by_a_newer_statement_about_its_shard(
    more: dict[str, Any], outdated: bool
) -> None:
    assert is_outdated(Checkpoint("main", 9, **more), U, ORDER) is outdated


@pytest.mark.parametrize(
    ("shards", "shared", "several"),
    [
        pytest.param(("s/a.t", "s/b.t"), False, False, id="two shards of one table"),
        pytest.param(("s/a.t", "s/db.u"), False, True, id="of two tables"),
        pytest.param(("s/a.t", "s/b.t"), True, True, id="was of more, now of one table"),
        pytest.param(("s/a.t",), True, True, id="was of more, now of one shard"),
        pytest.param(("s/a.t",), False, False, id="one shard"),
    ],
)
def test_a_gap_stays_one_of_several_tables_while_it_is_open(
    shards: tuple[str, ...], shared: bool, several: bool
) -> None:
    gap = Gap("t:0:5@6", "t", 0, 5, 8, "deleted", shards=shards, shared=shared)

    assert gap.is_of_several(by_shard(SHARDS)) is several
