"""Compares log sequence numbers, and decides when rows may be read behind a fence.

Text of a position: the LSN as Postgres writes it, `16/B374D848`. For a server it is the end of
its log. For a collector it is the end of the last commit that it has delivered, with all earlier
ones. LSNs continue after a promotion, so they do not identify a server; the identity of the head
does.

Reading behind a fence: a commit is in the log, and is sent, before other sessions see its rows.
If it waits for a standby, that can take long. So all transactions that had begun to write when
the heartbeat after the fence was committed must have ended. These are the transactions below a
number that is assigned then. Later ones are above the heartbeat in the log, and so above the
fence.

Measured: `pg_snapshot_xmax`, taken with the fence, is not such a number. A transaction that
begins after it, and is logged before the heartbeat but not yet visible, has a higher number.
The order of a change begins with the commit before it, which may be below the fence.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipeline.errors import FormatError, ProofError
from pipeline.model import Head, Order, Position
from pipeline.sources.positions import PositionRules
from pipeline.sources.postgres.replication import Row
from pipeline.sources.sql import Ask

KIND = "postgres"
_LSN = re.compile(r"([0-9A-F]{1,8})/([0-9A-F]{1,8})", re.IGNORECASE)


def parse_lsn(text: str) -> int:
    """Parse an LSN as Postgres writes it: the number of a byte in the whole log.

    Raises:
        FormatError: it is not an LSN.
    """
    found = _LSN.fullmatch(text)
    if found is None:
        raise FormatError(f"{text!r} is no LSN, such as 16/B374D848")
    return int(found[1], 16) << 32 | int(found[2], 16)


def log_position(number: int) -> Position:
    """The position whose LSN is *number*."""
    return Position(KIND, f"{number >> 32:X}/{number & 0xFFFF_FFFF:X}")


@dataclass(frozen=True, slots=True)
class PostgresPositions:
    """Position rules of Postgres: a position is one number, without transactions."""

    def locate(self, position: Position) -> tuple[int, int]:
        return _read(position.words), 0

    def has_reached(self, passed: Position, wanted: Position) -> bool:
        return _read(passed.words) >= _read(wanted.words)

    def explain_reset(self, known: Position, now: Position) -> str | None:
        """Explain a lower LSN: the server was restored from a backup, or lost unsynced log."""
        if _read(now.words) < _read(known.words):
            return f"log went back from {known} to {now}"
        return None

    def explain_missing_log(self, known: Head, now: Head, landed: Order | None) -> str | None:
        """Explain which part of the old log a promoted server does not have; None if it has all.

        A promoted server does not have what its predecessor wrote after their logs parted.  It
        reports the end of the shared log until it is restarted.  Another system or database is
        unknown.  Changes above the last known head may have landed later: *landed* has the position
        of the newest one, and of the commit before it.
        """
        if known.identity == now.identity:
            return self.explain_reset(known.position, now.position)
        if _database(known.identity) != _database(now.identity):
            return f"{now.identity} is another database than {known.identity}"
        if now.parted is None:
            return "the promoted server does not report where it left the log of its predecessor"
        come = _read(known.position.words)
        if landed is not None:
            come = max(come, landed.log, landed.pos)
        if _read(now.parted.words) < come:
            return (
                f"the promoted server left the log of its predecessor at {now.parted}, which had"
                f" reached {log_position(come)}: the promoted server never had the changes between"
            )
        return None

    def explain_overrun(self, said: Position, end: Position) -> str | None:
        if _read(said.words) > _read(end.words):
            return f"{said} is above the head {end} that was read after it"
        return None

    def names_transactions(self, position: Position) -> bool:
        """False: a promoted replica continues the LSNs of the old server."""
        return False

    def may_contain(self, position: Position, transaction: str) -> bool:
        """True: the number of a transaction does not say where it ends."""
        return True

    def compares_replicas(self, position: Position) -> bool:
        """True: a standby has the LSNs and the identity of its primary."""
        return True

    def explain_behind(self, source: Head, replica: Head) -> str | None:
        """Explain by timeline and LSN that *replica* is behind *source*; None if it is not.

        The LSN of a standby is that of a record that was replayed, and is read before its rows.  So
        a statement that begins later sees every commit before that LSN.
        """
        if _database(source.identity) != _database(replica.identity):
            raise ProofError(
                f"it is {replica.identity}, another system or database than {source.identity}"
            )
        own, there = _timeline(source.identity), _timeline(replica.identity)
        if there > own:
            raise ProofError(f"it follows timeline {there}, and the source is on timeline {own}")
        if there < own:
            return f"it is still on timeline {there}, and the source is on timeline {own}"
        if not self.has_reached(replica.position, source.position):
            return "it has not replayed all that the source had"
        return None


POSITIONS: PositionRules = PostgresPositions()


def _database(identity: str) -> tuple[str, str]:
    """System and database, without the timeline."""
    system, _, rest = identity.partition("/")
    return system, rest.partition("/")[2]


def _timeline(identity: str) -> int:
    return int(identity.split("/")[1])


@lru_cache(maxsize=4096)  # the same fences are compared for every table
def _read(words: str) -> int:
    return parse_lsn(words)


# It runs as a separate transaction that writes nothing, but uses up a transaction number.
NUMBER = "SELECT pg_current_xact_id()::text AS number"
BEGUN = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS oldest,"
    " pg_current_wal_flush_lsn()::text AS lsn"
)
# Open writing transactions.  Every user sees locks; only some users see times.
WRITERS = """\
SELECT l.pid, a.datname::text AS database, a.usename::text AS who, p.gid::text AS prepared,
    (extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)))::int AS seconds
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
    AND l.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY age(l.transactionid) DESC LIMIT 3
"""


def find_end_of_transactions(ask: Ask, number: int) -> str | None:
    """The LSN of the log's end once all transactions up to *number* have ended, else None."""
    (row,) = ask(BEGUN)
    return str(row["lsn"]) if int(row["oldest"]) > number else None


def fence_timeout(where: str, patience: object, writers: Sequence[Row]) -> ProofError:
    """The error for a fence that was not reached; it names the open transactions."""
    found = "; ".join(map(_describe_writer, writers)) or "one that has just ended"
    return ProofError(
        f"{where}: transactions that began before the read are open after {patience}: {found};"
        " end them, or wait"
    )


def _describe_writer(row: Row) -> str:
    since = "" if row["seconds"] is None else f", open for {row['seconds']} s"
    if row["prepared"] is not None:
        return f"prepared transaction {row['prepared']!r}{since}"
    return f"pid {row['pid']} of {row['who']} in {row['database']}{since}"
