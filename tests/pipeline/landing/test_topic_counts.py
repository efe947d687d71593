"""What landing reads from topics comes out of it, or the ledger names the partition and the batch.

Each record counts once, whatever became of it; what a broken step of landing loses is a residual.
"""

import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.checkpoint import Checkpoint
from pipeline.clocks import LONGEST_WAIT
from pipeline.errors import UnreachableError
from pipeline.files.content import RowsHead, encode_head
from pipeline.formats.file_rows import FileRows
from pipeline.formats.format import RAW, Decoded, Format, build_batch
from pipeline.landing import task
from pipeline.landing.batch_stats import RunStats, tally_rows
from pipeline.landing.listing import TopicNames, TopicShards
from pipeline.landing.staging import Staged
from pipeline.landing.task import SLIM
from pipeline.landing.topic_counts import DecodeCounter, PartitionCounts, compare_topics
from pipeline.minute_counts import add_named
from pipeline.model import Op, Shard, TopicPartition
from pipeline.reports import LandingReport, TopicCounts
from pipeline.settings import Router
from pipeline.transports.transport import OffsetRange, RangeRead
from tests.builders.harness import (
    GIB4,
    GrownTopics,
    LandingHarness,
    Recalled,
    Topics,
    place,
    record,
)
from tests.pipeline.landing import test_no_schemas
from tests.pipeline.registry_server import Answers

T = "db.t"


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    return LandingHarness(tmp_path)


def put(harness: LandingHarness, *positions: int, source: str = "a") -> None:
    for pos in positions:
        harness.topics.put(source, pos, "x")


def missing(report: LandingReport, table: str = T) -> dict[str, int]:
    one = report.topics[table]
    return {
        name: rows - one.came_out[name]
        for name, rows in one.went_in.items()
        if rows != one.came_out[name]
    }


def test_each_message_comes_out_as_a_row(harness: LandingHarness) -> None:
    put(harness, 100, 200)
    put(harness, 300, source="b")

    counts = {"messages": 3, "rows": 3}
    assert harness.land().topics == {T: TopicCounts(counts, counts, {"c": 3})}
    assert harness.land().topics == {}


def damage(
    harness: LandingHarness,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[pa.RecordBatch], pa.RecordBatch],
    step: str = "shape_rows",
) -> None:
    """From now on this *step* of landing does *how* to its result."""
    sound = getattr(task, step)
    monkeypatch.setattr(task, step, lambda *given, **more: how(sound(*given, **more)))
    harness.whole = False


