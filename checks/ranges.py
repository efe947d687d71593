"""Which id ranges to count, and which ids do not match?  Pure: blocks, halving, comparing.

Blocks are aligned to powers of two, so the same old block is counted again in later rounds even
as a table grows.  All ranges are half open.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from checks.world import Range

FLOOR = -(2**63)
CEILING = 2**63 - 1
UNSIGNED_CEILING = 2**64

Counts = Callable[[Sequence[Range]], tuple[Sequence[int], Sequence[int]]]


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
        halves = [half for each in left[:room] for half in _halves(each.span)]
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


def _halves(span: Range) -> tuple[Range, Range]:
    middle = (span[0] + span[1]) // 2
    return (span[0], middle), (middle, span[1])
