"""Heartbeats prove what has landed, where versions are no sequence over the whole source."""

from collections import UserDict
from collections.abc import ItemsView, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.checkpoint import Checkpoint
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.file_rows import FileRows
from pipeline.formats.format import Format
from pipeline.heartbeats import HeartbeatBacklog, HeartbeatHistory, HeartbeatRow, LandedHeartbeat
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.heartbeats import (
    HeartbeatLowWatermark,
    detect_missing_heartbeats,
    follow_histories,
    note_levels,
)
from pipeline.landing.listing import Listing
from pipeline.model import (
    Acknowledged,
    Op,
    Order,
    Ordering,
    PartitionEnd,
    Shard,
    SourcePartition,
    TopicPartition,
)
from pipeline.sources.mysql.position import binlog_position
from tests.builders import batch_context, orders_at
from tests.builders.harness import GrownTopics, LandingHarness, Server, Topics, load_gaps
from tests.example_count import examples
from tests.pipeline.backfill.test_bases_without_places import CanalHarness, heartbeat
from tests.pipeline.test_heartbeats import landed_heartbeat as landed_beat

SEQUENCE = {"a": Ordering.SEQUENCE}


@dataclass(frozen=True, slots=True)
class Counted(DebeziumJson):
    """Its places are the sender's own sequence."""

    ordering: ClassVar[Ordering] = Ordering.SEQUENCE


@dataclass(eq=False)
class CountedHarness(LandingHarness):
    def format(self, name: str) -> Format:
        return Counted()

    def write_heartbeat(self, number: int, version: int) -> None:
        """A heartbeat comes out, and then the log goes on."""
        self.topics.write_heartbeat("a", number, pos=version)
        self.land()
        self.server.end += 10


@pytest.fixture
def harness(tmp_path: Path) -> CountedHarness:
    made = CountedHarness(tmp_path, names="a")
    made.topics.put("a", 5, "first")
    for number in range(1, 6):
        made.write_heartbeat(number, 100 * number)
    return made


def test_a_version_below_a_heartbeat_that_is_passed_holds_the_source(
    harness: CountedHarness,
) -> None:
    """Its partition has shown nothing as high: it is counted by its own row."""
    harness.topics.put("a", 6, "lost, if a base stands above it")

    (hold,) = harness.land().holds

    assert hold.reason == "disorder"
    assert (
        "a.db.t:0 offset 1: change is older than the landed order and not a redelivery"
        in hold.detail
    )
    assert len(harness.landed()) == 1


def test_what_a_topic_holds_when_it_is_met_may_be_older(harness: CountedHarness) -> None:
    """It was there before, and nobody let us read it; from then on it is as any other."""
    harness.topics.insert("a", ("db", "new"), {"id": 1}, (7, 6))
    assert not harness.land().holds
    harness.write_heartbeat(6, 600)
    harness.write_heartbeat(7, 700)
    harness.write_heartbeat(8, 800)

    harness.topics.insert("a", ("db", "new"), {"id": 2}, (7, 7))

    assert [one.reason for one in harness.land().holds] == ["disorder"]


def test_one_above_it_lands_and_so_does_what_is_sent_again(harness: CountedHarness) -> None:
    harness.topics.put("a", 5, "first")  # again
    harness.topics.put("a", 900, "new")

    assert not harness.land().holds
    assert len(harness.landed()) == 3


def test_a_message_that_was_logged_before_the_newest_heartbeat_may_come_after_it(
    harness: CountedHarness,
) -> None:
    """Another partition was slower: nobody has acknowledged yet that all before it has arrived."""
    harness.server.silent = True
    harness.write_heartbeat(6, 600)
    harness.topics.put("a", 550, "slower")

    assert not harness.land().holds
    harness.server.silent = False
    harness.write_heartbeat(7, 700)
    harness.write_heartbeat(8, 800)
    harness.topics.put("a", 560, "too late")
    assert [one.reason for one in harness.land().holds] == ["disorder"]


def test_a_person_lets_it_through_as_a_new_log(harness: CountedHarness) -> None:
    harness.topics.put("a", 6, "lower")
    (hold,) = harness.land().holds

    assert not harness.land(hold.id).holds
    assert [one["order"]["epoch"] for one in harness.landed(Op.CREATE)] == [1, 2]
    harness.topics.put("a", 7, "of the new log")
    assert not harness.land().holds


