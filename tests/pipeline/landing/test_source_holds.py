"""What frees a source that is held, which rows it waits for, and what a waiver leaves out."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.checkpoint import Checkpoint, DescribedSchema, Epoch, Existence, Gap
from pipeline.clocks import FIRST_WAIT
from pipeline.errors import NoSchemasError
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.epochs import Epochs
from pipeline.landing.listing import Listing
from pipeline.landing.plan import Plan
from pipeline.landing.redelivery import StrangeRows
from pipeline.landing.source_holds import (
    PATIENCE,
    RESENT,
    HoldContext,
    LateRows,
    SourceHolds,
    UndecidedRow,
    note_late_rows,
)
from pipeline.model import Head, Order, OrderSpan, Shard, TopicPartition
from pipeline.reports import Hold
from pipeline.settings import RegistrySettings
from pipeline.sources.mysql.position import binlog_position
from tests.builders import batch_context

AT = datetime(2026, 1, 2, tzinfo=UTC)
A_ROW = (TopicPartition("a.db.t", 0), 7)
SERVER = Head("A", binlog_position(1, 0))
LISTING = Listing({}, {}, {"a.db.t": "a", "b.db.t": "b"}, {}, {})
DISORDER = Hold("disorder:a:a.db.t:0:7@1", "source:a", "disorder", "a row is out of order")


def context(**bent: Any) -> HoldContext:
    plain = HoldContext(Plan({}, {}, (), capped=False), LISTING, Epochs({}, {}), frozenset())
    return replace(plain, **bent)


def lost_with(topic: str) -> Plan:
    return Plan({}, {}, (Gap("g", topic, 0, 1, 9, "created_again"),), capped=False)


@pytest.mark.parametrize(
    ("bent", "due"),
    [
        pytest.param({}, False, id="nothing is new"),
        pytest.param({"chosen": lost_with("b.db.t")}, False, id="a gap of another source"),
        pytest.param({"chosen": lost_with("a.db.t")}, True, id="a gap of its own"),
        pytest.param({"waived": frozenset({"g"})}, True, id="a waiver"),
        pytest.param(
            {"epochs": Epochs({"a": Epoch(2, "A", binlog_position(1, 0))}, {})}, True, id="a log"
        ),
        pytest.param(
            {"listing": replace(LISTING, heads={"a": (SERVER, SERVER)})},
            True,
            id="its server answers",
        ),
        pytest.param(
            {"listing": replace(LISTING, heads={"b": (SERVER, SERVER)})},
            False,
            id="another server answers",
        ),
    ],
)
def test_a_held_source_is_read_again_once_something_that_may_free_it_is_new(
    bent: dict[str, Any], due: bool
) -> None:
    holds = SourceHolds()
    holds.judged({"a"}, {"a": DISORDER}, context(), AT)

    assert (holds.standing(context(**bent), AT) == {}) is due
    assert (holds.holds("a"), holds.holds("b")) == (True, False)


def test_a_source_that_was_free_is_held_no_more_and_waits_from_the_start_the_next_time() -> None:
    holds = SourceHolds()
    for _ in range(9):
        holds.judged({"a"}, {"a": DISORDER}, context(), AT)

    holds.judged({"a"}, {}, context(), AT)

    assert not holds.holds("a")
    holds.judged({"a"}, {"a": DISORDER}, context(), AT)
    assert holds.standing(context(), AT + FIRST_WAIT / 2) == {"a": DISORDER}
    assert holds.standing(context(), AT + FIRST_WAIT) == {}


@pytest.mark.parametrize(
    ("read", "found", "undecided", "waits"),
    [
        pytest.param({"a"}, {}, {A_ROW}, False, id="it is undecided still"),
        pytest.param({"a"}, {"a": DISORDER}, set(), False, id="its source is held"),
        pytest.param({"b"}, {}, set(), False, id="its source was not read"),
        pytest.param({"a"}, {}, set(), True, id="its source has gone on"),
    ],
)
def test_a_row_that_was_waited_for_is_forgotten_once_its_source_goes_on(
    read: set[str], found: dict[str, Hold], undecided: set[UndecidedRow], waits: bool
) -> None:
    holds = SourceHolds()
    assert holds.waits(A_ROW, AT)

    holds.judged(read, found, context(), AT, undecided)

    assert holds.waits(A_ROW, AT + RESENT) is waits


def test_a_row_that_was_held_before_a_restart_is_waited_for_no_more() -> None:
    holds = SourceHolds()

    holds.recall(["registry:a", DISORDER.id])

    assert not holds.waits(A_ROW, AT)
    assert holds.waits((A_ROW[0], 8), AT)


REGISTRY = SchemaRegistry("a", RegistrySettings("http://127.0.0.1:1"))


def given_up(holds: SourceHolds, source: str = "a") -> frozenset[int] | None:
    found = holds.registry(source, REGISTRY)
    assert found is not None
    return found.lost


def test_a_schema_is_given_up_only_after_its_registry_has_not_known_it_for_a_while() -> None:
    holds = SourceHolds()
    early, late = AT + PATIENCE / 2, AT + PATIENCE

    first = holds.no_schemas(NoSchemasError("a", "it knows no 7", frozenset({7})), AT)
    holds.no_schemas(NoSchemasError("a", "it knows no 8", frozenset({8})), early)
    before = given_up(holds)
    holds.no_schemas(NoSchemasError("a", "it knows no 7 and 8", frozenset({7, 8})), late)
    then = given_up(holds)
    holds.no_schemas(NoSchemasError("a", "it knows no 8", frozenset({8})), early + PATIENCE)

    assert (before, then) == (frozenset(), frozenset({7}))
    assert given_up(holds) == frozenset({7, 8})
    assert given_up(holds, "b") == frozenset()
    assert first.detail.endswith("and then quarantines messages whose schema is still unknown")
    assert holds.registry("a", None) is None


def test_a_registry_that_does_not_answer_gives_up_no_schema() -> None:
    holds = SourceHolds()

    for at in (AT, AT + PATIENCE):
        hold = holds.no_schemas(NoSchemasError("a", "no route"), at)

    assert given_up(holds) == frozenset()
    assert hold.detail == "no route; nothing is lost, landing resumes when the registry answers"


@pytest.mark.parametrize(
    ("read", "given"),
    [({"a"}, frozenset()), ({"b"}, frozenset({7}))],
    ids=["its own source", "another source"],
)
def test_only_a_source_that_goes_on_is_waited_for_from_the_start(
    read: set[str], given: frozenset[int]
) -> None:
    holds, unknown = SourceHolds(), NoSchemasError("a", "it knows no 7", frozenset({7}))
    holds.no_schemas(unknown, AT)

    holds.judged(read, {}, context(), AT)
    holds.no_schemas(unknown, AT + PATIENCE)

    assert given_up(holds) == given


# rows that a waiver lets pass


def epochs_of(**numbers: int) -> Epochs:
    return Epochs({n: Epoch(e, "A", binlog_position(1, 0)) for n, e in numbers.items()}, {})


def at_pos(pos: int, epoch: int = 1) -> Order:
    return Order(epoch, 1, pos)


def span(lowest: int, highest: int, epoch: int = 1) -> OrderSpan:
    return OrderSpan(at_pos(lowest, epoch), at_pos(highest, epoch))


def strange_rows(**late: dict[str, OrderSpan]) -> StrangeRows:
    found = StrangeRows()
    found.late = late
    return found


def test_rows_that_are_let_pass_keep_the_orders_of_the_log_that_stood_before() -> None:
    before, now = epochs_of(a=2, b=1), epochs_of(a=3, b=1)
    strange = strange_rows(
        a={"a/db.t": span(5, 9, epoch=3), "a/db.u": span(4, 4, epoch=2)},
        b={"b/db.t": span(5, 9)},
    )

    once = LateRows(before).with_waived(strange, before, now)
    again = strange_rows(a={"a/db.t": span(2, 7, epoch=4)})
    twice = once.with_waived(again, now, epochs_of(a=4, b=1))

    assert once.let_pass == {"a": {"a/db.t": span(5, 9, epoch=2), "a/db.u": span(4, 4, epoch=2)}}, (
        "the epoch of b has not changed: its rows were not let pass"
    )
    assert twice.let_pass["a"]["a/db.t"] == span(2, 9, epoch=2)
    assert twice.let_pass["a"]["a/db.u"] == span(4, 4, epoch=2)


def test_a_batch_says_which_shards_have_late_rows_and_which_of_them_a_waiver_let_pass() -> None:
    let_pass = {"a": {"a/db.t": span(1, 2)}, "b": {"b/db.t": span(3, 4)}}
    explained = strange_rows(c={"c/db.t": span(5, 6)})

    found = LateRows(epochs_of(), let_pass).noted(BatchStats(rows=7), explained, held={"b"})

    assert found == BatchStats(
        rows=7, late=frozenset({"a/db.t", "c/db.t"}), let_pass={"a/db.t": span(1, 2)}
    )


OLD, NEW, OTHER = Shard("a", "db.old"), Shard("a", "db.new"), Shard("b", "db.new")
EXISTING = {
    OLD: Existence(at_pos(50), there=False),
    NEW: Existence(at_pos(50), there=True),
    OTHER: Existence(at_pos(50), there=True),
}
TABLES: dict[Shard, str | None] = {OLD: "old", NEW: "new", OTHER: "new"}
LET_PASS = Checkpoint(
    "main",
    4,
    shards=TABLES,
    existing=EXISTING,
    epochs=epochs_of(a=2).known,
    bases={NEW: at_pos(10), OTHER: at_pos(10)},
    belated={"elsewhere": 1},
)
ROWS_OF_OLD = {str(OLD): span(20, 30)}


def note_rows(checkpoint: Checkpoint, let_pass: dict[str, OrderSpan]) -> Checkpoint:
    """Of batch 4, with these late rows."""
    stats = BatchStats(late=frozenset(let_pass), let_pass=let_pass)
    return note_late_rows(checkpoint, batch_context(replace(checkpoint, batch=3), stats=stats))


def short_shards(checkpoint: Checkpoint) -> list[tuple[str, ...]]:
    """The shards of each gap."""
    return [gap.shards for gap in checkpoint.gaps.values()]


def test_a_mirror_from_before_late_rows_lacks_them() -> None:
    late = frozenset({str(NEW), "a/db.ignored"})
    checkpoint = replace(LET_PASS, shards=TABLES | {Shard("a", "db.ignored"): None})

    found = note_late_rows(checkpoint, batch_context(checkpoint, stats=BatchStats(late=late)))

    assert found.belated == {"elsewhere": 1, "new": 4}
    assert found.gaps == {}


def test_rows_that_are_older_than_a_rename_leave_a_gap_in_the_renamed_table() -> None:
    found = note_rows(LET_PASS, ROWS_OF_OLD)

    (gap,) = found.gaps.values()
    assert (gap.id, gap.shards, gap.above) == ("outdated:a:0:4@4", (str(NEW),), Order(2, 0, 0))
    assert "run `sluice bootstrap TABLE" in gap.why


@pytest.mark.parametrize(
    ("more", "short"),
    [
        pytest.param({}, [(str(NEW),)], id="a base from before them"),
        pytest.param({"bases": {}}, [(str(NEW),)], id="no base"),
        pytest.param({"bases": {NEW: at_pos(29)}}, [(str(NEW),)], id="a base from between them"),
        pytest.param({"bases": {NEW: at_pos(30)}}, [], id="a base from behind them"),
        pytest.param({"shards": {NEW: None}}, [], id="of no table"),
        pytest.param({"shards": {}}, [], id="of a shard that nobody knows"),
        pytest.param({"existing": {OLD: Existence(at_pos(50), there=False)}}, [], id="not renamed"),
        pytest.param(
            {"existing": EXISTING | {NEW: Existence(at_pos(20), there=True)}},
            [],
            id="a table that stood before all of them",
        ),
        pytest.param(
            {"existing": EXISTING | {OLD: Existence(at_pos(20), there=False)}},
            [],
            id="rows that no statement is newer than",
        ),
        pytest.param(
            {"existing": EXISTING | {OLD: Existence(at_pos(25), there=False)}}
            | {"bases": {NEW: at_pos(25)}},
            [],
            id="rows behind the rename are not its own",
        ),
        pytest.param(
            {"schemas": {str(OLD): DescribedSchema(at_pos(50), "x")}},
            [],
            id="rows described the columns, not a statement",
        ),
    ],
)
def test_a_table_is_short_of_late_rows_from_before_a_statement_about_it(
    more: dict[str, Any], short: list[tuple[str, ...]]
) -> None:
    assert short_shards(note_rows(replace(LET_PASS, **more), ROWS_OF_OLD)) == short


@pytest.mark.parametrize(
    ("base", "short"),
    [
        pytest.param(at_pos(99), [(str(NEW),)], id="of the log that stood"),
        pytest.param(at_pos(1, epoch=2), [], id="of the log that was waived"),
    ],
)
def test_a_table_that_took_the_name_has_rows_of_another_until_its_base_is_of_the_new_log(
    base: Order, short: list[tuple[str, ...]]
) -> None:
    checkpoint = replace(LET_PASS, bases={NEW: base})

    assert short_shards(note_rows(checkpoint, {str(NEW): span(20, 30)})) == short


def test_the_lowest_of_all_late_rows_of_a_source_counts() -> None:
    existing = EXISTING | {NEW: Existence(at_pos(15), there=True)}
    checkpoint = replace(LET_PASS, existing=existing)
    second = {str(Shard("a", "db.gone")): span(12, 14)}
    gone = {Shard("a", "db.gone"): Existence(at_pos(40), there=False)}

    assert short_shards(note_rows(checkpoint, ROWS_OF_OLD)) == []
    assert short_shards(
        note_rows(replace(checkpoint, existing=existing | gone), ROWS_OF_OLD | second)
    ) == [(str(NEW),)]
