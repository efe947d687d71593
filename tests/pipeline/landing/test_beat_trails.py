"""What is looked at of a batch's heartbeats?  The rest: tests/pipeline/backfill."""

from collections import UserDict
from collections.abc import ItemsView, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from pipeline.checkpoint import Checkpoint
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.file_rows import FileRows
from pipeline.formats.format import RAW, Format
from pipeline.heartbeats import HeartbeatRow
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.heartbeats import detect_missing_heartbeats, follow_histories
from pipeline.model import Acknowledged, Order, Ordering, PartitionEnd, TopicPartition
from pipeline.reports import load_gap
from pipeline.sources.mysql.position import binlog_position
from pipeline.transports.transport import OffsetRange
from tests.builders import batch_context
from tests.pipeline.backfill.test_bases_without_places import CanalDesk, heartbeat
from tests.pipeline.landing.desk import Desk, Server, Topics
from tests.pipeline.test_beats import beat

SOURCES = tuple(f"s{n}" for n in range(9))


class Looked(UserDict[str, Order]):
    """How often all that landed was gone through."""

    times = 0

    def items(self) -> ItemsView[str, Order]:
        self.times += 1
        return super().items()


def test_what_landed_is_gone_through_once_however_many_sources_there_are() -> None:
    high = Looked({f"{name}/t:0": Order(1, 0, 2) for name in SOURCES})
    before = Checkpoint("main", 4, high=high)

    made = follow_histories(
        Checkpoint("main", 5),
        batch_context(
            before,
            stats=BatchStats(beats={name: (beat(7, 3),) for name in SOURCES}),
            orderings=dict.fromkeys(SOURCES, Ordering.SEQUENCE),
        ),
    )

    assert all(one.clear for one in made.beats.values())
    assert high.times == 1


class OnceJson(CanalJson):
    """Of a log that is never sent again."""

    sent_once: ClassVar[bool] = True


class OnceDesk(CanalDesk):
    """Canal's messages, as if they came once."""

    def format(self, name: str) -> Format:
        return OnceJson("UTC")


@pytest.mark.parametrize(("desk", "once"), [(CanalDesk, False), (OnceDesk, True)])
def test_what_a_format_says_of_its_log_stands_in_the_trail(
    tmp_path: Path, desk: type[CanalDesk], *, once: bool
) -> None:
    made = desk(tmp_path, Topics({"a": [(b"", heartbeat(1))]}), Server())

    made.land()

    assert made.loop.checkpoint.beats["a"].once == once


def test_a_ledger_of_files_never_sends_again() -> None:
    assert FileRows.sent_once


def after(checkpoint: Checkpoint, numbers: list[int], said: int | None) -> Checkpoint:
    """The mark after one more batch, with those heartbeats, and what the collector said by then.

    All that there is of them has landed each time.
    """
    made = replace(checkpoint, batch=checkpoint.batch + 1)
    if said is not None:
        made = replace(made, acknowledged={"a": Acknowledged(binlog_position(1, said))})
    beats = [beat(number, 100 * made.batch + number) for number in numbers]
    made = follow_histories(
        made,
        batch_context(
            checkpoint,
            stats=BatchStats(beats={"a": tuple(beats)}),
            orderings={"a": Ordering.SEQUENCE},
        ),
    )
    return replace(made, beats={"a": replace(made.beats["a"], level=made.batch)})


@pytest.mark.parametrize(
    ("partitions", "over"),
    [
        pytest.param(1, (3, 3, 3, 3, 3), id="all of one partition has come as far"),
        pytest.param(2, (3, 4, 5, 6, 6), id="of several another may be behind"),
    ],
)
def test_what_was_sent_again_is_over_once_it_has_landed_from_all_partitions(
    partitions: int, over: tuple[int, ...]
) -> None:
    high = {f"a/t:{n}": Order(1, 0, 2) for n in range(partitions)}
    checkpoint = Checkpoint("main", -1, high=high)
    for number in (99, 100, 99, 100):
        checkpoint = after(checkpoint, [number], said=1)
    found = [checkpoint.beats["a"].over]

    for beats, said in (([101], 2), ([102], None), ([], 3), ([103], 4)):
        checkpoint = after(checkpoint, beats, said)
        found.append(checkpoint.beats["a"].over)

    assert tuple(found) == over
    assert checkpoint.beats["a"].sure == 6


SENT = Checkpoint(
    "main",
    4,
    offsets={"h:0": PartitionEnd(4)},
    heartbeats={"a": 3},
    shards={"a/d.t": "d.t", "a/d.ignored": None, "b/d.t": "d.t"},
    bases={"a/d.t": Order(1, 1, 1), "b/d.t": Order(1, 1, 1)},
)


def row(number: int, offset: int, *, partition: int = 0, read: bool = False) -> HeartbeatRow:
    return HeartbeatRow(number, "h", partition, offset, Order(1, 1, 100 + number), read)


