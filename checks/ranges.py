"""Which id ranges to count, and which ids do not match?  Pure: blocks, halving, comparing.

Blocks are aligned to powers of two, so the same old block is counted again in later rounds even
as a table grows.  All ranges are half open.

Ids may lie unevenly: a single one is far above all others, or a table has numbers of two kinds. A
scale then gives ids other places, so that blocks of one width hold about equally many rows.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from checks.world import Range

FLOOR = -(2**63)
CEILING = 2**63 - 1
UNSIGNED_CEILING = 2**64

Counts = Callable[[Sequence[Range]], tuple[Sequence[int], Sequence[int]]]
CountRows = Callable[[Sequence[Range]], Sequence[int]]
"""Ranges -> how many rows each has."""
PARTS, PASSES = 16, 6  # of a range whose rows lie unevenly, and how often parts are divided
HEAVY = 64  # a range with more than this part of all rows is divided
EVEN = 1.4  # times as many rows in one part as in all of them on average are even
MOST_KNOTS = 200


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A range with different numbers of rows on the two sides."""

    span: Range
    source: int
    mirror: int


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Ranges to read ids from; ``whole`` unless some mismatch was left out."""

    spans: tuple[Range, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """Ranges of one round, and the id below which the next round's rotation goes on."""

    ranges: tuple[Range, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class IdScale:
    """The place of each id; rows are about as far apart in places wherever they lie.

    ``knots`` are ids with their places, both ascending.  Between two of them places are evenly
    spread, and no farther apart than ids.  Outside of all, a place is one id.
    """

    knots: tuple[tuple[int, int], ...] = ()

    def place(self, id_: int) -> int:
        """The place of *id_*; neighbours may have the same."""
        (low, first), after = self._knots_around(id_, 0)
        if after is None:
            return first + id_ - low
        high, last = after
        return first + (id_ - low) * (last - first) // (high - low)

    def id_at(self, place: int) -> int:
        """The lowest id at *place*."""
        (low, first), after = self._knots_around(place, 1)
        if after is None:
            return low + place - first
        high, last = after
        return low - (first - place) * (high - low) // (last - first)  # rounded up

    def _knots_around(
        self, value: int, part: int
    ) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """The knot before an id (*part* 0) or a place (1), and that after it; None outside."""
        if not self.knots:
            return (0, 0), None
        number = bisect_right(self.knots, value, key=lambda knot: knot[part])
        inside = 0 < number < len(self.knots)
        return self.knots[max(number - 1, 0)], self.knots[number] if inside else None

    def width(self, ids: Range) -> int:
        """How many places *ids* have."""
        return self.place(ids[1]) - self.place(ids[0])


EVEN_IDS = IdScale()
"""A place is an id."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks with ids from ``low`` to ``high``, each ``size`` places of ``scale`` wide.

    A block begins at a multiple of its width.  Its number is that multiple.
    """

    low: int
    high: int
    size: int
    scale: IdScale = EVEN_IDS

    @property
    def numbers(self) -> range:
        """The numbers of all, ascending."""
        return self.numbers_of((self.low, self.high + 1))

    @property
    def ids(self) -> Range:
        """The ids of all; some are below ``low`` or above ``high``."""
        numbers = self.numbers
        return self.ids_of(numbers[0])[0], self.ids_of(numbers[-1])[1]

    def numbers_of(self, ids: Range) -> range:
        """Numbers of the blocks with some of *ids*, which are one id at least."""
        place = self.scale.place
        return range(place(ids[0]) // self.size, place(ids[1] - 1) // self.size + 1)

    def ids_of(self, number: int) -> Range:
        """The ids of a block."""
        id_at = self.scale.id_at
        return id_at(number * self.size), id_at((number + 1) * self.size)

    def newest(self, count: int) -> tuple[Range, ...]:
        """The highest *count* blocks, and all ids of any type that are in no block; ascending."""
        low, high = self.ids
        newest = self.numbers[-count:] if count else ()
        spans = ((FLOOR, low), *map(self.ids_of, newest), (high, UNSIGNED_CEILING))
        return tuple(span for span in spans if span[0] < span[1])


def learn_scale(low: int, high: int, count: CountRows) -> IdScale:
    """The scale of the rows with ids from *low* to *high*, as *count* finds them.

    The first ranges grow from both ends by powers of two, so a single id that is far away is apart
    from the others at once.  One with many rows is divided until its parts have equally many.
    """
    steps = [1 << bits for bits in range(0, 66, 4)]
    cuts = {low, high + 1, *(low + one for one in steps), *(high + 1 - one for one in steps)}
    spans = list(pairwise(sorted(one for one in cuts if low <= one <= high + 1)))
    pieces = dict(zip(spans, count(spans), strict=True))
    total, even = sum(pieces.values()), set[Range]()
    for _ in range(PASSES):
        heavy = [
            span
            for span, rows in pieces.items()
            if rows * HEAVY > total and span[1] - span[0] >= PARTS and span not in even
        ]
        if not heavy:
            break
        parts = [part for span in heavy for part in divide_range(span, PARTS)]
        counts = dict(zip(parts, count(parts), strict=True))
        for span in heavy:
            own = {part: counts[part] for part in divide_range(span, PARTS)}
            if max(own.values()) * PARTS <= sum(own.values()) * EVEN:
                even.add(span)
            else:
                del pieces[span]
                pieces |= own
    return _fit_scale(sorted(pieces.items()), total)


def _fit_scale(pieces: Sequence[tuple[Range, int]], total: int) -> IdScale:
    """The scale in which the densest of *pieces* with many of *total* rows keeps its width."""
    heavy = [(span[1] - span[0]) // rows for span, rows in pieces if rows * HEAVY > total > 0]
    unit, alike = max(min(heavy, default=1), 1), EVEN
    knots = _knots(pieces, unit, alike)
    while len(knots) > MOST_KNOTS:
        alike *= EVEN
        knots = _knots(pieces, unit, alike)
    return IdScale(tuple(knots) if len(knots) > 2 else ())


def _knots(pieces: Iterable[tuple[Range, int]], unit: int, alike: float) -> list[tuple[int, int]]:
    """Ids and their places where the density changes by more than *alike* times."""
    knots, place, before = list[tuple[int, int]](), 0, 0.0
    for (low, high), rows in pieces:
        places = min(max(rows * unit, 1), high - low)
        density = places / (high - low)
        if not knots:
            knots, place = [(low, low)], low
        elif before and not before / alike <= density <= before * alike:
            knots.append((low, place))
            before = density
        before = before or density
        place += places
    end = max((span[1] for span, _ in pieces), default=0)
    return [*knots, (end, place)]


def block_width(low: int, high: int, rows: int, target: int) -> int:
    """Width of a block: the power of two that holds about *target* of *rows* ids in low..high.

    Only the cost depends on it, never the answer; ids may be as sparse as they like.
    """
    share = (high - low + 1) * target // max(rows, 1)
    return 1 << max(share, target, 1).bit_length() - 1


def choose_blocks(
    low: int, high: int, size: int, *, cursor: int, newest: int, rotating: int
) -> Choice:
    """The *newest* blocks of width *size*, *rotating* older ones below *cursor*, and both edges.

    The edges reach to the ends of any type, so rows outside the source's low..high are counted.
    """
    first, last = low // size, high // size
    oldest_new = max(first, last - newest + 1)
    fresh = range(oldest_new, last + 1)
    top = oldest_new - 1
    start = min((cursor - 1) // size, top)  # the cursor may lie inside: widths change
    start = top if start < first else start
    old = [k for k in range(start, start - rotating, -1) if k >= first]
    blocks = [(k * size, (k + 1) * size) for k in (*sorted(old), *fresh)]
    edges = [(FLOOR, first * size), ((last + 1) * size, UNSIGNED_CEILING)]
    ranges = tuple(span for span in (edges[0], *blocks, edges[1]) if span[0] < span[1])
    return Choice(ranges, old[-1] * size if old else 0)


def find_mismatches(
    ranges: Sequence[Range], source: Sequence[int], mirror: Sequence[int]
) -> tuple[Mismatch, ...]:
    """The ranges whose counts differ, either way."""
    rows = zip(ranges, source, mirror, strict=True)
    return tuple(Mismatch(span, one, other) for span, one, other in rows if one != other)


def narrow_mismatches(
    wide: Sequence[Mismatch], counts: Counts, *, leaf: int, breadth: int
) -> Narrowed:
    """Halve mismatching ranges until each is small; *breadth* of them at most, the lowest.

    Small is one with at most *leaf* rows, or with rows on one side alone: all of them differ.
    Both halves are counted again each time; a mismatch that has gone meanwhile is dropped.
    """
    leaves: list[Range] = []
    left, whole = sorted(wide, key=lambda each: each.span), True
    while left:
        leaves += [each.span for each in left if _small(each, leaf)]
        left = [each for each in left if not _small(each, leaf)]
        room = max(breadth - len(leaves), 0)
        whole = whole and len(left) <= room
        halves = [half for each in left[:room] for half in divide_range(each.span, 2)]
        left = list(find_mismatches(halves, *counts(halves))) if halves else []
    return Narrowed(tuple(sorted(leaves[:breadth])), whole and len(leaves) <= breadth)


def differing_ids(source: Sequence[int], mirror: Sequence[int], limit: int) -> tuple[int, ...]:
    """Ids that the two ascending lists hold a different number of times, ascending.

    A list as long as *limit* may have been cut off: nothing past its end is compared, and its last
    id only if it is already there more often than in the other.
    """
    ends = [ids[-1] for ids in (source, mirror) if len(ids) >= limit]
    one, other = Counter(source), Counter(mirror)
    ids = sorted(key for key in one.keys() | other.keys() if one[key] != other[key])
    if not ends:
        return tuple(ids)
    end = min(ends)
    cut_here, cut_there = (len(ids) >= limit and ids[-1] == end for ids in (source, mirror))
    fewer, more = (other, one) if cut_here else (one, other)
    sure = cut_here != cut_there and more[end] > fewer[end]
    return tuple(key for key in ids if key < end or (key == end and sure))


def divide_range(span: Range, parts: int) -> list[Range]:
    """*span* in so many *parts* of equal width, ascending; a range of fewer ids in one of each."""
    low, high = span
    parts = min(parts, high - low)
    return [*pairwise(low + (high - low) * number // parts for number in range(parts + 1))]


def overlap(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two half-open ranges have an id in common."""
    return one[0] < other[1] and other[0] < one[1]


def id_runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive ids in an ascending sequence, as (first, last), both included."""
    first = last = None
    for key in ids:
        if first is None or last is None:
            first = last = key
        elif key == last + 1:
            last = key
        else:
            yield first, last
            first = last = key
    if first is not None and last is not None:
        yield first, last


def _small(each: Mismatch, leaf: int) -> bool:
    few = max(each.source, each.mirror) <= leaf or min(each.source, each.mirror) == 0
    return few or each.span[1] - each.span[0] <= 1
