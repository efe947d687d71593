"""Decides when something that failed is tried again: with back-off, or at once after a change.

The wait grows from 2 seconds to 1 minute while the circumstances stay the same. So a table that
is held for days does not cost every merge run, and continues soon after its cause may have
changed. The caller must give all circumstances that can end the failure.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pipeline.clocks import has_passed

FIRST = timedelta(seconds=2)
LONGEST = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Wait:
    since: datetime
    began: datetime
    pause: timedelta
    circumstances: Hashable


@dataclass(eq=False)
class Retries:
    """Tables that failed, and for how long each is left alone; no longer if the clock goes back."""

    _waits: dict[str, _Wait] = field(default_factory=dict)

    def due(self, table: str, circumstances: Hashable, now: datetime) -> bool:
        """Whether to try *table*; *circumstances* are all that could let it go on."""
        wait = self._waits.get(table)
        if wait is None or circumstances != wait.circumstances:
            return True
        return has_passed(wait.began, wait.pause, now)

    def failed(self, table: str, circumstances: Hashable, now: datetime) -> timedelta:
        """Leave *table* alone for a while, longer each time under the same circumstances.

        Returns:
            For how long it has failed, for any cause.
        """
        wait = self._waits.get(table)
        again = wait is not None and wait.circumstances == circumstances
        pause = min(wait.pause * 2, LONGEST) if wait is not None and again else FIRST
        since = now if wait is None else min(wait.since, now)
        self._waits[table] = _Wait(since, now, pause, circumstances)
        return now - since

    def succeeded(self, table: str) -> None:
        """Forget its failures."""
        self._waits.pop(table, None)
