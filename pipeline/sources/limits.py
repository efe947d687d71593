"""What is a database server spared while it is asked?  Its kind's session holds it to this."""

import time
from dataclasses import dataclass
from datetime import timedelta

from pipeline.errors import TooManyRowsError, UnreachableError


@dataclass(frozen=True, slots=True)
class Limits:
    """What one source is spared: time per statement and call, rows read, and load.

    ``rows`` is compared with the server's own estimate before rows are counted.
    ``running`` is the number of statements at work there above which nothing is asked.
    """

    statement: timedelta = timedelta(seconds=5)
    call: timedelta = timedelta(seconds=20)
    connect: timedelta = timedelta(seconds=5)
    rows: int = 5_000_000
    running: int = 64

    @property
    def answer(self) -> timedelta:
        """Time for one answer to come: the server's own limit on the statement comes first."""
        return self.statement + timedelta(seconds=2)

    def refuse_load(self, running: int, where: str) -> None:
        """Raise UnreachableError, ``loaded``, for a server where so many statements run."""
        if running > self.running:
            msg = f"{where}: loaded: {running} threads run, limits.running is {self.running}"
            raise UnreachableError(msg)

    def refuse_rows(self, estimated: int, table: str) -> None:
        """Raise TooManyRowsError where one range of *table* holds more than may be counted."""
        if estimated > self.rows:
            msg = f"about {estimated} rows of {table} in one range, {self.rows} may be counted"
            raise TooManyRowsError(msg)

    def deadline(self) -> float:
        """When a call that starts now must have ended, on the monotonic clock."""
        return time.monotonic() + self.call.total_seconds()

    def hurry(self, deadline: float, where: str) -> None:
        """Raise UnreachableError, ``slow``, once *deadline* has passed."""
        if time.monotonic() > deadline:
            raise UnreachableError(f"{where}: slow: took more than {self.call}")