@pytest.mark.parametrize("ordering", [Ordering.LOG, Ordering.OFFSET])
def test_other_orders_have_none(harness: CountedHarness, ordering: Ordering) -> None:
    passed = HeartbeatLowWatermark()
    for number in (6, 7, 8):
        harness.write_heartbeat(number, 100 * number)
        found = passed.floors(harness.checkpoint, listing(harness), {"a": ordering})

        assert not found


def test_after_a_restart_it_is_found_out_anew(harness: CountedHarness) -> None:
    checkpoint, passed = harness.checkpoint, HeartbeatLowWatermark()

    first = passed.floors(checkpoint, listing(harness), SEQUENCE)
    harness.write_heartbeat(6, 600)
    then = passed.floors(harness.checkpoint, listing(harness), SEQUENCE)

    assert first == {}
    order = checkpoint.heartbeat_histories["a"].order
    assert then == orders_at({"a/a.db.t:0": order, "a/a.sluice.heartbeat:0": order})


def listing(harness: CountedHarness) -> Listing:
    return harness.loop.upstream.list(harness.checkpoint.offsets)


# histories

SOURCES = tuple(f"s{n}" for n in range(9))


class Looked(UserDict[SourcePartition, Order]):
    """How often all that landed was gone through."""

    times = 0

    def items(self) -> ItemsView[SourcePartition, Order]:
        self.times += 1
        return super().items()


def test_what_landed_is_gone_through_once_however_many_sources_there_are() -> None:
    high = Looked(orders_at({f"{name}/t:0": Order(1, 0, 2) for name in SOURCES}))
    before = Checkpoint("main", 4, high=high)

    made = follow_histories(
        Checkpoint("main", 5),
        batch_context(
            before,
            stats=BatchStats(landed_heartbeats={name: (landed_beat(7, 3),) for name in SOURCES}),
            orderings=dict.fromkeys(SOURCES, Ordering.SEQUENCE),
        ),
    )

    assert all(one.clear for one in made.heartbeat_histories.values())
    assert high.times == 1


class OnceJson(CanalJson):
    """Of a log that is never sent again."""

    sent_once: ClassVar[bool] = True


class OnceHarness(CanalHarness):
    """Canal's messages, as if they came once."""

    def format(self, name: str) -> Format:
        return OnceJson("UTC")


@pytest.mark.parametrize(("harness", "once"), [(CanalHarness, False), (OnceHarness, True)])
def test_what_a_format_says_of_its_log_stands_in_the_trail(
    tmp_path: Path, harness: type[CanalHarness], *, once: bool
) -> None:
    made = harness(tmp_path, Topics({"a": [(b"", heartbeat(1))]}), Server())

    made.land()

    assert made.checkpoint.heartbeat_histories["a"].once == once


def test_a_ledger_of_files_never_sends_again() -> None:
    assert FileRows.sent_once


def checkpoint_after(checkpoint: Checkpoint, numbers: list[int], said: int | None) -> Checkpoint:
    """The mark after one more batch, with those heartbeats, and what the collector said by then.

    All that there is of them has landed each time.
    """
    made = replace(checkpoint, batch=checkpoint.batch + 1)
    if said is not None:
        made = replace(made, acknowledged={"a": Acknowledged(binlog_position(1, said))})
    beats = [landed_beat(number, 100 * made.batch + number) for number in numbers]
    made = follow_histories(
        made,
        batch_context(
            checkpoint,
            stats=BatchStats(landed_heartbeats={"a": tuple(beats)}),
            orderings={"a": Ordering.SEQUENCE},
        ),
    )
    return replace(
        made, heartbeat_histories={"a": replace(made.heartbeat_histories["a"], level=made.batch)}
    )


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
    high = orders_at({f"a/t:{n}": Order(1, 0, 2) for n in range(partitions)})
    checkpoint = Checkpoint("main", -1, high=high)
    for number in (99, 100, 99, 100):
        checkpoint = checkpoint_after(checkpoint, [number], said=1)
    found = [checkpoint.heartbeat_histories["a"].over]

    for beats, said in (([101], 2), ([102], None), ([], 3), ([103], 4)):
        checkpoint = checkpoint_after(checkpoint, beats, said)
        found.append(checkpoint.heartbeat_histories["a"].over)

    assert tuple(found) == over
    assert checkpoint.heartbeat_histories["a"].sure == 6


