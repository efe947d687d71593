"""Is a batch still the one that had its number before, or did the log lose that one?  Pure.

Landing draws a number, its life, each time it starts.  A log that lost its newest entries goes on
with the numbers they had, but in another life.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.mark import Mark

MOST = 1_000  # an older life says nothing of a log's newest entries


@dataclass(frozen=True, slots=True)
class Lives:
    """Lives by the first batch of each, both ascending by batch."""

    firsts: tuple[int, ...]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, told: Mapping[str, int]) -> "Lives":
        """As a mark tells them: first batch -> life."""
        pairs = sorted((int(first), life) for first, life in told.items())
        return cls(tuple(first for first, _ in pairs), tuple(life for _, life in pairs))

    def at(self, batch: int) -> int | None:
        """The life that landed *batch*; None where that is not known any more."""
        place = bisect_right(self.firsts, batch)
        return self.numbers[place - 1] if place else None


def lived(told: Mapping[str, int], batch: int, life: int) -> Mapping[str, int]:
    """*told*, and that *batch* is landed in *life*; the very same where that follows from it."""
    if Lives.of(told).at(batch) == life:
        return told
    kept = sorted(told, key=int)[1 - MOST :]
    return {**{first: told[first] for first in kept}, str(batch): life}


def is_set_back(known: Mark, now: Mark) -> bool:
    """Whether the log has lost the batch of *known*, whose number another may have by *now*."""
    if now.batch < known.batch:
        return True
    lives = (Lives.of(one.lives).at(known.batch) for one in (known, now))
    return now.lives is not known.lives and len({*lives}) > 1
