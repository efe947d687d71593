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

from pipeline.mark import Epoch
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
    starts: Mapping[str, int],
    *,
    anew: Collection[TopicPartition] = (),
) -> dict[TopicPartition, EpochBounds]:
    """The bounds of each of *partitions*; a partition that began *anew* forgets its starts.

    *known* and *starts* are those of the mark: a source never reached is in its first epoch, and
    a partition without a start belongs to the newest one from its first offset on.
    """
    newest = known[source].number if source in known else 1
    return {
        tp: _bounds(newest, [0 if tp in anew else starts.get(f"{source}/{n}/{tp}", 0) for n in ns])
        for ns in [range(2, newest + 1)]
        for tp in partitions
    }


def living(
    starts: Mapping[str, int],
    w: Mapping[str, PartitionEnd],
    *,
    anew: Collection[TopicPartition] = (),
    kept: Collection[tuple[str, int]] = (),
) -> dict[str, int]:
    """Starts that still say something: W is below them, or has not come to the partition.

    Every row read from W on belongs to such an epoch or a later one without being told; and in a
    partition that began *anew* offsets of before mean nothing.  Those of *kept* (source, epoch)
    are not dropped otherwise.
    """
    again = {str(tp) for tp in anew}
    found = {}
    for name, start in starts.items():
        source, number, at = name.split("/", 2)
        passed = at in w and w[at].offset >= start
        if at not in again and (not passed or (source, int(number)) in kept):
            found[name] = start
    return found


def newest_starts(
    known: Mapping[str, Epoch], starts: Mapping[str, int]
) -> dict[TopicPartition, int]:
    """First offset of its source's newest epoch in each partition that has one."""
    found = {}
    for name, start in starts.items():
        source, number, at = name.split("/", 2)
        if source in known and int(number) == known[source].number:
            found[TopicPartition.parse(at)] = start
    return found


def _bounds(newest: int, starts: list[int]) -> EpochBounds:
    """*starts* of the epochs 2, 3, ... up to *newest*."""
    steps, reached = [], 0
    for number, start in enumerate(starts, 2):
        if start > reached:
            steps.append((reached, number - 1))
            reached = start
    return EpochBounds((*steps, (reached, newest)))
