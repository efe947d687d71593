"""Follows the landed heartbeats of a source, and finds missing and repeated ones.

Numbers rise by one, and none is written twice. A number that falls means that the log is
redelivered from there on. A missing number means that a part of the log was not sent. A log that is
redelivered once climbs back without a jump. Jumps during the climb, or many falls, mean that two
collectors send the log.

Occasional restarts of one collector are not counted as two. A fall weighs three times as much
within 4 heartbeats after a fall or jump. In one redelivery, a fall as far back as the previous one,
or further, does not count: everything since comes again. After 20 heartbeats without a fall or jump
the counts start at 0.

Cannot detect: whether a redelivery was complete if two collectors send. Older rows may then remain
in the mirror. Cannot detect: a single missing number where a transaction marker uses an offset.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.model import Order

MAX_FALLS = 7  # weighted falls that restarts of one collector can explain
SOON_HEARTBEATS = 4  # within which a fall after a fall counts three times
CALM_HEARTBEATS = 20  # without a fall, after which the counts restart


@dataclass(frozen=True, slots=True)
class LandedHeartbeat:
    """One heartbeat: its number, its position in its topic, and its order."""

    number: int
    topic: str
    partition: int
    offset: int
    order: Order

    @property
    def partition_of(self) -> tuple[str, int]:
        """Its partition; a source uses only one, until its topic gets more of them."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class HeartbeatRow:
    """A row of the heartbeat table: ``number`` is -1 if another service wrote it.

    ``read`` if a snapshot read it. A row without a log position has no ``order``.
    """

    number: int
    topic: str
    partition: int
    offset: int
    order: Order | None
    read: bool


@dataclass(frozen=True, slots=True)
class HeartbeatBacklog:
    """``topic:partition`` -> end of the heartbeats' topic when ``batch`` was listed."""

    batch: int
    ends: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HeartbeatHistory:
    """The heartbeats of one source: ``highest`` is the highest number, ``order`` its first order.

    ``last`` is the number that landed last, ``raised`` the batch in which the highest landed.
    ``again`` is the batch in which numbers fell last, ``over`` the one in which they reached the
    highest again; -1: never. ``falls`` counts falls, ``leaps`` counts numbers that a redelivery
    left out. Both return to zero after a run without any, which ``calm`` counts. ``clear`` if
    nothing that landed before that batch is at ``order`` or above. ``fell`` is the number that
    numbers fell to since the highest; -1: none. ``once`` if the log is never redelivered, unless
    numbers fall. ``owed``: how many acknowledgements must pass before ``over`` stays.

    ``topic`` is that of the last heartbeat. ``level`` is the last batch whose listed records have
    all landed. ``backlog`` holds the ends to reach before the next such batch. ``behind`` is the
    number of batches between ``level`` and ``raised``.
    """

    highest: int
    order: Order
    last: int
    raised: int
    again: int = -1
    over: int = -1
    falls: int = 0
    leaps: int = 0
    calm: int = 0
    clear: bool = True
    fell: int = -1
    once: bool = False
    owed: int = 0
    topic: str = ""
    level: int = -1
    behind: int = 0
    backlog: HeartbeatBacklog | None = None

    @property
    def resending(self) -> bool:
        """Whether the log is being redelivered, so that rows may be older than they were."""
        return self.last < self.highest

    @property
    def divided(self) -> bool:
        """Whether two collectors send the log at the same time."""
        return self.leaps > 0 or self.falls >= MAX_FALLS

    @property
    def doubtful(self) -> bool:
        """Whether its newest heartbeat shows two collectors."""
        return self.divided and self.calm == 0

    @property
    def waits(self) -> bool:
        """Whether only batches up to `sure` may be merged: later rows may be redelivered."""
        return not self.once or self.resending or self.raised <= self.over

    @property
    def known(self) -> int:
        """The last batch whose rows were all sent before the highest number was.

        The highest number arrived after everything that had been listed of its topic with that
        batch. If one of these rows had been redelivered, a number would have fallen before it.
        """
        return self.raised - 1 - self.behind

    @property
    def sure(self) -> int | None:
        """The last batch none of whose rows is redelivered; None while an old row may hide a newer.

        Redelivered rows follow the highest number. After numbers have reached it again, merge all
        of them at once, up to a batch that ends behind the first fall.
        """
        return self.known if self.known >= self.over else None

    def next(self, heartbeat: LandedHeartbeat, batch: int) -> "HeartbeatHistory":
        """Return the history after one more *heartbeat*."""
        if heartbeat.number <= self.last:
            # a redelivered number
            over = batch if heartbeat.number == self.highest else self.over
            weight = 3 if self.calm < SOON_HEARTBEATS else 1
            falls = self.falls if heartbeat.number <= self.fell else self.falls + weight
            again = replace(self, last=heartbeat.number, again=batch, over=over, calm=0)
            return replace(again, falls=falls, fell=heartbeat.number)
        leapt = self.resending and heartbeat.number > self.last + 1
        calm = 0 if leapt else self.calm + 1
        made = replace(self, last=heartbeat.number, calm=calm, leaps=self.leaps + leapt)
        if calm >= CALM_HEARTBEATS:
            made = replace(made, falls=0, leaps=0)
        if heartbeat.number <= self.highest:
            return replace(made, over=batch) if heartbeat.number == self.highest else made
        over = batch if self.resending else made.over
        made = replace(
            made, highest=heartbeat.number, order=heartbeat.order, raised=batch, over=over
        )
        return replace(made, fell=-1, behind=batch - 1 - self.level)


