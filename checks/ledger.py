"""Compares what went into a hop with what came out of it, by minute, table and op.  Pure.

The hop MERGE leads from the change log into the mirror: landing counts the rows that it writes,
and each merge counts the rows that it reads. A merge is compared with exactly the batches that it
covers. So positions decide whether a row is missing or only on its way, never a clock.

What came out may have left no row in the mirror. It was explained then: superseded, redelivered,
quarantined, archived and so on, as in :mod:`pipeline.apply.account`.

Cannot decide: batches whose counts were never recorded, merges that read batches again, and
batches of too many minutes. They are UNKNOWN, and no residual is said of them. Cannot see: rows
that were lost before they were decoded, and rows without a topic (see
:mod:`pipeline.minute_counts`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from pipeline.minute_counts import NO_MINUTE, MinuteCounts, add_counts
from pipeline.model import Hop

Counts = Mapping[str, int]
"""Op or term -> rows."""
NO_COUNTS: Counts = {}
LEDGER_HOPS = (Hop.MERGE,)
"""Hops that have a ledger, in the order in which a change passes them."""
_SECONDS = 60


class LedgerState(StrEnum):
    """What is known of one minute at one hop."""

    BALANCED = "balanced"
    RESIDUAL = "residual"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"


GRAVEST_FIRST = (
    LedgerState.RESIDUAL,
    LedgerState.UNKNOWN,
    LedgerState.IN_FLIGHT,
    LedgerState.BALANCED,
)


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """Rows of one table that a batch landed at ``at``; ``counts`` None: they were not counted."""

    batch: int
    at: datetime
    counts: MinuteCounts | None


@dataclass(frozen=True, slots=True)
class MergedBatches:
    """Rows of one table that a merge read in batches ``(since, batch]``; None: not counted.

    ``explained`` says what became of them, by minute and term.
    """

    since: int
    batch: int
    at: datetime
    counts: MinuteCounts | None
    explained: MinuteCounts | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One minute of one table at one hop; ``minute`` is in whole minutes since 1970 UTC.

    ``went_in`` and ``came_out`` hold what was compared, by op; ``in_flight`` what has not reached
    the next hop. ``unknown`` if there may be more that could not be compared. ``batch`` is the
    newest batch of what was compared, -1 without any.
    """

    minute: int
    went_in: Counts = field(default_factory=dict)
    came_out: Counts = field(default_factory=dict)
    explained: Counts = field(default_factory=dict)
    in_flight: Counts = field(default_factory=dict)
    unknown: bool = False
    batch: int = -1

    @property
    def missing(self) -> Counts:
        """Op -> rows that went in and did not come out; negative: more came out than went in."""
        ops = sorted({*self.went_in, *self.came_out})
        lost = {op: self.went_in.get(op, 0) - self.came_out.get(op, 0) for op in ops}
        return {op: rows for op, rows in lost.items() if rows}

    @property
    def state(self) -> LedgerState:
        """The gravest that is true of a part of it."""
        if self.missing:
            return LedgerState.RESIDUAL
        if self.unknown:
            return LedgerState.UNKNOWN
        return LedgerState.IN_FLIGHT if self.in_flight else LedgerState.BALANCED

    @property
    def residual(self) -> int | None:
        """Rows that are missing or too many, both counted; None if that is not known yet.

        Never 0 where a part was not counted, or has not reached the next hop.
        """
        wrong = sum(map(abs, self.missing.values()))
        return None if not wrong and (self.unknown or self.in_flight) else wrong

    def with_more(self, other: "LedgerEntry") -> "LedgerEntry":
        """Both, of the same minute."""
        return LedgerEntry(
            self.minute,
            _added(self.went_in, other.went_in),
            _added(self.came_out, other.came_out),
            _added(self.explained, other.explained),
            _added(self.in_flight, other.in_flight),
            self.unknown or other.unknown,
            max(self.batch, other.batch),
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """Batches ``[first, last]`` whose landed rows were all recorded; none if last < first."""

    first: int = 0
    last: int = -1

    def with_batch(self, batch: int) -> "Recorded":
        """Add *batch*; one that does not follow the last is the first again."""
        return replace(self, last=batch) if batch == self.last + 1 else Recorded(batch, batch)


def settle_merge(
    merged: MergedBatches, landed: Sequence[LandedBatch], recorded: Recorded, settled: int
) -> tuple[LedgerEntry, ...]:
    """Compare one merge with the batches that it covers; one entry per minute, ascending.

    *landed* are the table's batches in ``(settled, merged.batch]`` that have rows of it. *settled*
    is the batch through which the table was compared before, -1 before the first.
    """
    covered = [one for one in landed if one.batch > merged.since]
    counts = [one.counts for one in covered if one.counts is not None]
    read = (
        settled <= merged.since
        and recorded.first <= merged.since + 1
        and merged.batch <= recorded.last
    )
    if merged.counts is None or not read or len(counts) < len(covered):
        return _unknown([*landed, LandedBatch(merged.batch, merged.at, merged.counts)])
    last = covered[-1].at if covered else merged.at
    went_in = _dated(add_counts(counts), last)
    came_out, terms = _dated(merged.counts, last), _dated(merged.explained or {}, last)
    compared = (
        LedgerEntry(
            minute,
            went_in.get(minute, NO_COUNTS),
            came_out.get(minute, NO_COUNTS),
            terms.get(minute, NO_COUNTS),
            batch=merged.batch,
        )
        for minute in {*went_in, *came_out}
    )
    before = _unknown(one for one in landed if one.batch <= merged.since)
    return add_entries((*before, *compared))


def count_in_flight(landed: Iterable[LandedBatch]) -> tuple[LedgerEntry, ...]:
    """Entries of batches that no merge has reached yet."""
    return add_entries(
        LedgerEntry(minute, in_flight=counts, unknown=one.counts is None)
        for one in landed
        for minute, counts in _dated(one.counts or {NO_MINUTE: {}}, one.at).items()
    )


def add_entries(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Add up entries of the same minute; ascending."""
    found: dict[int, LedgerEntry] = {}
    for one in entries:
        found[one.minute] = found[one.minute].with_more(one) if one.minute in found else one
    return tuple(found[minute] for minute in sorted(found))


def minute_of(instant: datetime) -> int:
    """Return the minute of *instant*, as an entry counts it."""
    return int(instant.timestamp() // _SECONDS)


def _unknown(batches: Iterable[LandedBatch]) -> tuple[LedgerEntry, ...]:
    return add_entries(
        LedgerEntry(minute, unknown=True, batch=one.batch)
        for one in batches
        for minute in _dated(one.counts or {NO_MINUTE: {}}, one.at)
    )


def _dated(counts: MinuteCounts, at: datetime) -> dict[int, Counts]:
    """Counts by the number of the minute; rows without a time get the one of *at*."""
    found: dict[int, Counts] = {}
    for key, own in counts.items():
        minute = minute_of(at) if key == NO_MINUTE else int(key)
        found[minute] = _added(found.get(minute, NO_COUNTS), own)
    return found


def _added(one: Counts, other: Counts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