def test_a_message_that_a_step_of_landing_loses_is_named(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(harness, 100)
    harness.land()
    put(harness, 200, 300)
    damage(harness, monkeypatch, lambda rows: rows.slice(1))

    assert missing(harness.land()) == {"rows of a.db.t:0 in batch 1": 1}


def test_a_message_that_a_step_of_landing_doubles_is_named(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(harness, 100, 200)
    damage(harness, monkeypatch, lambda rows: rows.take(pa.array([0, 1, 1])))

    assert missing(harness.land()) == {"rows of a.db.t:0 in batch 0": -1}


def test_a_message_that_the_format_has_no_row_for_is_named(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(harness, 100, 200)
    damage(harness, monkeypatch, lambda rows: rows.slice(1), "decode_all_messages")

    assert missing(harness.land()) == {"messages of a.db.t:0 in batch 0": 1}


@dataclass(eq=False)
class Careless(Topics):
    """Its client returns a batch of records, and hands over *handed* times of it."""

    handed: int = 0

    def consume(self, ranges: Sequence[OffsetRange], **how: Any) -> Recalled:
        return Again(self, tuple(ranges), self.handed)


@dataclass(eq=False)
class Again(Recalled):
    times: int

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        for _ in range(self.times):
            yield from super().__iter__()


@pytest.mark.parametrize(("handed", "lost"), [(0, 2), (2, -2)])
def test_records_between_consumer_and_decoder_are_named(
    tmp_path: Path, handed: int, lost: int
) -> None:
    harness = LandingHarness(tmp_path)
    put(harness, 100)
    harness.land()
    harness = LandingHarness(tmp_path, Careless(harness.topics.held, handed=handed), whole=False)
    put(harness, 200, 300)

    assert missing(harness.land()) == {"messages of a.db.t:0 in batch 1": lost}


def test_a_loss_in_one_partition_and_a_double_in_another_do_not_cancel(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(harness, 100, 200)
    put(harness, 300, 400, source="b")

    def swap(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.slice(1) if rows["source"][0].as_py() == "a" else rows.take(TWICE)

    damage(harness, monkeypatch, swap)

    lost = {"rows of a.db.t:0 in batch 0": 1, "rows of b.db.t:0 in batch 0": -1}
    assert missing(harness.land()) == lost


TWICE = pa.array([0, 1, 1])


def test_a_statement_that_is_lost_concerns_each_table_of_its_source(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(harness, 100)
    harness.topics.insert("a", ("db", "u"), {"id": 1}, (7, 150))
    put(harness, 160, source="b")
    harness.land()
    harness.topics.alter("a", 200, "name")
    damage(harness, monkeypatch, lambda rows: rows.slice(1))

    found = harness.land()

    lost = {"rows of a:0 in batch 1": 1}
    assert {table: missing(found, table) for table in found.topics} == {"db.t": lost, "db.u": lost}


TOMBSTONE: Any = None


def test_each_message_has_its_term(harness: LandingHarness) -> None:
    put(harness, 100)
    harness.topics.held["a.db.t"] += [(b"{}", b"garbage"), (b'{"id": 0}', TOMBSTONE)]
    harness.topics.insert("a", ("db", "u"), {"id": 1}, (7, 150))

    found = harness.land().topics

    assert found[T].explained == {"c": 1, "quarantined": 1, "tombstone": 1}
    assert found["db.u"].explained == {"c": 1}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"garbage", id="no JSON"),
        pytest.param(b'{"op": "c", "after": {"id": ' + b"9" * 2_000 + b"}}", id="too large"),
        pytest.param(
            json.dumps({"op": "c", "after": {}, "source": place("t" * 65, 200)}).encode(),
            id="a name too long",
        ),
        pytest.param(b"[" * 100_000, id="too deep"),
    ],
)
def test_a_message_that_cannot_be_decoded_is_counted_as_quarantined(
    harness: LandingHarness, value: bytes
) -> None:
    put(harness, 100)
    harness.topics.held["a.db.t"].append((b"{}", value))

    found = harness.land().topics[T]

    counts = {"messages": 2, "rows": 2}
    assert found == TopicCounts(counts, counts, {"c": 1, "quarantined": 1})
    assert sum(one.count for one in harness.checkpoint.quarantine.values()) == 1


def test_a_quarantined_message_that_is_read_again_counts_only_when_it_came(
    tmp_path: Path, registry: Answers
) -> None:
    registry.schemas = test_no_schemas.SCHEMAS
    harness = test_no_schemas.asking(registry, tmp_path)
    test_no_schemas.put(harness, GIB4)
    harness.land()
    test_no_schemas.put(harness, GIB4 + 1, schema=9)
    counted = [harness.land().topics]
    for _ in range(3):
        harness.now += LONGEST_WAIT
        counted.append(harness.land().topics)
    registry.schemas = test_no_schemas.SCHEMAS | {9: json.dumps(test_no_schemas.ENVELOPE)}
    harness.now += LONGEST_WAIT
    healed = harness.land()

    assert [one[T].explained for one in counted if one] == [{"quarantined": 1}]
    assert (healed.batch, healed.topics, harness.checkpoint.quarantine) == (2, {}, {})


def test_a_partition_that_is_added_while_a_batch_is_read_counts_from_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = GrownTopics()
    harness = LandingHarness(tmp_path, topics)
    put(harness, 100, 200)

    def grow() -> None:
        put(harness, 300, 400, 500)
        topics.newer += [topics.held["a.db.t"].pop() for _ in range(2)][::-1]

    harness.meanwhile = grow
    assert harness.land().topics[T].went_in == {"messages": 2, "rows": 2}
    assert harness.land().topics[T].went_in == {"messages": 3, "rows": 3}

    put(harness, 600, 700)
    topics.newer.append(topics.held["a.db.t"].pop())
    damage(harness, monkeypatch, lambda rows: rows.filter(pc.equal(rows["partition"], 0)))
    assert missing(harness.land()) == {"rows of a.db.t:1 in batch 2": 1}


def test_a_topic_of_which_no_message_can_be_read_counts_for_the_tables_it_may_have(
    harness: LandingHarness,
) -> None:
    put(harness, 100)
    harness.land()
    harness.topics.held["a.db.t"] += [(b"{}", b"garbage")] * 3

    assert harness.land().topics[T].explained == {"quarantined": 3}


def test_offsets_that_no_consumer_returns_are_not_missing(harness: LandingHarness) -> None:
    put(harness, *range(100, 700, 100))
    harness.topics.holes = frozenset({("a.db.t", 0), ("a.db.t", 3), ("a.db.t", 5)})

    assert harness.land().topics[T].went_in == {"messages": 3, "rows": 3}


def test_a_batch_that_failed_counts_once_it_is_committed(harness: LandingHarness) -> None:
    put(harness, 100, 200)

    def fail() -> None:
        raise UnreachableError("Kafka does not answer")

    harness.meanwhile = fail
    with pytest.raises(UnreachableError):
        harness.land()

    assert harness.land().topics[T].came_out == {"messages": 2, "rows": 2}


def test_what_is_sent_again_counts_as_often_as_it_came(harness: LandingHarness) -> None:
    put(harness, GIB4 - 300, GIB4 - 200)
    harness.land()
    put(harness, GIB4 - 300, GIB4 - 200)

    assert harness.land().topics[T].came_out == {"messages": 2, "rows": 2}


def test_markers_of_a_transaction_without_captured_changes_are_left_out(
    harness: LandingHarness,
) -> None:
    put(harness, 100)
    markers: list[dict[str, object]] = [
        {"status": "BEGIN", "id": "7", "event_count": None, "data_collections": None},
        {"status": "END", "id": "7", "event_count": 0, "data_collections": []},
    ]
    for one in markers:
        harness.topics.held.setdefault("a.transaction", []).append(record("7", one))
    harness.land()
    harness.topics.held["a.transaction"] += [record("8", one | {"id": "8"}) for one in markers]
    harness.topics.put("a", 200, "x")

    assert harness.land().topics[T].explained == {"c": 1}


@dataclass(eq=False)
class FilesHarness(LandingHarness):
    """Its messages are lines of files."""

    def format(self, name: str) -> Format:
        return FileRows()


def test_a_line_without_a_row_is_skipped_and_not_missing(tmp_path: Path) -> None:
    harness = FilesHarness(tmp_path)
    head = RowsHead(T, "t/d/h/1.json", "2026_11_23", "05", first=0, at=0, key=("id",))
    lines = (b'{"id": 1}', b" ", b'{"id": 2}')
    harness.topics.held["a.db.t"] = [(encode_head(head), line) for line in lines]

    counts = {"messages": 3, "rows": 3}
    assert harness.land().topics[T] == TopicCounts(counts, counts, {"c": 2, "skipped": 1})


def test_messages_without_a_change_and_left_out_rows_balance() -> None:
    raw = messages(4)
    decoded = build_batch(
        [
            (0, Decoded(Op.SKIPPED)),
            (1, Decoded(Op.UPDATE, "db.t")),
            (1, Decoded(Op.UPDATE, "db.t")),
            (2, Decoded(Op.DDL, "db.t", schema_id=1)),
        ]
    )
    counter = DecodeCounter()

    counter.add_decoded(decoded, raw)
    counter.add_left_out("skipped", decoded.slice(0, 1), raw)

    asked = OffsetRange("t", 0, 0, 4)
    (counts,) = counter.with_returned([RangeRead(asked, 0, 3, 4)]).values()
    assert counts == PartitionCounts(returned=4, decoded=3, rows=3, left_out={"skipped": 1})


def messages(count: int) -> pa.RecordBatch:
    rows = [{"topic": "t", "partition": 0, "offset": at} for at in range(count)]
    return pa.RecordBatch.from_pylist(rows, RAW)


def landing(at: TopicPartition, rows: Mapping[tuple[str, str], int]) -> RunStats:
    """Statistics of *rows* that landed from there, by table and op."""
    return replace(NO_ROWS, landed={at: rows})


NO_ROWS = tally_rows(SLIM.empty_table())


def test_partitions_of_a_topic_count_apart_and_add_up() -> None:
    counts = {TopicPartition("t", n): PartitionCounts(2, 2, 2) for n in range(3)}
    tallies = [landing(at, {("x", "c"): 2}) for at in counts]

    found = compare_topics(counts, tallies, 4, lambda _: ())
    lost = compare_topics(counts, tallies[:2], 4, lambda _: ())

    assert found["x"] == TopicCounts(units := {"messages": 6, "rows": 6}, units, {"c": 6})
    assert (lost["x"].went_in, lost["x"].came_out) == (
        {"messages": 6, "rows": 4, "rows of t:2 in batch 4": 2},
        {"messages": 6, "rows": 4, "rows of t:2 in batch 4": 0},
    )


def test_rows_of_each_table_of_a_topic_and_of_none_have_their_term() -> None:
    at = TopicPartition("t", 0)
    of_no_table = {Op.HEARTBEAT: 1, Op.BEGIN: 2, Op.END: 3, Op.DDL: 4, Op.ERROR: 5, Op.CREATE: 6}
    rows = {("x", "c"): 7, ("y", "u"): 8, ("y", "error"): 9} | {
        ("", str(op)): n for op, n in of_no_table.items()
    }
    counts = {at: PartitionCounts(45, 45, 45)}

    found = compare_topics(counts, [landing(at, rows)], 0, lambda _: ("z",))

    shared = {"heartbeat": 1, "begin": 2, "end": 3, "schema_change": 4, "quarantined": 5}
    assert {table: one.explained for table, one in found.items()} == {
        "x": shared | {"no_table": 6, "c": 7, "other_table": 17},
        "y": shared | {"no_table": 6, "u": 8, "other_table": 7, "quarantined": 14},
        "z": shared | {"no_table": 6, "other_table": 24},
    }
    units = {"messages": 45, "rows": 45}
    assert {(str(one.went_in), str(one.came_out)) for one in found.values()} == {(str(units),) * 2}


def test_rows_of_a_partition_of_which_nothing_was_read_are_too_many() -> None:
    (found,) = compare_topics(
        {}, [landing(TopicPartition("t", 1), {("x", "c"): 2})], 3, lambda _: ()
    ).values()

    name = "rows of t:1 in batch 3"
    assert (found.went_in[name], found.came_out[name]) == (0, 2)


def count_one_by_one(
    counts: Mapping[TopicPartition, PartitionCounts],
    landed: Sequence[tuple[TopicPartition, str, str]],
    carried: Mapping[str, Sequence[str]],
) -> dict[str, TopicCounts]:
    """What batch 7 brought, by its definition: each topic for each table, row after row."""
    found: dict[str, TopicCounts] = {}
    for topic in sorted({at.topic for at in (*counts, *(at for at, *_ in landed))}):
        rows = [one for one in landed if one[0].topic == topic]
        went_in, came_out = {"messages": 0, "rows": 0}, {"messages": 0, "rows": 0}
        explained: dict[str, int] = {}
        for at in {*(at for at in counts if at.topic == topic), *(at for at, *_ in rows)}:
            one = counts.get(at, PartitionCounts())
            explained = add_named(explained, one.left_out)
            out = sum(one.left_out.values()) + sum(1 for there, *_ in rows if there == at)
            for unit, n, m in ("messages", one.returned, one.decoded), ("rows", one.rows, out):
                name = unit if n == m else f"{unit} of {at} in batch 7"
                went_in, came_out = add_named(went_in, {name: n}), add_named(came_out, {name: m})
        tables = {table for _, table, _ in rows if table}
        if went_in != came_out or any(row[1:] == ("", Op.ERROR) for row in rows):
            tables |= {*carried[topic]}
        for table in tables:
            terms = [{term_of(table, own, op): 1} for _, own, op in rows]
            more = TopicCounts(went_in, came_out, add_named(explained, *terms))
            found[table] = found[table] + more if table in found else more
    return found


def term_of(table: str, own: str, op: str) -> str:
    if own not in ("", table):
        return "other_table"
    if not own and op not in (Op.HEARTBEAT, Op.BEGIN, Op.END, Op.DDL, Op.ERROR):
        return "no_table"
    return {"error": "quarantined", "ddl": "schema_change"}.get(op, op)


PLACES = st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 1))
ROWS = st.tuples(PLACES, st.sampled_from(["", "x", "y", "z"]), st.sampled_from([*map(str, Op)]))
LEFT_OUT = st.dictionaries(st.sampled_from(["skipped", "no_table"]), st.integers(1, 3))
CARRIED = st.sampled_from([(), ("x",), ("x", "y"), ("y", "x"), ("w",)])


@given(
    st.lists(st.lists(ROWS, max_size=6), max_size=3),
    st.dictionaries(PLACES, st.tuples(st.integers(0, 1), st.integers(0, 1), LEFT_OUT)),
    st.fixed_dictionaries(dict.fromkeys("tuv", CARRIED)),
)
def test_each_table_has_the_counts_of_its_topics_row_after_row(
    runs: list[list[tuple[TopicPartition, str, str]]],
    read: Mapping[TopicPartition, tuple[int, int, Mapping[str, int]]],
    carried: Mapping[str, Sequence[str]],
) -> None:
    rows = [row for run in runs for row in run]
    counts = {}
    for at, (unanswered, lost, left_out) in read.items():
        made = sum(left_out.values()) + lost + sum(1 for there, *_ in rows if there == at)
        counts[at] = PartitionCounts(made + unanswered, made, made, left_out)
    tallies = [
        landing(at, add_named(*({row[1:]: 1} for row in run if row[0] == at)))
        for run in runs
        for at in {row[0] for row in run}
    ]

    assert compare_topics(counts, tallies, 7, carried.__getitem__) == count_one_by_one(
        counts, rows, carried
    )


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of functions of any kind *work* is."""
    calls = 0

    def count(frame: FrameType, event: str, function: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(
    ("few", "many"),
    [
        pytest.param((1, 1, 100), (1, 1, 400), id="tables of a topic"),
        pytest.param((1, 8, 25), (1, 8, 100), id="tables of a topic of many partitions"),
        pytest.param((50, 1, 1), (200, 1, 1), id="topics of one table"),
    ],
)
@pytest.mark.parametrize("unread", [False, True], ids=["read", "one row of each topic unread"])
def test_counts_of_topics_cost_as_much_as_their_rows(
    few: tuple[int, int, int], many: tuple[int, int, int], *, unread: bool
) -> None:
    def cost(topics: int, partitions: int, tables: int) -> int:
        landed = {
            TopicPartition(f"t{n}", at): {(f"{n}.{table}", "c"): 1 for table in range(tables)}
            | ({("", "error"): 1} if unread else {})
            for n in range(topics)
            for at in range(partitions)
        }
        counts = {at: PartitionCounts(len(own), len(own), len(own)) for at, own in landed.items()}
        every = frozenset(table for own in landed.values() for table, _ in own if table)
        tallies = [replace(NO_ROWS, landed=landed)]
        return calls_of(lambda: compare_topics(counts, tallies, 7, lambda _: every))

    assert cost(*many) < 5 * cost(*few)


@pytest.mark.parametrize("routed", [True, False], ids=["routed", "tables without a topic"])
def test_unread_rows_of_many_topics_cost_as_much_as_their_tables(*, routed: bool) -> None:
    names = TopicNames("s", "shop", routed=routed)

    def cost(topics: int) -> int:
        landed = {TopicPartition(f"shop.t{n}", 0): {("", "error"): 1} for n in range(topics)}
        counts = {at: PartitionCounts(1, 1, 1) for at in landed}
        staged = Staged((), (replace(NO_ROWS, landed=landed),), {}, counts)
        known = {Shard("s", f"db.u{n}"): f"db.u{n}" for n in range(topics)}
        made = Checkpoint("main", 7, {}, shards=known)
        shards, router = TopicShards(made, known, lambda _: names), Router()
        return calls_of(lambda: staged.compare_topics(shards, router))

    assert cost(200) < 5 * cost(50)
