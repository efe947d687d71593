"""May a Postgres be read behind a fence, and if not, who is it that keeps it waiting?

What is logged is not yet to be seen: a commit stands in the log, and is sent from there, before
other sessions see its rows; where it waits for a standby that may be long.  So all transactions
that had begun to write when the heartbeat after the fence was committed must have ended: those
below a number that is given out then.  (*Measured*: ``pg_snapshot_xmax``, noted with the fence, is
no such number: one that begins after it, is logged before the heartbeat and not yet to be seen has
a higher one, and a change's order begins with the commit before it, which may be below the fence.)
What begins later stands above the heartbeat in the log, and so above the fence.
"""

from collections.abc import Sequence

from pipeline.errors import ProofError
from pipeline.sources.postgres.session import Ask, Row

# A transaction of its own, that writes nothing: it costs a number.
NUMBER = "SELECT pg_current_xact_id()::text AS number"
BEGUN = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS oldest,"
    " pg_current_wal_flush_lsn()::text AS lsn"
)
# Who writes, and for how long.  The locks are shown to everybody, times only to who may see them.
WRITERS = """\
SELECT l.pid, a.datname::text AS database, a.usename::text AS who, p.gid::text AS prepared,
    (extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)))::int AS seconds
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
    AND l.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY age(l.transactionid) DESC LIMIT 3
"""


def ended(ask: Ask, number: int) -> str | None:
    """Whether all transactions up to *number* have: the place in the log by then, None if not."""
    (row,) = ask(BEGUN)
    return str(row["lsn"]) if int(row["oldest"]) > number else None


def awaited(where: str, patience: object, writers: Sequence[Row]) -> ProofError:
    """What to tell of a fence that was waited for in vain: who is still at it."""
    found = "; ".join(map(_told, writers)) or "one that has just ended"
    return ProofError(
        f"{where}: transactions that began before the read are open after {patience}: {found};"
        " it goes on once they have ended"
    )


def _told(row: Row) -> str:
    since = "" if row["seconds"] is None else f", open for {row['seconds']} s"
    if row["prepared"] is not None:
        return f"prepared transaction {row['prepared']!r}{since}"
    return f"pid {row['pid']} of {row['who']} in {row['database']}{since}"
