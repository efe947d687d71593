"""Which number marks this moment in a source's log?  One beat is one fence.

A number never goes back: it is above every number known before, even if someone reset the row.
It skips none either, unless the row was reset: a lost answer is followed by the next number.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pipeline.model import Fence, Head


class Beating(Protocol):
    """The part of a source that a heart needs."""

    @property
    def name(self) -> str:
        """The source's name."""
        ...

    def beat(self, at_least: int, at: datetime) -> tuple[int, Head]:
        """Commit the row's number plus one, *at_least* this one; that, and a head read after."""
        ...


@dataclass(eq=False)
class Heart:
    """The heartbeat of one source; ``known`` is the highest number seen of it, -1 for none."""

    source: Beating
    known: int = -1

    def beat(self, now: datetime) -> Fence:
        """Write the next heartbeat; *now* must have been read from the clock before this call."""
        number, head = self.source.beat(self.known + 1, now)
        self.known = number
        return Fence(self.source.name, number, now, head)
