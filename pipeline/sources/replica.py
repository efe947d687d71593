"""Sends queries of probes to the replica of a source, once it is as far as its primary was.

Each query first reads the primary's position, then waits until the replica has reached it, and only
then reads rows. So a result is from a moment after the query began, like a result of the primary: a
replica that is behind never looks like a loss. A replica has only what its primary has logged, so
all of its results are below the next heartbeat. Each check that compares a source with a mirror
needs both. It reads what has landed before it queries, and afterwards waits until the mirror has
reached a heartbeat that is written later.

* Position and rows are read on one connection, the position first. A position that is read after
  the rows could include a change that the rows do not have.
* MySQL with GTIDs: the transactions that a replica has executed are compared.
* Postgres: system, database, timeline and LSN are compared. `pg_last_wal_replay_lsn` is "the last
  write-ahead log location that has been replayed" (its manual, System Administration Functions).
  What the primary sends to a standby or to a collector is flushed there. A server that is not in
  recovery writes its own log. It may be a clone, which has the identity of the primary, but whose
  LSN means nothing. So it is rejected, unless it is the primary itself. A standby that now follows
  another server may have replayed more than its timeline shows. So it must also have the newest
  heartbeat, which only the source gets.
* MySQL without GTIDs and MariaDB: the progress of a replica is unknown, so the primary is queried.

Cannot detect: rows that were written to the replica alone; a standby that is promoted between
reading its position and the rows; a clone of a running machine with its memory.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from pipeline.errors import ProofError, SparedError, UnreachableError
from pipeline.finding import REFUSE, WARN, Finding
from pipeline.model import Head
from pipeline.sources.positions import compares_replicas, explain_behind, names_transactions
from pipeline.sources.source import LAG, Source, TableQueries, await_head

POLL = timedelta(milliseconds=100)
READ_FROM = "name a replica of the source in options.read_from, or remove it"
CATCH_UP = (
    "wait until it has caught up; if it never does, name a replica of the source in"
    " options.read_from, or remove it"
)
UNFILTERED = "let it replicate the table of `heartbeat`, or remove options.read_from"
COMPARABLE = "enable global transaction ids at both servers, or remove options.read_from"


def refuse_own_log(replica: Source, primary: Source) -> None:
    """Reject a *replica* that writes its own log, unless it is the *primary* itself.

    Raises:
        ProofError: it does.
    """
    writer = _find_log_writer(replica)
    if writer is not None and writer != _find_log_writer(primary):
        msg = "it is no standby: it writes a log of its own, as a promoted server or a clone does"
        raise ProofError(msg)


def _find_log_writer(server: Source) -> str | None:
    """The result of the method ``log_writer`` of *server*; None if its kind has no such method."""
    find: Callable[[], str | None] | None = getattr(server, "log_writer", None)
    return None if find is None else find()


def _find_heartbeat(server: Source) -> int:
    """The newest heartbeat that *server* has; -1 without any, or without the heartbeat table."""
    try:
        return server.newest_heartbeat()
    except ProofError:
        return -1


@dataclass(eq=False)
class ReplicaChoice:
    """Chooses the server for a query: the ``replica`` if its progress can be compared.

    ``where`` is the replica's address, for messages. ``patience`` is the time limit for the replica
    to reach the position of the ``primary``.
    """

    primary: Source
    replica: Source
    where: str
    patience: timedelta

    def choose(self) -> TableQueries:
        """Return the replica once it has reached the primary's present position.

        Return the primary if positions of replicas cannot be compared.

        Raises:
            SparedError: it has not after ``patience``.
            UnreachableError: it is no replica of the primary.
        """
        needed = self.primary.head()
        if not compares_replicas(needed.position):
            return self.primary
        named = names_transactions(needed.position)
        heartbeat = -1 if named else self.primary.newest_heartbeat()
        which = f"source:{self.primary.name}: the replica {self.where}"
        try:
            missing = self._await(needed, heartbeat)
        except ProofError as error:
            raise UnreachableError(f"{which} is not asked: {error}; correct read_from") from error
        if missing is not None:
            raise SparedError(LAG, f"{which} is behind: {missing}, after {self.patience}")
        return self.replica

    def examine(self) -> list[Finding]:
        """Findings on what prevents probes and backfills from reading the replica.

        Raises:
            UnreachableError: a server does not answer.
            ConfigError: a server rejects the user.
        """
        heartbeat = _find_heartbeat(self.primary)
        needed = self.primary.head()
        if not compares_replicas(needed.position):
            why = "does not show how far it is: probes ask the source, and backfills are refused"
            return [self._finding("replica_progress", why, COMPARABLE)]
        try:
            missing = self._await(needed, -1)
        except ProofError as error:
            why = f"is not read: {error}"
            return [self._finding("replica_history", why, READ_FROM)]
        if missing is not None:
            why = f"is behind: {missing}, after {self.patience}"
            return [replace(self._finding("replica_behind", why, CATCH_UP), severity=WARN)]
        if heartbeat >= 0 and _find_heartbeat(self.replica) < heartbeat:
            why = f"does not have heartbeat {heartbeat} of the source, which was written before"
            return [self._finding("replica_heartbeat", why, UNFILTERED)]
        return []

    def _finding(self, code: str, why: str, fix: str) -> Finding:
        what = f"the replica {self.where} {why}"
        return Finding(REFUSE, code, f"source:{self.primary.name}", what, fix)

    def _await(self, needed: Head, heartbeat: int) -> str | None:
        """Why the replica is still behind *needed* after ``patience``; None if it is not."""
        until = time.monotonic() + self.patience.total_seconds()
        return await_head(self.replica.head, partial(self._explain, needed, heartbeat), until, POLL)

    def _explain(self, needed: Head, heartbeat: int, there: Head) -> str | None:
        """Why the replica, whose head is *there*, is behind *needed*; None if it is not."""
        refuse_own_log(self.replica, self.primary)
        missing = explain_behind(needed, there)
        if missing is None and heartbeat >= 0 and self.replica.newest_heartbeat() < heartbeat:
            return "it does not have the newest heartbeat of the source"
        return missing
