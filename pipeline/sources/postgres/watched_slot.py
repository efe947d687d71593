"""Does the slot keep the log for the connector, and did it at each look before?

Asked in every round of landing.  A slot that was dropped, or has lost log that was not read, is
made anew where the log ends then: what was written before is sent by nobody, whatever a connector
has stored.  One that is still being made keeps nothing yet.  By what is told of one that is there
`log_keeper` knows it again, also in another process.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.model import Break, Head, LogKeeper
from pipeline.sources.postgres.log_keeper import SlotSeen
from pipeline.sources.postgres.session import PostgresSession, Row

KEPT = """\
SELECT confirmed_flush_lsn IS NOT NULL AND wal_status IS DISTINCT FROM 'lost' AS kept,
    restart_lsn::text AS restart,
    concat_ws(' ', active_pid, a.backend_start) AS reader,
    coalesce(total_txns, 0) AS decoded, concat_ws(' ', w.stats_reset, t.stats_reset) AS counted,
    pg_snapshot_xmax(pg_current_snapshot())::text AS begun
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
LEFT JOIN pg_stat_replication_slots t ON t.slot_name = s.slot_name CROSS JOIN pg_stat_wal w
WHERE s.slot_name = %s AND s.database = current_database()
"""


@dataclass(eq=False)
class WatchedSlot:
    """The slot called *name*, of the session's database."""

    session: PostgresSession
    name: str
    clock: Callable[[], float] = time.monotonic
    _broken: Break | None = None

    def look(self, head: Head) -> tuple[Break | None, LogKeeper | None]:
        """When it last kept nothing, None if it did at each look; and it, if it keeps now.

        *head* is the server's, asked just before: a slot that is made later begins there or above.

        Raises:
            UnreachableError: the server does not answer.
        """
        found = self.session.ask(KEPT, self.name)
        known = self._broken
        if found and found[0]["kept"]:
            self._broken = known and replace(known, over=True)
            return self._broken, self._keeper(head, found[0])
        if known is None or known.over:
            self._broken = Break(self._why(bool(found)), self.clock())
        return self._broken, None

    def _keeper(self, head: Head, row: Row) -> LogKeeper:
        server, _, _ = head.identity.rpartition("/")
        return SlotSeen(
            name=self.name,
            server=server,
            end=head.position.words,
            restart=str(row["restart"]),
            reader=str(row["reader"]),
            decoded=int(row["decoded"]),
            counted=str(row["counted"]),
            begun=int(row["begun"]),
        ).keeper

    def _why(self, there: bool) -> str:
        how = "kept nothing (lost, or still being made)" if there else "was not there"
        return f"slot {self.name} {how}: what was written until it was made anew is sent by nobody"