SENT = Checkpoint(
    "main",
    4,
    offsets={TopicPartition("h", 0): PartitionEnd(4)},
    heartbeats={"a": 3},
    shards={
        Shard.parse("a/d.t"): "d.t",
        Shard.parse("a/d.ignored"): None,
        Shard.parse("b/d.t"): "d.t",
    },
    bases={Shard("a", "d.t"): Order(1, 1, 1), Shard("b", "d.t"): Order(1, 1, 1)},
)


def heartbeat_row(
    number: int, offset: int, *, partition: int = 0, read: bool = False
) -> HeartbeatRow:
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
        pytest.param([heartbeat_row(4, 4), heartbeat_row(5, 5)], [], id="none is missing"),
        pytest.param(
            [heartbeat_row(2, 4), heartbeat_row(3, 5), heartbeat_row(4, 6)],
            [],
            id="redelivered after a restart",
        ),
        pytest.param([heartbeat_row(80, 4), heartbeat_row(81, 5)], [(4, 80)], id="skipped"),
        pytest.param(
            [heartbeat_row(4, 4), heartbeat_row(9, 5), heartbeat_row(12, 6)],
            [(5, 9), (10, 12)],
            id="skipped twice",
        ),
        pytest.param(
            [heartbeat_row(80, 4, read=True), heartbeat_row(81, 5)],
            [],
            id="a snapshot read the table",
        ),
        pytest.param(
            [heartbeat_row(80, 4, read=True), heartbeat_row(84, 5)],
            [(81, 84)],
            id="skipped after that",
        ),
        pytest.param([heartbeat_row(80, 80)], [], id="compaction removed as many records"),
        pytest.param(
            [heartbeat_row(-1, 4), heartbeat_row(-1, 5), heartbeat_row(6, 6)],
            [(4, 6)],
            id="another service's rows",
        ),
        pytest.param(
            [heartbeat_row(5, 4), heartbeat_row(4, 0, partition=1)], [], id="in another partition"
        ),
    ],
)
def test_f101_a_missing_heartbeat_is_a_gap_also_with_log_positions(
    rows: list[HeartbeatRow], missing: list[tuple[int, int]]
) -> None:
    gaps = load_gaps(with_rows(rows))

    assert [(gap.first, gap.until) for gap in gaps] == missing
    assert {gap.shards for gap in gaps} <= {("a/d.t",)}


def test_f101_the_first_heartbeats_of_a_source_miss_nothing() -> None:
    assert not with_rows([heartbeat_row(80, 4)], replace(SENT, heartbeats={})).gaps


def left(*batches: list[int]) -> list[tuple[int, int]]:
    """What was not sent again: heartbeats 4 to 8 are missing, and *batches* come after 9."""
    made, offset = with_rows([heartbeat_row(9, 4)]), 5
    for numbers in batches:
        made = with_rows([heartbeat_row(n, offset + at) for at, n in enumerate(numbers)], made)
        offset += len(numbers)
    gaps = load_gaps(made)
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
    made = replace(SENT, batch=5, bases={**SENT.bases, Shard("a", "d.t"): Order(1, 1, 180)})

    assert not with_rows([heartbeat_row(80, 4)], made=made).gaps


BEATS = "a.sluice.heartbeat"


@pytest.mark.parametrize("lost", [False, True], ids=["all came", "one never came"])
def test_heartbeats_of_an_added_partition_wait_for_those_of_the_first_one(
    tmp_path: Path, *, lost: bool
) -> None:
    """A batch that is capped would land later numbers first."""
    harness = LandingHarness(
        tmp_path, topics=(topics := GrownTopics(topic=BEATS)), names="a", most=6
    )
    harness.topics.snapshot("a", 10, 2)
    topics.write_heartbeat("a", 1, pos=100)
    harness.land()
    for number in range(2, 10):
        topics.write_heartbeat("a", number, pos=100 * number)
    for number in range(10 + lost, 13):
        topics.write_heartbeat("a", number, pos=100 * number)
        topics.newer.append(topics.held[BEATS].pop())
    found = []

    for _ in range(9):
        harness.land()
        found += harness.gaps()

    assert harness.checkpoint.heartbeats == {"a": 12}
    assert {(one.first, one.until) for one in found} == ({(10, 11)} if lost else set())


