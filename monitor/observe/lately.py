"""What was counted in the last minutes?  Totals are for ever; what failed a week ago is over."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

Totals = Mapping[tuple[str, str], int]
MINUTE = timedelta(minutes=1)


@dataclass(eq=False)
class Lately:
    """Compares totals with those of up to *window* ago, kept once a minute in memory."""

    window: timedelta = timedelta(minutes=10)
    _kept: deque[tuple[datetime, Totals]] = field(default_factory=deque)

    def counted(self, totals: Totals, now: datetime) -> Totals:
        """What has been added since; empty at first."""
        if not self._kept or now - self._kept[-1][0] >= MINUTE:
            self._kept.append((now, totals))
        while now - self._kept[0][0] > self.window:
            self._kept.popleft()
        then = self._kept[0][1]
        return {key: n - then.get(key, 0) for key, n in totals.items() if n > then.get(key, 0)}
