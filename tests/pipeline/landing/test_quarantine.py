"""What a registry did not know is read again once it does, and lands as if it never was unknown.

Not where order alone does not tell its place: then only a new base closes the quarantine.
"""

import base64
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.checkpoint import Checkpoint, DescribedSchema, Existence, Quarantine
from pipeline.clocks import LONGEST_WAIT
from pipeline.errors import NoSchemasError, UnreachableError
from pipeline.landing.batch_stats import (
    AroundRows,
    BatchStats,
    SnapshotRows,
    Unreadable,
    tally_rows,
)
from pipeline.landing.listing import Listing
from pipeline.landing.plan import Plan
from pipeline.landing.quarantine import AT_ONCE, Healed, QuarantineRetry, is_whole
from pipeline.landing.task import SLIM, TaskResult, TaskSource
from pipeline.model import Op, Order, Shard
from pipeline.resubmissions import Resubmission
from pipeline.transports.transport import OffsetRange, RangeRead
from tests.builders.harness import GIB4, LandingHarness
from tests.pipeline.landing.test_no_schemas import ENVELOPE, SCHEMAS, asking, patient, put
from tests.pipeline.registry_server import Answers

NAME, ORDER = "b/db.t", Order(1, 7, GIB4)
UNREAD = Unreadable("b", None, 1, ())
LATE = {9: json.dumps(ENVELOPE)}


@pytest.fixture
def harness(tmp_path: Path, registry: Answers) -> LandingHarness:
    """One change of a schema that nobody knows, between two others."""
    made = asking(registry, tmp_path)
    registry.schemas = SCHEMAS
    put(made, GIB4)
    made.land()
    put(made, GIB4 + 1, schema=9)
    put(made, GIB4 + 2)
    patient(made)
    assert made.checkpoint.quarantine["topic:b.db.t"].count == 1
    return made


def later(harness: LandingHarness, registry: Answers) -> None:
    registry.schemas = SCHEMAS | LATE
    harness.now += LONGEST_WAIT
    harness.land()


def test_it_lands_with_its_own_order_and_the_quarantine_closes(
    harness: LandingHarness, registry: Answers
) -> None:
    before = harness.checkpoint

    later(harness, registry)

    checkpoint = harness.checkpoint
    assert harness.rows("b") == [(1, GIB4, 0), (1, GIB4 + 1, 1), (1, GIB4 + 2, 2)]
    assert (checkpoint.quarantine, checkpoint.gaps, checkpoint.high) == ({}, {}, before.high)
    assert (checkpoint.tables["db.t"], checkpoint.belated["db.t"]) == (
        checkpoint.batch,
        checkpoint.batch,
    )
    assert checkpoint.offsets == before.offsets
    assert [row["batch"] for row in harness.landed() if row["offset"] == 1] == [checkpoint.batch]


def test_it_lands_once(harness: LandingHarness, registry: Answers) -> None:
    later(harness, registry)
    batch = harness.checkpoint.batch
    harness.now += LONGEST_WAIT
    again = LandingHarness(harness.home, topics=harness.topics, registries=harness.registries)

    assert (harness.land().batch, again.land().batch) == (None, None)
    assert harness.checkpoint.batch == batch


def test_what_a_person_corrects_in_the_same_round_is_not_read_again(
    harness: LandingHarness, registry: Answers
) -> None:
    registry.schemas = SCHEMAS | LATE
    harness.now += LONGEST_WAIT
    (change,) = harness.checkpoint.quarantine["topic:b.db.t"].ids
    key, value = (base64.b64encode(one or b"").decode() for one in harness.topics.held["b.db.t"][1])

    harness.loop.land(frozenset(), [Resubmission("r1", change, value, key)])

    assert harness.rows("b") == [(1, GIB4, 0), (1, GIB4 + 1, 1), (1, GIB4 + 2, 2)]
    assert harness.checkpoint.quarantine == {}


def test_the_registry_is_not_asked_in_each_round(
    harness: LandingHarness, registry: Answers
) -> None:
    harness.now += LONGEST_WAIT
    harness.land()
    asked = len(registry.asked)

    for _ in range(5):
        harness.land()

    assert len(registry.asked) == asked


def test_a_registry_that_is_silent_then_costs_nothing(
    harness: LandingHarness, registry: Answers
) -> None:
    registry.whole = (503, "")
    harness.now += LONGEST_WAIT
    harness.topics.put("a", GIB4, "x")

    assert harness.land().holds == ()
    assert len(harness.rows("a")) == 1
    registry.whole = None
    later(harness, registry)
    assert harness.checkpoint.quarantine == {}