@dataclass(frozen=True, slots=True)
class MissingHeartbeats:
    """Missing heartbeats: ``first`` is inclusive, ``until`` is exclusive."""

    first: int
    until: int


@dataclass(frozen=True, slots=True)
class HeartbeatRun:
    """The history after a batch, the missing heartbeats, and whether two collectors sent in it."""

    trail: HeartbeatHistory
    skipped: tuple[MissingHeartbeats, ...] = ()
    doubtful: bool = False


def follow_heartbeats(
    trail: HeartbeatHistory | None, heartbeats: Iterable[LandedHeartbeat], batch: int
) -> HeartbeatRun | None:
    """Return what the *heartbeats* of a batch add to *trail*; None if there are none at all."""
    skipped, doubtful = list[MissingHeartbeats](), False
    for heartbeat in in_arrival_order(heartbeats):
        if trail is None:
            # no batch so far is known to be complete
            number, order = heartbeat.number, heartbeat.order
            trail = HeartbeatHistory(
                number, order, number, batch, topic=heartbeat.topic, behind=batch
            )
            continue
        if heartbeat.number > trail.highest + 1:
            skipped.append(MissingHeartbeats(trail.highest + 1, heartbeat.number))
        trail = replace(trail.next(heartbeat, batch), topic=heartbeat.topic)
        doubtful = doubtful or trail.doubtful
    return None if trail is None else HeartbeatRun(trail, tuple(skipped), doubtful)


def find_missing_heartbeats(
    highest: int, rows: Iterable[HeartbeatRow], offsets: Mapping[tuple[str, int], int]
) -> tuple[tuple[MissingHeartbeats, Order], ...]:
    """Return the numbers above *highest* that are missing, each with the order of the next row.

    *rows* are a batch's rows of the heartbeat table, *offsets* the first offset that the batch read
    of each partition. A snapshot that read the table covers the numbers up to the one it read. If a
    partition has as many unused offsets as numbers are missing, compaction removed them.

    Cannot detect: a single missing number where a transaction marker uses an offset.
    """
    every = list(rows)
    taken: dict[tuple[str, int], list[HeartbeatRow]] = {}
    for one in sorted(every, key=lambda one: one.offset):
        taken.setdefault((one.topic, one.partition), []).append(one)
    missing: list[tuple[MissingHeartbeats, Order]] = []
    numbered = [one for one in every if one.number > highest]
    for one in sorted(numbered, key=lambda one: (one.number, not one.read, one.offset)):
        count = one.number - highest - 1
        if count > 0 and not one.read and one.order is not None:
            unused = _unused_offsets(one, taken[one.topic, one.partition], offsets)
            if unused < count:
                missing.append((MissingHeartbeats(highest + 1, one.number), one.order))
        highest = max(highest, one.number)
    return tuple(missing)


def _unused_offsets(
    row: HeartbeatRow, taken: Sequence[HeartbeatRow], offsets: Mapping[tuple[str, int], int]
) -> int:
    """Offsets without a row, between the previous numbered row, or the batch's start, and *row*."""
    before = [one for one in taken if one.offset < row.offset]
    numbered = [one.offset for one in before if one.number >= 0]
    start = offsets.get((row.topic, row.partition), row.offset)
    last = numbered[-1] if numbered else start - 1
    return row.offset - last - 1 - sum(one.offset > last for one in before)


def in_arrival_order(heartbeats: Iterable[LandedHeartbeat]) -> list[LandedHeartbeat]:
    """Return *heartbeats* in order of arrival; the partition with the lowest number comes first.

    If a topic gets more partitions, the heartbeats of a source move to another partition.
    """
    every = sorted(heartbeats, key=lambda one: one.offset)
    lowest: dict[tuple[str, int], int] = {}
    for one in every:
        way = one.partition_of
        lowest[way] = min(one.number, lowest.get(way, one.number))
    return sorted(every, key=lambda one: (lowest[one.partition_of], one.partition_of))
