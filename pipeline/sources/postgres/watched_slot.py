"""Does the slot keep the log for the connector, and did it at each look before?

Asked in every round of landing.  A slot that was dropped, or has lost log that was not read, is
made anew where the log ends then: what was written before is sent by nobody, whatever a connector
has stored.  One that is still being made keeps nothing yet.
Cannot see: one that was dropped and made anew between two looks, or before the first of this
process: nothing in the catalogue tells it from the old one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.capture import Break
from pipeline.sources.postgres.session import PostgresSession

KEPT = """\
SELECT confirmed_flush_lsn IS NOT NULL AND wal_status IS DISTINCT FROM 'lost' AS kept
FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()
"""


@dataclass(eq=False)
class WatchedSlot:
    """The slot called *name*, of the session's database."""

    session: PostgresSession
    name: str
    clock: Callable[[], float] = time.monotonic
    _broken: Break | None = None

    def look(self) -> Break | None:
        """When it last kept nothing; None if it did at each look.

        Raises:
            UnreachableError: the server does not answer.
        """
        found = self.session.ask(KEPT, self.name)
        known = self._broken
        if found and found[0]["kept"]:
            self._broken = known and replace(known, over=True)
        elif known is None or known.over:
            self._broken = Break(self._why(bool(found)), self.clock())
        return self._broken

    def _why(self, there: bool) -> str:
        how = "kept nothing (lost, or still being made)" if there else "was not there"
        return f"slot {self.name} {how}: what was written until it was made anew is sent by nobody"
