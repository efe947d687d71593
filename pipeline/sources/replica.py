"""Asks the replica of a source what probes ask, once it has executed what its primary had.

Each query first notes how far the primary is, and waits until the replica is as far. So an answer
is of a moment after the query began, as an answer of the primary is: a replica that is behind never
looks like a loss. Where the logs do not name their transactions, the progress of a replica is
unknown, and the primary answers: MySQL without GTIDs, MariaDB and Postgres.

Cannot detect: rows that somebody wrote to the replica alone.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from pipeline.errors import SparedError
from pipeline.sources.positions import explain_missing_log, names_transactions
from pipeline.sources.source import LAG, Source, TableQueries, await_head

POLL = timedelta(milliseconds=100)


@dataclass(eq=False)
class ReplicaChoice:
    """Chooses who answers a query about tables of ``primary``: its ``replica``, where that may.

    ``where`` is the replica's address, for messages. It may take ``patience`` to be as far as the
    primary was.
    """

    primary: Source
    replica: Source
    where: str
    patience: timedelta

    def choose(self) -> TableQueries:
        """Return the replica once it is as far as the primary is now.

        Raises:
            SparedError: it is not after ``patience``.
        """
        needed = self.primary.head()
        if not names_transactions(needed.position):
            return self.primary
        until = time.monotonic() + self.patience.total_seconds()
        explain = partial(explain_missing_log, needed)
        if await_head(self.replica.head, explain, until, POLL) is not None:
            msg = f"source:{self.primary.name}: the replica {self.where} is behind: it has not"
            raise SparedError(LAG, f"{msg} executed all that the source had, after {self.patience}")
        return self.replica
