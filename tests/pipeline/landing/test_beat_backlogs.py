"""A table's partition may be read ahead of the heartbeats': nothing that counted goes back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.checkpoint import Checkpoint
from pipeline.heartbeats import HeartbeatBacklog, HeartbeatHistory, LandedHeartbeat
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.heartbeats import follow_histories, note_levels
from pipeline.landing.listing import Listing
from pipeline.model import Acknowledged, Order, Ordering, PartitionEnd, TopicPartition
from pipeline.sources.mysql.position import binlog_position
from tests.builders import batch_context
from tests.example_count import examples
from tests.pipeline.landing.test_passed_beats import CountedDesk

BEATS, ROWS = TopicPartition("a", 0), TopicPartition("a", 1)
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
        return self.checkpoint.beats.get("a")

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
        where = dict(zip((BEATS, ROWS), map(PartitionEnd, ends), strict=True))
        w = zip((BEATS, ROWS), map(PartitionEnd, self.read), strict=True)
        made = replace(
            self.checkpoint,
            batch=self.checkpoint.batch + 1,
            offsets={str(at): end for at, end in w},
            high={f"a/{at}": Order(1, 0, 1) for at, end in where.items() if end.offset},
            acknowledged={"a": Acknowledged(binlog_position(1, self.covered[-1] + 1))},
        )
        every = list(_landed(self._numbers(came)))
        made = follow_histories(
            made,
            batch_context(
                self.checkpoint,
                stats=BatchStats(beats={"a": tuple(every)}),
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
    desk, levels = CountedDesk(tmp_path, names="a", most=2), list[tuple[int, int]]()
    for number in range(1, 5):
        desk.topics.put("a", 100 * number - 1, "row", key=number)
        desk.topics.beat("a", number, pos=100 * number)

    while desk.land().batch is not None:
        trail = desk.loop.checkpoint.beats["a"]
        levels.append((trail.level, trail.known))

    assert levels == [(-1, -1), (-1, -1), (-1, -1), (3, -1)]
    desk.beat(5, 500)
    assert desk.loop.checkpoint.beats["a"].sure == 3


def test_what_comes_through_one_partition_waits_for_no_backlog() -> None:
    at, end = TopicPartition("a", 0), PartitionEnd(9)
    mark = Checkpoint("main", 4, beats={"a": HeartbeatHistory(7, Order(1, 0, 3), 7, 4, topic="a")})

    made = note_levels(
        mark, batch_context(mark, listing=Listing({}, {}, {"a": "a"}, {}, {at: end}))
    )

    assert made.beats["a"].level == 4


def test_a_listing_that_is_never_passed_is_not_waited_for() -> None:
    """Its topic was deleted and made anew."""
    waiting = HeartbeatBacklog(2, {"a:0": 90, "a:1": 90})
    trail = HeartbeatHistory(7, Order(1, 0, 3), 7, 4, topic="a", backlog=waiting)
    mark = Checkpoint(
        "main", 4, {"a:0": PartitionEnd(3), "a:1": PartitionEnd(1)}, beats={"a": trail}
    )
    listed = dict.fromkeys((BEATS, ROWS), PartitionEnd(3))

    made = note_levels(
        mark, batch_context(mark, listing=Listing({}, {}, {"a": "a"}, {}, listed))
    ).beats["a"]

    assert (made.level, made.backlog) == (-1, HeartbeatBacklog(4, {"a:0": 3, "a:1": 3}))
