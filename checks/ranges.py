"""Chooses the id ranges to count, and finds the ids that do not match.  Pure.

Blocks are aligned to powers of two, so later rounds count the same old block again even if the
table grows.  All ranges are half open.

Ids may be distributed unevenly: one id is far above all others, or a table has numbers of two
kinds. A scale then maps ids to places, so that blocks of one width have about the same number of
rows.
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
"""Ranges -> number of rows of each."""
PARTS, PASSES = 16, 6  # parts of an uneven range, and how often parts are divided again
HEAVY = 64  # a range with more than 1/64 of all rows is divided
EVEN = 1.4  # a range is even if no part has more than 1.4 times the average rows of its parts
MOST_KNOTS = 200


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A range with different numbers of rows on the two sides."""

    span: Range
    source: int
    mirror: int


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Ranges whose ids are read; ``whole`` is False if a mismatch was left out."""

    spans: tuple[Range, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """Ranges of one round, and the id below which the next round's rotation continues."""

    ranges: tuple[Range, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class IdScale:
    """Maps ids to places, so that rows are about equally dense in places everywhere.

    ``knots`` are pairs of id and place, both ascending.  Between two knots, places are linear in
    ids, with at most one place per id.  Outside the knots, one place is one id.
    """

    knots: tuple[tuple[int, int], ...] = ()

    def place(self, id_: int) -> int:
        """Return the place of *id_*; neighbouring ids may have the same place."""
        (low, first), after = self._knots_around(id_, 0)
        if after is None:
            return first + id_ - low
        high, last = after
        return first + (id_ - low) * (last - first) // (high - low)

    def id_at(self, place: int) -> int:
        """Return the lowest id at *place*."""
        (low, first), after = self._knots_around(place, 1)
        if after is None:
            return low + place - first
        high, last = after
        return low - (first - place) * (high - low) // (last - first)  # rounded up

    def _knots_around(
        self, value: int, part: int
    ) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """Return the knots before and after an id (*part* 0) or a place (*part* 1).

        The second one is None outside the knots.
        """
        if not self.knots:
            return (0, 0), None
        number = bisect_right(self.knots, value, key=lambda knot: knot[part])
        inside = 0 < number < len(self.knots)
        return self.knots[max(number - 1, 0)], self.knots[number] if inside else None

    def width(self, ids: Range) -> int:
        """Return the number of places of *ids*."""
        return self.place(ids[1]) - self.place(ids[0])


EVEN_IDS = IdScale()
"""The scale in which each place is one id."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks that contain the ids ``low`` to ``high``, each ``size`` places of ``scale`` wide.

    Block number n begins at place n * ``size``.
    """

    low: int
    high: int
    size: int
    scale: IdScale = EVEN_IDS

    @property
    def numbers(self) -> range:
        """The numbers of all blocks, ascending."""
        return self.numbers_of((self.low, self.high + 1))

    @property
    def ids(self) -> Range:
        """The ids of all blocks; some are below ``low`` or above ``high``."""
        numbers = self.numbers
        return self.ids_of(numbers[0])[0], self.ids_of(numbers[-1])[1]

    def numbers_of(self, ids: Range) -> range:
        """Return the numbers of the blocks that overlap *ids*, which must not be empty."""
        place = self.scale.place
        return range(place(ids[0]) // self.size, place(ids[1] - 1) // self.size + 1)

    def ids_of(self, number: int) -> Range:
        """Return the ids of block *number*."""
        id_at = self.scale.id_at
        return id_at(number * self.size), id_at((number + 1) * self.size)

    def newest(self, count: int) -> tuple[Range, ...]:
        """Return the highest *count* blocks, and all ids of any type in no block; ascending."""
        low, high = self.ids
        newest = self.numbers[-count:] if count else ()
        spans = ((FLOOR, low), *map(self.ids_of, newest), (high, UNSIGNED_CEILING))
        return tuple(span for span in spans if span[0] < span[1])


def learn_scale(low: int, high: int, count: CountRows) -> IdScale:
    """Learn the scale of the rows with ids from *low* to *high*, which *count* counts.

    The first ranges grow from both ends by powers of two, so a single remote id is separated at
    once.  A range with many rows is divided until its parts have about the same number of rows.
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
    """Return the scale in which the densest of the heavy *pieces* keeps its width."""
    heavy = [(span[1] - span[0]) // rows for span, rows in pieces if rows * HEAVY > total > 0]
    unit, alike = max(min(heavy, default=1), 1), EVEN
    knots = _knots(pieces, unit, alike)
    while len(knots) > MOST_KNOTS:
        alike *= EVEN
        knots = _knots(pieces, unit, alike)
    return IdScale(tuple(knots) if len(knots) > 2 else ())


def _knots(pieces: Iterable[tuple[Range, int]], unit: int, alike: float) -> list[tuple[int, int]]:
    """Return ids and places at which the density changes by more than the factor *alike*."""
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
    """Return the block width: a power of two that has about *target* of *rows* ids in low..high.

    Only the cost depends on it, never the answer; ids may be as sparse as they like.
    """
    share = (high - low + 1) * target // max(rows, 1)
    return 1 << max(share, target, 1).bit_length() - 1


def choose_blocks(
    low: int, high: int, size: int, *, cursor: int, newest: int, rotating: int
) -> Choice:
    """Choose *newest* blocks of width *size*, *rotating* older ones below *cursor*, and the edges.

    The edges reach to the limits of any id type, so rows outside low..high are counted too.
    """
    first, last = low // size, high // size
    oldest_new = max(first, last - newest + 1)
    fresh = range(oldest_new, last + 1)
    top = oldest_new - 1
    start = min((cursor - 1) // size, top)  # the cursor may be inside a block: widths change
    start = top if start < first else start
    old = [k for k in range(start, start - rotating, -1) if k >= first]
    blocks = [(k * size, (k + 1) * size) for k in (*sorted(old), *fresh)]
    edges = [(FLOOR, first * size), ((last + 1) * size, UNSIGNED_CEILING)]
    ranges = tuple(span for span in (edges[0], *blocks, edges[1]) if span[0] < span[1])
    return Choice(ranges, old[-1] * size if old else 0)


def find_mismatches(
    ranges: Sequence[Range], source: Sequence[int], mirror: Sequence[int]
) -> tuple[Mismatch, ...]:
    """Return the ranges whose counts differ."""
    rows = zip(ranges, source, mirror, strict=True)
    return tuple(Mismatch(span, one, other) for span, one, other in rows if one != other)


def narrow_mismatches(
    wide: Sequence[Mismatch], counts: Counts, *, leaf: int, breadth: int
) -> Narrowed:
    """Halve mismatching ranges until each is small; returns at most *breadth*, the lowest.

    A range is small if it has at most *leaf* rows on each side, rows on one side only, or one id.
    Both halves are counted again each time; a mismatch that no longer exists is dropped.
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
    """Return ids whose numbers of occurrences in the two ascending lists differ, ascending.

    A list as long as *limit* may have been cut off. Ids past its end are not compared. Its last id
    counts only if that list already has it more often than the other.
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
    """Divide *span* into *parts* of equal width, ascending; into single ids if it has fewer."""
    low, high = span
    parts = min(parts, high - low)
    return [*pairwise(low + (high - low) * number // parts for number in range(parts + 1))]


def overlap(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two half-open ranges have an id in common."""
    return one[0] < other[1] and other[0] < one[1]


def id_runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive ids in an ascending sequence, as (first, last), both included."""
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
