"""Which number marks this moment in a source's log?  One beat is one fence.

A number never goes back: it is above every number known before, even if someone reset the row.
It skips none either, unless the row was reset: a lost answer is followed by the next number.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from pipeline.clocks import ClockReading
from pipeline.errors import UnreachableError
from pipeline.model import Fence
from pipeline.sources.source import Source


@contextmanager
def naming_heartbeat(table: str) -> Iterator[None]:
    """Name the *table* where somebody else's lock keeps it from being written."""
    try:
        yield
    except UnreachableError as error:
        if re.search("lock|statement timeout", str(error), re.IGNORECASE):
            error.args = (f"{error}; another session locks heartbeat table {table}: end it",)
        raise


@dataclass(eq=False)
class Heart:
    """The heartbeat of one source; ``known`` is the highest number seen of it, -1 for none.

    ``reading`` is what both clocks showed at the last beat.
    """

    source: Source
    known: int = -1
    reading: ClockReading | None = None

    def beat(self, clock: Callable[[], datetime]) -> Fence:
        """Write the next heartbeat, with the earlier of both clocks' times."""
        before = clock()
        made = self.source.beat(self.known + 1, before)
        self.known, self.reading = made.number, ClockReading(before, made.told, clock())
        return Fence(self.source.name, made.number, self.reading.earlier, made.head)