# backlogs

BEAT_PARTITION, ROWS = TopicPartition("a", 0), TopicPartition("a", 1)
WHOLE = 1_000  # records: more than there are


@dataclass(frozen=True, slots=True)
class Promised:
    """All up to heartbeat ``number`` has landed once the partitions are read to ``ends``."""

    number: int
    ends: tuple[int, int]


@dataclass(eq=False)
class Story:
    """A log of heartbeats, and of rising values of one row; its sender; who lands; a mirror.

    The log's entry n is a heartbeat of number n, or the row of value n.
    """

    log: list[bool] = field(default_factory=list)  # whether it is a heartbeat
    place: int = 0
    beats: list[int] = field(default_factory=list)  # what the partitions hold
    rows: list[int] = field(default_factory=list)
    read: tuple[int, int] = (0, 0)
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint("main", -1))
    stands: list[int] = field(default_factory=list)  # the row after each batch
    covered: list[int] = field(default_factory=list)  # the heartbeat that each one proves
    applied: int = -1
    certified: int = -1
    _promised: list[Promised] = field(default_factory=list)

    @property
    def trail(self) -> HeartbeatHistory | None:
        return self.checkpoint.heartbeat_histories.get("a")

    def send(self, count: int) -> None:
        for at in range(self.place, min(len(self.log), self.place + count)):
            (self.beats if self.log[at] else self.rows).append(at)
            self.place = at + 1

    def kill(self, back: int) -> None:
        self.place = max(0, self.place - back)

    def land(self, beats: int, rows: int) -> None:
        """Read at most that many of each partition, then merge."""
        ends, was = (len(self.beats), len(self.rows)), self.read
        highest = max(self.beats, default=-1)
        if self.beats and self.beats[-1] == highest:
            self._promised.append(Promised(highest, ends))
        self.read = min(ends[0], was[0] + beats), min(ends[1], was[1] + rows)
        self.stands.append(self.rows[self.read[1] - 1] if self.read[1] else -1)
        kept = (
            p for p in self._promised if p.ends[0] <= self.read[0] and p.ends[1] <= self.read[1]
        )
        self.covered.append(max((p.number for p in kept), default=-1))
        self._note(ends, list(enumerate(self.beats))[was[0] : self.read[0]])
        self._merge()

    def _note(self, ends: tuple[int, int], came: Sequence[tuple[int, int]]) -> None:
        """The next mark, as landing makes it."""
        where = dict(zip((BEAT_PARTITION, ROWS), map(PartitionEnd, ends), strict=True))
        w = zip((BEAT_PARTITION, ROWS), map(PartitionEnd, self.read), strict=True)
        made = replace(
            self.checkpoint,
            batch=self.checkpoint.batch + 1,
            offsets=dict(w),
            high={
                SourcePartition("a", at): Order(1, 0, 1) for at, end in where.items() if end.offset
            },
            acknowledged={"a": Acknowledged(binlog_position(1, self.covered[-1] + 1))},
        )
        every = list(_landed(self._numbers(came)))
        made = follow_histories(
            made,
            batch_context(
                self.checkpoint,
                stats=BatchStats(landed_heartbeats={"a": tuple(every)}),
                orderings={"a": Ordering.SEQUENCE},
            ),
        )
        self.checkpoint = note_levels(
            made, batch_context(made, listing=Listing({}, {}, {"a": "a"}, {}, where))
        )

    def _numbers(self, came: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(offset, sum(self.log[:at])) for offset, at in came]

    def _merge(self) -> None:
        trail = self.trail
        if trail is None:
            return
        self.applied = max(self.applied, -1 if trail.sure is None else trail.sure)
        if trail.resending or trail.divided or self.applied < trail.over:
            return  # no certificate answers
        if 0 <= self.applied <= trail.known:
            self.certified = max(self.certified, *self.covered[: self.applied + 1])
        before = [at for at in range(max(0, self.certified)) if not self.log[at]]
        if before and self.certified >= 0:
            assert self.stands[self.applied] >= before[-1], self


def _landed(came: Sequence[tuple[int, int]]) -> Iterator[LandedHeartbeat]:
    for offset, number in came:
        yield LandedHeartbeat(number, "a", 0, offset, Order(1, 0, offset))


