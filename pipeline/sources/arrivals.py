"""Which partitions got rows in a window, and which of these came late?  Where a source knows.

A source whose rows come in partitions has a class for that in its module, beside ``SOURCE``, as
``ARRIVALS``; its settings come first.  A window is one of the source's own offsets, ``[after,
until)``: two that follow each other share no row and leave none out, whatever clocks say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PartitionArrivals:
    """What a window brought to one partition of a shard; ``late`` of its ``rows`` came late.

    ``first`` and ``last`` are when it came, by Sluice's clock.
    """

    shard: str
    partition: str
    files: int
    rows: int
    late: int
    first: datetime
    last: datetime


class SourceArrivals(Protocol):
    """What a source tells of its partitions; UnreachableError where it cannot be asked."""

    def end(self) -> int:
        """The offset that the next row will have."""
        ...

    def between(self, after: int, until: int) -> Sequence[PartitionArrivals]:
        """Of each partition what its rows with offsets ``[after, until)`` were, sorted."""
        ...

    def late(self, since: datetime | None) -> Sequence[PartitionArrivals]:
        """Of each partition what came late, *since* then."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...