def test_a_statement_since_leaves_it_to_a_new_base(
    harness: LandingHarness, registry: Answers
) -> None:
    there = Existence(Order(1, 7, GIB4 + 2), there=True)
    harness.loop.checkpoint = replace(harness.checkpoint, existing={Shard.parse("b/db.t"): there})

    later(harness, registry)

    assert len(harness.landed(Op.CREATE)) == 2
    assert harness.checkpoint.quarantine


@pytest.mark.parametrize(
    ("checkpoint", "other", "whole"),
    [
        pytest.param({}, {}, True, id="rows alone"),
        pytest.param(
            {"existing": {Shard.parse(NAME): Existence(ORDER, there=True)}},
            {},
            True,
            id="told before",
        ),
        pytest.param({}, {"errors": {NAME: UNREAD}}, False, id="one cannot be read"),
        pytest.param({}, {"statements": ({},)}, False, id="a statement"),
        pytest.param(
            {}, {"snapshots": {NAME: SnapshotRows(ORDER, 1, ended=True)}}, False, id="a snapshot"
        ),
        pytest.param({}, {"around": {NAME: AroundRows(ORDER, UNREAD)}}, False, id="around one"),
    ],
)
def test_only_live_changes_of_rows_are_read_out_of_turn(
    checkpoint: dict[str, Any], other: dict[str, Any], *, whole: bool
) -> None:
    asked = OffsetRange("b.db.t", 0, 1, 2)
    rows = replace(tally_rows(pa.Table.from_batches([], SLIM)), firsts={NAME: ORDER}, **other)
    known = Checkpoint("main", 1, **checkpoint)

    assert is_whole(TaskResult(None, (RangeRead(asked, 1, 1, 1),), (rows,)), known) == whole
    assert not is_whole(TaskResult(None, (RangeRead(asked),), (rows,)), known)


def test_rows_that_tell_their_own_columns_are_left_to_a_new_base(
    harness: LandingHarness, registry: Answers
) -> None:
    told = {"b/db.t": DescribedSchema(Order(1, 7, GIB4, 0), "x")}
    harness.loop.checkpoint = replace(harness.checkpoint, schemas=told)

    later(harness, registry)

    assert harness.checkpoint.quarantine


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"epoch": 0}, id="nobody knows of which epoch"),
        pytest.param({"count": 2}, id="not all are known by name"),
    ],
)
def test_what_is_not_known_of_it_leaves_it_to_a_new_base(
    harness: LandingHarness, registry: Answers, other: dict[str, Any]
) -> None:
    ((name, one),) = harness.checkpoint.quarantine.items()
    harness.loop.checkpoint = replace(harness.checkpoint, quarantine={name: replace(one, **other)})

    later(harness, registry)

    assert len(harness.landed(Op.CREATE)) == 2
    assert harness.checkpoint.quarantine


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_another_topic_of_that_name_heals_nothing(
    harness: LandingHarness, registry: Answers, rounds: int
) -> None:
    """At that offset stands another change: the one that was not read is nowhere."""
    harness.topics.create_anew("b.db.t")
    put(harness, GIB4 + 3)
    put(harness, GIB4 + 4)
    for _ in range(rounds):
        harness.land()

    later(harness, registry)

    assert harness.checkpoint.quarantine


PLAN = Plan({}, {}, (), capped=False)
TALLY = replace(tally_rows(pa.Table.from_batches([], SLIM)), rows=3)


def open_of(*ids: str) -> Checkpoint:
    one = Quarantine(None, 1, len(ids), ids, epoch=1)
    return Checkpoint("main", 1, quarantine={"topic:b.db.t": one})


@dataclass(eq=False)
class Reading:
    """Messages below the offset ``there``; ``asked`` are those that were read, each time."""

    there: int
    asked: list[tuple[OffsetRange, ...]] = field(default_factory=list)

    def __call__(self, intake: TaskSource) -> TaskResult:
        self.asked.append(intake.ranges)
        read = (
            RangeRead(one, one.first, one.first, 1) if one.first < self.there else RangeRead(one)
            for one in intake.ranges
        )
        return TaskResult(None, tuple(read), (TALLY,))


def tried(
    harness: LandingHarness, checkpoint: Checkpoint, source_of: dict[str, str]
) -> list[OffsetRange]:
    """Which messages are read again; none was there."""
    read = Reading(there=0)
    listing = Listing({}, {}, source_of, {}, {})
    QuarantineRetry(harness.loop.feeds).found(checkpoint, listing, PLAN, harness.now, read)
    return [each for ranges in read.asked for each in ranges]


