"""Which epoch does each offset of a partition belong to?  As steps, so that rows take it in bulk.

An epoch is valid in a partition from its start on; rows before it belong to the epochs before.
Where two starts contradict each other - a later epoch that starts below an earlier one - the
earlier one keeps what is below its own.  Pure.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.checkpoint import Epoch, EpochStart
from pipeline.model import PartitionEnd, TopicPartition


@dataclass(frozen=True, slots=True)
class EpochBounds:
    """``steps``: (first offset, epoch), both rising, the first offset 0."""

    steps: tuple[tuple[int, int], ...]

    def at(self, offset: int) -> int:
        """The epoch of one offset."""
        return self.steps[bisect_right(self.steps, offset, key=lambda step: step[0]) - 1][1]

    def epochs(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The epoch of each offset."""
        firsts = np.array([first for first, _ in self.steps], np.int64)
        numbers = np.array([number for _, number in self.steps], np.int64)
        return numbers[np.searchsorted(firsts, offsets, side="right") - 1]


def bounds(
    source: str,
    partitions: Iterable[TopicPartition],
    known: Mapping[str, Epoch],
    starts: Mapping[EpochStart, int],
    *,
    anew: Collection[TopicPartition] = (),
) -> dict[TopicPartition, EpochBounds]:
    """The bounds of each of *partitions*; a partition that began *anew* forgets its starts.

    A source that is not *known* was never reached and is in its first epoch; a partition without a
    start belongs to the newest one from its first offset on.
    """
    newest = known[source].number if source in known else 1
    former = range(1, newest)
    return {
        at: _bounds(newest, [starts.get(EpochStart(source, n + 1, at), 0) for n in former])
        if at not in anew
        else EpochBounds(((0, newest),))
        for at in partitions
    }


def needed(
    starts: Mapping[EpochStart, int],
    w: Mapping[str, PartitionEnd],
    *,
    anew: Collection[TopicPartition] = (),
    kept: Collection[tuple[str, int]] = (),
) -> dict[EpochStart, int]:
    """Starts that still say something: W is below them, or has not come to the partition.

    Every row read from W on belongs to such an epoch or a later one without being told; and in a
    partition that began *anew* offsets of before mean nothing.  Those of *kept* (source, epoch)
    are not dropped otherwise.
    """
    found = {}
    for one, first in starts.items():
        end = w.get(str(one.at))
        passed = end is not None and end.offset >= first
        if one.at not in anew and (not passed or (one.source, one.number) in kept):
            found[one] = first
    return found


def newest_starts(
    known: Mapping[str, Epoch], starts: Mapping[EpochStart, int]
) -> dict[TopicPartition, int]:
    """First offset of its source's newest epoch in each partition that has one; all are *known*."""
    return {
        one.at: first for one, first in starts.items() if one.number == known[one.source].number
    }


def _bounds(newest: int, ends: list[int]) -> EpochBounds:
    """*ends* of the epochs 1, 2, ... before *newest*."""
    steps, reached = [], 0
    for number, end in enumerate(ends, 1):
        if end > reached:
            steps.append((reached, number))
            reached = end
    return EpochBounds((*steps, (reached, newest)))
