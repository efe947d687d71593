"""Which number marks this moment in a source's log?  One beat is one fence.

A number never goes back: it is above every number known before, even if someone reset the row.
It skips none either, unless the row was reset: a lost answer is followed by the next number.
"""

from dataclasses import dataclass
from datetime import datetime

from pipeline.model import Fence
from pipeline.sources.source import Source


@dataclass(eq=False)
class Heart:
    """The heartbeat of one source; ``known`` is the highest number seen of it, -1 for none."""

    source: Source
    known: int = -1

    def beat(self, now: datetime) -> Fence:
        """Write the next heartbeat; *now* must have been read from the clock before this call."""
        number, head = self.source.beat(self.known + 1, now)
        self.known = number
        return Fence(self.source.name, number, now, head)