@pytest.mark.parametrize(
    ("ids", "source_of"),
    [
        pytest.param(("b.db.t:0:1@1",), {}, id="of a topic that no source has"),
        pytest.param(("a.db.t:0:1@1",), {"a.db.t": "a"}, id="of a format without schemas"),
        pytest.param(
            ("b.db.t:0:1@1", "a.db.t:0:1@1"), {"b.db.t": "b", "a.db.t": "a"}, id="of two sources"
        ),
        pytest.param(("odd@1",), {"b.db.t": "b"}, id="named without a place"),
        pytest.param(("7@1",), {"b.db.t": "b"}, id="named by a number alone"),
        pytest.param(("b.db.t:0:and 7 more@1",), {"b.db.t": "b"}, id="named without an offset"),
    ],
)
def test_what_is_no_message_of_one_source_with_a_registry_is_left_to_a_new_base(
    harness: LandingHarness, ids: tuple[str, ...], source_of: dict[str, str]
) -> None:
    assert tried(harness, open_of("b.db.t:0:1@1"), {"b.db.t": "b"}) == [
        OffsetRange("b.db.t", 0, 1, 2)
    ]

    assert tried(harness, open_of(*ids), source_of) == []


def test_one_that_is_not_there_among_others_leaves_all_to_a_new_base() -> None:
    one, two = OffsetRange("b.db.t", 0, 1, 2), OffsetRange("b.db.t", 0, 5, 6)
    ranges = (RangeRead(one, 1, 1, 1), RangeRead(two))

    assert not is_whole(TaskResult(None, ranges, (TALLY,)), Checkpoint("main", 1))


def test_what_came_of_it_is_counted_with_the_rest() -> None:
    told = replace(TALLY, tables={"db.t": 3}, shards={NAME: "db.t"})
    facts = BatchStats(rows=5, tables={"db.t": 2, "db.u": 1}, shards={"a/db.u": "db.u"})
    healed = Healed(tallies=(told, replace(told, tables={"db.v": 3})))

    counted = healed.counted(facts)
    made = healed.noted(Checkpoint("main", 7, belated={"db.w": 2, "db.t": 3}))

    assert counted.rows == 11
    assert counted.tables == {"db.t": 5, "db.u": 1, "db.v": 3}
    assert counted.shards == {NAME: "db.t", "a/db.u": "db.u"}
    assert made.belated == {"db.t": 7, "db.v": 7, "db.w": 2}


def test_messages_that_leave_no_row_leave_no_file(harness: LandingHarness) -> None:
    listing = Listing({}, {}, {"b.db.t": "b"}, {}, {})

    def read(intake: TaskSource) -> TaskResult:
        (asked,) = intake.ranges
        return TaskResult(None, (RangeRead(asked, 1, 1, 1),), (TALLY,))

    checkpoint = open_of("b.db.t:0:1@1")
    found = QuarantineRetry(harness.loop.feeds).found(checkpoint, listing, PLAN, harness.now, read)

    assert (found.ids, found.files) == (frozenset({"b.db.t:0:1@1"}), ())


NAMES = tuple(f"b.db.t:0:{offset}@1" for offset in range(5 * AT_ONCE))
LISTING = Listing({}, {}, {"b.db.t": "b"}, {}, {})


def test_of_many_that_cannot_be_read_one_is_tried(harness: LandingHarness) -> None:
    """Each is a client of its own, for which all sources wait."""
    read = Reading(there=0)

    found = QuarantineRetry(harness.loop.feeds).found(
        open_of(*NAMES), LISTING, PLAN, harness.now, read
    )

    assert (found, [len(each) for each in read.asked]) == (Healed(), [1])


def test_many_that_can_be_read_are_a_few_a_round_and_none_is_left(harness: LandingHarness) -> None:
    healing, read, left = QuarantineRetry(harness.loop.feeds), Reading(there=len(NAMES)), NAMES
    rounds = 0
    while left:
        found = healing.found(open_of(*left), LISTING, PLAN, harness.now, read)
        assert found.ids == {*left[:AT_ONCE]}
        left, rounds = left[AT_ONCE:], rounds + 1

    assert rounds == 5
    assert len(read.asked) == len(NAMES)


def test_some_that_cannot_be_read_leave_those_before_them_read(harness: LandingHarness) -> None:
    healing, read = QuarantineRetry(harness.loop.feeds), Reading(there=1)

    found = healing.found(open_of(*NAMES), LISTING, PLAN, harness.now, read)

    assert found.ids == {NAMES[0]}
    again = healing.found(open_of(*NAMES[1:]), LISTING, PLAN, harness.now, read)
    assert (again, len(read.asked)) == (Healed(), AT_ONCE)