def played(story: Story, steps: Sequence[tuple[str, Any]]) -> Story:
    for step, told in steps:
        if step == "log":
            story.log += told
        elif step == "land":
            story.land(*told)
        else:
            getattr(story, step)(told)
    return story


BEFORE: list[tuple[str, Any]] = [("log", [True, False, False, True, True]), ("send", 5)]
ALL: tuple[str, Any] = ("land", (WHOLE, WHOLE))
MORE: list[tuple[str, Any]] = [("log", [True]), ("send", WHOLE)]
CERTIFIED = [*BEFORE, ALL, *MORE, ALL, *MORE, ALL]

STEPS = st.one_of(
    st.tuples(st.just("log"), st.lists(st.booleans(), min_size=1, max_size=4)),
    st.tuples(st.just("send"), st.integers(1, 8)),
    st.tuples(st.just("land"), st.tuples(st.integers(0, 3), st.integers(0, 3))),
    st.tuples(st.just("kill"), st.integers(1, 10)),
)


@settings(max_examples=examples(300))
@given(st.lists(STEPS, max_size=40))
def test_no_certificate_answers_over_an_older_row_however_far_partitions_are_apart(
    steps: list[tuple[str, Any]],
) -> None:
    story = played(Story(), [*CERTIFIED, *steps])

    begun = len(story.log)
    for _ in range(12):  # all goes on, and nothing is capped: it waits for nothing that is over
        played(story, [("log", [False, True]), ("send", WHOLE), ("land", (WHOLE, WHOLE))])
    assert story.applied == story.checkpoint.batch - 1
    assert story.trail is not None
    assert story.trail.divided or story.certified > begun


def test_what_a_partition_shows_ahead_of_the_heartbeats_is_not_merged() -> None:
    """Two heartbeats stood in theirs, and the one that falls behind them; a batch took one."""
    story = played(Story(), CERTIFIED)
    assert story.certified > 0
    played(story, [*MORE, *MORE, ("kill", 8), ("send", 1)])

    played(story, [("land", (1, 1)), ("land", (1, 0))])

    assert story.stands[-1] == 1
    assert story.stands[story.applied] == 2


def test_a_batch_that_is_capped_counts_once_all_that_was_listed_with_it_has_landed(
    tmp_path: Path,
) -> None:
    harness, levels = CountedHarness(tmp_path, names="a", most=2), list[tuple[int, int]]()
    for number in range(1, 5):
        harness.topics.put("a", 100 * number - 1, "row", key=number)
        harness.topics.write_heartbeat("a", number, pos=100 * number)

    while harness.land().batch is not None:
        trail = harness.checkpoint.heartbeat_histories["a"]
        levels.append((trail.level, trail.known))

    assert levels == [(-1, -1), (-1, -1), (-1, -1), (3, -1)]
    harness.write_heartbeat(5, 500)
    assert harness.checkpoint.heartbeat_histories["a"].sure == 3


def test_what_comes_through_one_partition_waits_for_no_backlog() -> None:
    at, end = TopicPartition("a", 0), PartitionEnd(9)
    mark = Checkpoint(
        "main", 4, heartbeat_histories={"a": HeartbeatHistory(7, Order(1, 0, 3), 7, 4, topic="a")}
    )

    made = note_levels(
        mark, batch_context(mark, listing=Listing({}, {}, {"a": "a"}, {}, {at: end}))
    )

    assert made.heartbeat_histories["a"].level == 4


def test_a_listing_that_is_never_passed_is_not_waited_for() -> None:
    """Its topic was deleted and made anew."""
    waiting = HeartbeatBacklog(2, {"a:0": 90, "a:1": 90})
    trail = HeartbeatHistory(7, Order(1, 0, 3), 7, 4, topic="a", backlog=waiting)
    mark = Checkpoint(
        "main",
        4,
        {TopicPartition("a", 0): PartitionEnd(3), TopicPartition("a", 1): PartitionEnd(1)},
        heartbeat_histories={"a": trail},
    )
    listed = dict.fromkeys((BEAT_PARTITION, ROWS), PartitionEnd(3))

    made = note_levels(
        mark, batch_context(mark, listing=Listing({}, {}, {"a": "a"}, {}, listed))
    ).heartbeat_histories["a"]

    assert (made.level, made.backlog) == (-1, HeartbeatBacklog(4, {"a:0": 3, "a:1": 3}))
