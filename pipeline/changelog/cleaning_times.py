"""When is a table to be cleaned again?  So often, and some minutes after its process began."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

_BEGINNING = timedelta(minutes=10)


@dataclass(eq=False)
class CleaningTimes:
    """By table.  A process that began waits a little.

    Not for the whole time, or one that is restarted more often would never clean up.
    """

    often: timedelta
    clock: Callable[[], datetime]
    _cleaned: dict[str, datetime] = field(default_factory=dict)

    def due(self, name: str) -> bool:
        """Whether it is time."""
        now = self.clock()
        first = now - self.often + min(self.often, _BEGINNING)
        return now - self._cleaned.setdefault(name, first) >= self.often

    def cleaned(self, name: str) -> None:
        """Know that it is done, or was tried."""
        self._cleaned[name] = self.clock()