@pytest.mark.parametrize(
    ("bad", "rounds"),
    [
        pytest.param({0}, 10, id="the first"),
        pytest.param({7}, 10, id="among the first"),
        pytest.param({AT_ONCE + 3}, 10, id="a later one"),
        pytest.param({*range(0, len(NAMES), 20)}, 10, id="one of twenty"),
        pytest.param({*range(0, len(NAMES), 2)}, 60, id="every other one"),
        pytest.param({*range(90)}, 100, id="nine of ten"),
        pytest.param({*range(99)}, 200, id="all but the last"),
    ],
)
def test_those_that_cannot_be_read_hide_none_behind_them(
    harness: LandingHarness, bad: set[int], rounds: int
) -> None:
    healing, left, at = QuarantineRetry(harness.loop.feeds), NAMES, harness.now

    def read(intake: TaskSource) -> TaskResult:
        there = {one: int(one.first not in bad) for one in intake.ranges}
        return TaskResult(None, tuple(RangeRead(one, n, n, n) for one, n in there.items()), ())

    for _ in range(rounds):
        found = healing.found(open_of(*left), LISTING, PLAN, at, read)
        left, at = tuple(one for one in left if one not in found.ids), at + LONGEST_WAIT

    assert left == tuple(one for n, one in enumerate(NAMES) if n in bad)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UnreachableError("the brokers say nothing"), id="brokers"),
        pytest.param(NoSchemasError("b", "does not answer"), id="the registry"),
    ],
)
def test_nothing_is_tried_behind_what_nobody_answers_for(
    harness: LandingHarness, error: UnreachableError
) -> None:
    tried = list[TaskSource]()

    def read(intake: TaskSource) -> TaskResult:
        tried.append(intake)
        if len(tried) == 3:
            raise error
        return TaskResult(None, tuple(RangeRead(one, 1, 1, 1) for one in intake.ranges), ())

    found = QuarantineRetry(harness.loop.feeds).found(
        open_of(*NAMES), LISTING, PLAN, harness.now, read
    )

    assert (found.ids, len(tried)) == (frozenset(NAMES[:2]), 3)


def test_a_schema_that_is_not_known_yet_does_not_hide_those_behind_it(
    harness: LandingHarness,
) -> None:
    def read(intake: TaskSource) -> TaskResult:
        if intake.ranges[0].first == 5:
            raise NoSchemasError("b", "does not know 9", frozenset({9}))
        return TaskResult(None, tuple(RangeRead(one, 1, 1, 1) for one in intake.ranges), ())

    found = QuarantineRetry(harness.loop.feeds).found(
        open_of(*NAMES), LISTING, PLAN, harness.now, read
    )

    assert found.ids == {*NAMES[:AT_ONCE]} - {NAMES[5]}


def test_quarantines_of_many_tables_share_a_round(harness: LandingHarness) -> None:
    read = Reading(there=len(NAMES))
    one = Quarantine(None, 1, AT_ONCE - 1, NAMES[: AT_ONCE - 1], epoch=1)
    checkpoint = Checkpoint("main", 1, quarantine={f"topic:b.db.t{n}": one for n in range(5)})

    QuarantineRetry(harness.loop.feeds).found(checkpoint, LISTING, PLAN, harness.now, read)

    assert sum(map(len, read.asked)) == AT_ONCE


def test_a_message_of_many_rows_is_read_once(harness: LandingHarness) -> None:
    read = Reading(there=1)
    ids = ("b.db.t:0:0@1",) * 3

    found = QuarantineRetry(harness.loop.feeds).found(
        open_of(*ids), LISTING, PLAN, harness.now, read
    )

    assert read.asked == [(OffsetRange("b.db.t", 0, 0, 1),)]
    assert found.ids == {*ids}


def test_what_rows_that_tell_their_own_columns_leave_to_a_new_base_is_not_read(
    harness: LandingHarness,
) -> None:
    read = Reading(there=1)
    one = Quarantine("db.t", 1, 1, ("b.db.t:0:0@1",), ("b/db.t",), epoch=1)
    told = {"b/db.t": DescribedSchema(Order(1, 7, GIB4, 0), "x")}
    checkpoint = Checkpoint("main", 1, quarantine={"b/db.t": one}, schemas=told)

    assert (
        QuarantineRetry(harness.loop.feeds).found(checkpoint, LISTING, PLAN, harness.now, read)
        == Healed()
    )
    assert read.asked == []