def with_rows(
    rows: list[HeartbeatRow], before: Checkpoint = SENT, made: Checkpoint | None = None
) -> Checkpoint:
    """The mark of the next batch with those *rows* of a source with log positions."""
    top = max((before.heartbeats.get("a", -1), *(one.number for one in rows)))
    made = made or replace(before, batch=before.batch + 1, heartbeats={"a": top})
    return detect_missing_heartbeats(
        made,
        batch_context(
            before,
            stats=BatchStats(heartbeat_rows={"a": tuple(rows)}),
            orderings={"a": Ordering.LOG},
        ),
    )


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        pytest.param([row(4, 4), row(5, 5)], [], id="none is missing"),
        pytest.param([row(2, 4), row(3, 5), row(4, 6)], [], id="redelivered after a restart"),
        pytest.param([row(80, 4), row(81, 5)], [(4, 80)], id="skipped"),
        pytest.param([row(4, 4), row(9, 5), row(12, 6)], [(5, 9), (10, 12)], id="skipped twice"),
        pytest.param([row(80, 4, read=True), row(81, 5)], [], id="a snapshot read the table"),
        pytest.param([row(80, 4, read=True), row(84, 5)], [(81, 84)], id="skipped after that"),
        pytest.param([row(80, 80)], [], id="compaction removed as many records"),
        pytest.param([row(-1, 4), row(-1, 5), row(6, 6)], [(4, 6)], id="another service's rows"),
        pytest.param([row(5, 4), row(4, 0, partition=1)], [], id="in another partition"),
    ],
)
def test_f101_a_missing_heartbeat_is_a_gap_also_with_log_positions(
    rows: list[HeartbeatRow], missing: list[tuple[int, int]]
) -> None:
    gaps = [load_gap(text) for text in with_rows(rows).gaps.values()]

    assert [(gap.first, gap.until) for gap in gaps] == missing
    assert {gap.shards for gap in gaps} <= {("a/d.t",)}


def test_f101_the_first_heartbeats_of_a_source_miss_nothing() -> None:
    assert not with_rows([row(80, 4)], replace(SENT, heartbeats={})).gaps


def left(*batches: list[int]) -> list[tuple[int, int]]:
    """What was not sent again: heartbeats 4 to 8 are missing, and *batches* come after 9."""
    made, offset = with_rows([row(9, 4)]), 5
    for numbers in batches:
        made = with_rows([row(n, offset + at) for at, n in enumerate(numbers)], made)
        offset += len(numbers)
    gaps = map(load_gap, made.gaps.values())
    return [(gap.first, gap.until) for gap in gaps if not gap.sent_again]


@pytest.mark.parametrize(
    ("batches", "whole"),
    [
        pytest.param([[4, 5, 6, 7, 8, 9]], False, id="from just before the first missing one"),
        pytest.param([[3, 4, 5, 6, 7, 8, 9]], True, id="from before the heartbeat before them"),
        pytest.param([[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]], True, id="in several batches"),
        pytest.param([[3, 4, 5, 6, 7, 8]], False, id="not up to the one after them"),
        pytest.param([[3, 4, 5], [], [10, 11]], False, id="and skipped again"),
        pytest.param([[3, 4, 5], [7, 8, 9]], False, id="with a part skipped"),
        pytest.param([[3, 4, 5], [7, 8], [6, 7, 8, 9]], False, id="the skipped part came alone"),
        pytest.param([[3, 4, 5, 6], [5, 6, 7, 8, 9]], True, id="with a restart on the way"),
        pytest.param([[3, 10], [4, 5, 6, 7, 8, 9]], False, id="the one before them came alone"),
        pytest.param([[6, 7, 8, 9], [3, 4, 5]], False, id="the end first"),
    ],
)
def test_f101_only_all_of_the_log_is_sent_again_whole(
    batches: list[list[int]], *, whole: bool
) -> None:
    assert left(*batches) == ([] if whole else [(4, 9)])


def test_f101_a_base_from_the_next_heartbeat_on_has_all_that_was_not_sent() -> None:
    made = replace(SENT, batch=5, bases={**SENT.bases, "a/d.t": Order(1, 1, 180)})

    assert not with_rows([row(80, 4)], made=made).gaps


BEATS = "a.sluice.heartbeat"


@dataclass(eq=False)
class Grown(Topics):
    """The heartbeats' topic has a second partition, through which ``newer`` ones go."""

    newer: list[tuple[bytes, bytes]] = field(default_factory=list)

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {**super().ends(topics), SECOND: PartitionEnd(len(self.newer), BEATS, 0)}

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {**super().beginnings(topics), SECOND: PartitionEnd(0, BEATS, 0)}

    def batch(self, one: OffsetRange) -> pa.RecordBatch:
        if one.partition == 0:
            return super().batch(one)
        rows = [(*self.newer[at], one.topic, 1, at) for at in range(one.first, one.until)]
        return pa.RecordBatch.from_pylist(
            [dict(zip(RAW.names, row, strict=True)) for row in rows], RAW
        )


SECOND = TopicPartition(BEATS, 1)


@pytest.mark.parametrize("lost", [False, True], ids=["all came", "one never came"])
def test_heartbeats_of_an_added_partition_wait_for_those_of_the_first_one(
    tmp_path: Path, *, lost: bool
) -> None:
    """A batch that is capped would land later numbers first."""
    desk = Desk(tmp_path, topics=(topics := Grown()), names="a", most=6)
    desk.topics.snapshot("a", 10, 2)
    topics.beat("a", 1, pos=100)
    desk.land()
    for number in range(2, 10):
        topics.beat("a", number, pos=100 * number)
    for number in range(10 + lost, 13):
        topics.beat("a", number, pos=100 * number)
        topics.newer.append(topics.held[BEATS].pop())
    found = []

    for _ in range(9):
        desk.land()
        found += [load_gap(text) for text in desk.loop.checkpoint.gaps.values()]

    assert desk.loop.checkpoint.heartbeats == {"a": 12}
    assert {(one.first, one.until) for one in found} == ({(10, 11)} if lost else set())
