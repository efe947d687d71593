"""Remembers when each id range of a shard was last compared, and which are open.  Pure.

Each id, from the lowest to the highest of any type, belongs to exactly one span. A span has the
time at which the first of its rows was compared, so it never claims too much. If there are too many
spans, neighbours of nearly the same time are joined: within one second, two, four, and so on. So a
lap over a table of any size has about a hundred spans, and each time is off by 1 % of a lap.

The ranges that were compared longest ago are next. So a lap continues where it was, for any width
of ranges, and a range that every cycle compares does not delay the others.

A range is open while some of its rows are not settled. A check remembers open ranges by shard.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from checks.counting import AGAIN, MOST_OPEN, NARROWER, Suspect
from checks.ranges import EVEN_IDS, FLOOR, UNSIGNED_CEILING, Blocks, IdScale, divide_range, overlap
from checks.world import Range
from pipeline.clocks import has_passed
from pipeline.model import Shard

LAP = 100  # most spans, plus two for each span that was never compared
MOST_SPANS = 4 * LAP  # most spans in all
SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR = timedelta(days=100_000)
MARGIN = 0.9  # part of the promised time to plan with: a lap may be interrupted
RELEARNED = timedelta(hours=6)  # an uneven scale is learned again after this time
FINEST = 256  # a range narrower than a block is at least 1/256 of a block wide
Spans = dict[str, list[list[int]]]
"""Ranges by shard name, as JSON values."""
KnownSpans = Mapping[str, Sequence[Sequence[int]]]
"""`Spans` from the memory of a check."""


@dataclass(frozen=True, slots=True)
class ComparedSpan:
    """Ids in ``[low, high)``, all compared at ``at`` or later; None if some never were."""

    low: int
    high: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """When the rows of one shard were last compared; ``spans`` ascend and leave no id out.

    ``since`` is the last known ``oldest`` before a restart, or else when comparing began.
    A span time before ``valid_from`` proves nothing and only decides which ids are next. If
    ``valid_from`` is None, all times count.
    """

    since: datetime
    spans: tuple[ComparedSpan, ...] = (ComparedSpan(FLOOR, UNSIGNED_CEILING, None),)
    valid_from: datetime | None = None

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        spans = [[one.low, one.at and one.at.isoformat()] for one in self.spans]
        valid_from = self.valid_from and self.valid_from.isoformat()
        return {"since": self.since.isoformat(), "spans": spans, "valid_from": valid_from}

    @classmethod
    def loads(cls, raw: Mapping[str, Any]) -> "Coverage":
        """Read back what :meth:`dumps` wrote; earlier versions wrote no ``valid_from``."""
        lows = [low for low, _ in raw["spans"]]
        highs = [*lows[1:], UNSIGNED_CEILING]
        spans = (
            ComparedSpan(low, high, datetime.fromisoformat(at) if at else None)
            for (low, at), high in zip(raw["spans"], highs, strict=True)
        )
        begun = raw.get("valid_from")
        valid_from = datetime.fromisoformat(begun) if begun else None
        return cls(datetime.fromisoformat(raw["since"]), tuple(spans), valid_from)

    @property
    def oldest(self) -> datetime | None:
        """Every row was compared at this time or later; None if some rows were not compared yet."""
        times = [one.at for one in self.spans]
        oldest = None if None in times else min(at for at in times if at is not None)
        return None if oldest and self.valid_from and oldest < self.valid_from else oldest

    @property
    def unread(self) -> "Coverage":
        """The coverage with only the spans not compared by the first lap, also after a restart."""
        begun = self.valid_from
        spans = (one for one in self.spans if one.at is None or (begun and one.at < begun))
        return replace(self, spans=tuple(spans))

    def restarted(self, at: datetime) -> "Coverage":
        """Return the coverage after all rows may have been replaced *at* that time.

        The order of ids continues. The promised time does not restart, because otherwise a lap that
        restarts often would never be late.
        """
        return replace(self, since=self.oldest or self.since, valid_from=at)

    def compared(self, ranges: Iterable[Range], at: datetime) -> "Coverage":
        """Return the coverage after *ranges* were compared *at* that time."""
        spans = list(self.spans)
        for low, high in ranges:
            first = bisect_right(spans, low, key=lambda one: one.high)
            after = bisect_left(spans, high, lo=first, key=lambda one: one.low)
            left = [part for one in spans[first:after] for part in _cut(one, low, high)]
            spans[first:after] = sorted([*left, ComparedSpan(low, high, at)], key=lambda o: o.low)
        return replace(self, spans=_joined(spans))

    def next_blocks(self, blocks: Blocks, most: int, skipped: Sequence[Range] = ()) -> list[Range]:
        """Return at *most* that many of *blocks*, oldest first, and highest first if equally old.

        Each part of a block that was compared in parts counts as one.  Blocks with ids of *skipped*
        are left out.
        """
        known = blocks.numbers
        never = datetime.min.replace(tzinfo=self.since.tzinfo)
        found: dict[Range, None] = {}
        for one in sorted(self.spans, key=lambda span: (span.at or never, -span.low)):
            if len(found) >= most:
                break
            own = blocks.numbers_of((one.low, one.high))
            number, bottom = min(own[-1], known[-1]), max(own[0], known[0])
            while number >= bottom and len(found) < most:
                # the rest of a block: ranges of another width may have compared parts of it
                low, high = blocks.ids_of(number)
                span = max(low, one.low), min(high, one.high)
                over = [each for each in skipped if overlap(span, each)]
                if not over:
                    found.setdefault(span)
                number = min([number, *(blocks.numbers_of(each)[0] for each in over)]) - 1
        return [*found]


@dataclass(frozen=True, slots=True)
class LearnedScale:
    """The scale of a shard's ids, learned at ``at``, when the ids covered ``span`` ids.

    ``uneven``: some blocks of the scale had far more rows than expected.
    """

    at: datetime
    span: int
    scale: IdScale = EVEN_IDS
    uneven: bool = False

    def is_outdated(self, span: int, now: datetime) -> bool:
        """Whether to learn the scale again, if the ids cover *span* ids *now*."""
        return span > 2 * self.span or (self.uneven and has_passed(self.at, RELEARNED, now))

    def dumps(self) -> list[Any]:
        """Return JSON values for the memory of a check."""
        return [self.at.isoformat(), self.span, [*map(list, self.scale.knots)], self.uneven]

    @classmethod
    def loads(cls, raw: Sequence[Any]) -> "LearnedScale":
        """Read back what :meth:`dumps` wrote."""
        at, span, knots, uneven = raw
        scale = IdScale(tuple((id_, place) for id_, place in knots))
        return cls(datetime.fromisoformat(at), span, scale, uneven)


@dataclass(frozen=True, slots=True)
class RangeDebt:
    """How many older rows of a shard are due to be compared again.

    ``lap`` is the due fraction of all its ids, so that the promised time is met; at most 1.
    ``rows`` is the number of older rows due in exchange for compared changed rows; below 0 if
    compared ahead.  Each comparison reduces both, so the greater one sets the pace.
    """

    lap: float = 0.0
    rows: float = 0.0

    def grown(self, passed: timedelta, within: timedelta) -> "RangeDebt":
        """Return the debt after *passed*; it grows so that a lap ends *within* that time."""
        return replace(self, lap=min(self.lap + passed / (within * MARGIN), 1.0))

    def paid(self, ids: int, of: int, rows: int, most: int) -> "RangeDebt":
        """Return the debt after *ids* out of *of* ids were compared, which have *rows* rows.

        At *most* that many rows count as compared ahead.
        """
        return RangeDebt(max(self.lap - ids / of, 0.0), max(self.rows - rows, -float(most)))

    def bounded(self, rows: int) -> "RangeDebt":
        """Return the debt limited to the number of *rows* of the shard."""
        return replace(self, rows=min(self.rows, float(rows)))

    def ids(self, of: int, per_row: float) -> float:
        """Return how many of the *of* ids of the shard are due, with *per_row* ids per row."""
        return max(self.lap * of, self.rows * per_row)


@dataclass(frozen=True, slots=True)
class NextBlocks:
    """Chooses the next ranges of a shard.

    ``failed`` counts the earlier attempts.  ``share`` is the most older blocks of the shard in a
    cycle, ``debt`` how many of them are due.  ``learned`` is the scale of the ids, if it is known.
    ``slow`` are ids that no range may contain.
    """

    shard: Shard
    coverage: Coverage
    pace: timedelta
    failed: int
    share: int
    debt: RangeDebt
    learned: LearnedScale | None
    slow: tuple[int, ...] = ()

    @property
    def again(self) -> int:
        """How many open ranges are compared as well."""
        return int(AGAIN // NARROWER**self.failed)

    def choose_older(self, blocks: Blocks, most: int, skipped: Sequence[Range]) -> list[Range]:
        """Return at *most* that many of *blocks*, oldest first, without slow ids and *skipped*."""
        found = self.coverage.next_blocks(blocks, most + len(self.slow), skipped)
        return split_at(found, self.slow)[0][:most]

    def is_first_lap(self, blocks: Blocks, skipped: Sequence[Range]) -> bool:
        """Whether one of *blocks* has not been read for the first time.

        Open ranges are *skipped*: every cycle reads them, so they do not keep a lap from ending.
        """
        return bool(replace(self, coverage=self.coverage.unread).choose_older(blocks, 1, skipped))


def share_ranges(ranges: int, shards: int, number: int) -> int:
    """Return how many of *ranges* shard *number* gets; the first shards share the remainder."""
    each, more = divmod(ranges, shards)
    return each + (number % shards < more)


def divide_ids(wanted: float, size: int) -> tuple[int, int]:
    """Return width and number of the ranges that have about *wanted* ids, and no more.

    They are whole blocks of width *size*, a power of two, or one narrower range.  The number is 0
    if *wanted* is too small for a range; then the ids wait for more.
    """
    if wanted >= size:
        return size, int(wanted // size)
    width = 1 << int(wanted).bit_length() - 1 if wanted >= 1 else 0
    return (width, 1) if width >= max(size // FINEST, 1) else (size, 0)


@dataclass(frozen=True, slots=True)
class LapPlan:
    """How a lap over the ``blocks`` of a shard is divided into cycles.

    ``pace`` is the time between two cycles.  Each cycle compares at most ``most`` blocks.  A lap is
    promised to end ``within`` that time.
    """

    blocks: int
    pace: timedelta
    most: int
    within: timedelta

    @property
    def needed(self) -> int:
        """How many blocks each cycle must compare to end a lap ``within`` the promised time."""
        return math.ceil(self.blocks * (self.pace / (self.within * MARGIN)))

    @property
    def too_long(self) -> str:
        """Why a lap takes longer than promised, with numbers; empty if it does not."""
        if self.needed <= self.most or not self.most:
            return ""
        cycle = self.pace.total_seconds()
        lap = timedelta(seconds=min(self.blocks / self.most * cycle, FAR.total_seconds()))
        workload = f"{self.blocks} ranges, {self.most} of them every {cycle:.0f} s"
        return f"{workload}, take {_length(lap)}, and not {_length(self.within)}; raise `ranges`"


def dump_spans(spans: Mapping[Shard, Sequence[Range]]) -> Spans:
    """Return *spans* as JSON values."""
    return {str(shard): [[*span] for span in own] for shard, own in spans.items() if own}


def add_spans(spans: KnownSpans, more: KnownSpans) -> Spans:
    """Return *spans*, followed by those of *more* that are not among them."""
    found = {own: [[*one] for one in many] for own, many in spans.items()}
    for own, many in more.items():
        kept = found.setdefault(own, [])
        kept.extend([*one] for one in many if [*one] not in kept)
    return found


def remove_spans(spans: KnownSpans, others: KnownSpans) -> Spans:
    """Return those of *spans* that are not among *others*."""
    found = Spans()
    for own, many in spans.items():
        gone = [[*one] for one in others.get(own, ())]
        if left := [[*one] for one in many if [*one] not in gone]:
            found[own] = left
    return found


def remove_overlapping(spans: KnownSpans, others: KnownSpans) -> Spans:
    """Return those of *spans* that do not overlap *others*."""
    found = Spans()
    for own, many in spans.items():
        there = others.get(own, ())
        found[own] = [[*one] for one in many if not any(overlap(one, other) for other in there)]
    return found


def divide_spans(spans: Mapping[Shard, Sequence[Range]], opened: KnownSpans) -> Spans:
    """Divide *spans* into parts, to add to *opened*; undivided if that would be too many."""
    found = Spans()
    for shard, own in spans.items():
        kept = found.setdefault(str(shard), [])
        for span in own:
            room = MOST_OPEN - len(opened.get(str(shard), ())) - len(kept)
            parts = divide_range(span, NARROWER) if room > 2 * NARROWER else [span]
            kept.extend([*one] for one in parts)
    return found


def split_at(ranges: Iterable[Range], ids: Iterable[int]) -> tuple[list[Range], list[Range]]:
    """Split *ranges* at *ids*: the parts without them, and each id inside as its own range."""
    parts, alone, ordered = list[Range](), list[Range](), sorted(ids)
    for low, high in ranges:
        inside = [id_ for id_ in ordered if low <= id_ < high]
        ends = [*inside, high]
        starts = [low, *(id_ + 1 for id_ in inside)]
        parts += [span for span in zip(starts, ends, strict=True) if span[0] < span[1]]
        alone += [(id_, id_ + 1) for id_ in inside]
    return parts, alone


def halve_first(opened: Sequence[Range], many: int) -> list[Range]:
    """Return *opened* with the first *many* halved.

    If that would be too many ranges, they move to the end instead. A range of one id, which has no
    halves, always moves to the end.
    """
    first, rest = opened[:many], opened[many:]
    if len(opened) + many > MOST_OPEN:
        return [*rest, *first]
    wide = [span for span in first if span[1] - span[0] > 1]
    halves = [half for span in wide for half in divide_range(span, 2)]
    return [*halves, *rest, *(span for span in first if span not in wide)]


def sort_opened_first(
    spans: Mapping[Shard, Sequence[Range]], opened: KnownSpans
) -> dict[Shard, list[Range]]:
    """Sort the *spans* of each shard: first those in *opened*, in that order, then the others."""
    ranks = {own: {(low, high): n for n, (low, high) in enumerate(m)} for own, m in opened.items()}
    return {
        shard: sorted(own, key=lambda one: ranks.get(str(shard), {}).get(one, math.inf))
        for shard, own in spans.items()
    }


def find_spans(spans: KnownSpans, rows: Iterable[Suspect]) -> Spans:
    """Return those of *spans* that contain one of *rows*."""
    ids = dict[str, list[int]]()
    for shard, id_ in rows:
        ids.setdefault(str(shard), []).append(id_)
    found = Spans()
    for own, many in spans.items():
        inside = ids.get(own, ())
        if held := [[low, high] for low, high in many if any(low <= id_ < high for id_ in inside)]:
            found[own] = held
    return found


def join_disjoint(first: Sequence[Range], more: Sequence[Range]) -> list[Range]:
    """Return *first*, and those of *more* that do not overlap a kept range; ascending."""
    kept: list[Range] = []
    for one in (*first, *more):
        if not any(overlap(one, other) for other in kept):
            kept.append(one)
    return sorted(kept)


def _length(time: timedelta) -> str:
    minutes = time / timedelta(minutes=1)
    if minutes < 120:
        return f"{minutes:.1f} minutes"
    return f"{minutes / 60:.1f} hours" if minutes < 48 * 60 else f"{minutes / 60 / 24:.1f} days"


def _cut(one: ComparedSpan, low: int, high: int) -> Iterator[ComparedSpan]:
    """Yield the parts of a span outside ``[low, high)``."""
    if one.low < min(low, one.high):
        yield ComparedSpan(one.low, min(low, one.high), one.at)
    if max(high, one.low) < one.high:
        yield ComparedSpan(max(high, one.low), one.high, one.at)


def _joined(spans: Sequence[ComparedSpan]) -> tuple[ComparedSpan, ...]:
    """Join neighbours whose times are in the same interval; the result has the earliest time.

    The intervals are as short as the number of spans allows.  They have fixed limits. So a chain of
    neighbours, each slightly later than the last, is not joined into one as old as the first.
    """
    length, never = timedelta(), sum(one.at is None for one in spans)
    most = min(LAP + 2 * never, MOST_SPANS)
    while True:
        kept = [
            _merged([*many]) for _, many in groupby(spans, key=lambda one: _interval(one, length))
        ]
        if len(kept) <= most:
            return tuple(kept)
        spans, length = kept, max(2 * length, SECOND)


def _merged(spans: Sequence[ComparedSpan]) -> ComparedSpan:
    """Join neighbours into one span."""
    if len(spans) == 1:
        return spans[0]
    times = [one.at for one in spans if one.at is not None]
    at = min(times) if len(times) == len(spans) else None
    return ComparedSpan(spans[0].low, spans[-1].high, at)


def _interval(one: ComparedSpan, length: timedelta) -> object:
    """Return the grouping key of a span: its instant, or the number of its interval.

    Spans that were never compared are joined with others only as the last resort.
    """
    if length >= FAR:
        return None
    return one.at if one.at is None or not length else (one.at - EPOCH) // length
