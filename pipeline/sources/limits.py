"""What is a database server spared while it is asked?  Its kind's session holds it to this."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from pipeline.durations import with_durations
from pipeline.errors import SparedError, TooManyRowsError, UnreachableError

RUNNING, LAG, RATE, TIME = "running", "lag", "rate", "time"
"""Brakes of a re-reading, by the limit that they keep: as in metrics."""
_Time = Annotated[timedelta, Field(ge=timedelta(milliseconds=100))]
"""Servers count milliseconds, and take 0 for no limit."""
_CALL = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one source is spared: time per statement and call, rows read, and load.

    ``rows`` is compared with the server's own estimate before rows are counted.
    ``call`` is as long as ``statement`` where only that is given, and longer.
    ``running`` is the number of statements at work there above which nothing is asked.
    A re-reading reads at most ``rate`` rows a second (0: as many as come), and none of a replica
    that is ``lag`` behind.
    """

    statement: _Time = timedelta(seconds=5)
    """How long one statement may take."""
    call: _Time = _CALL
    """How long one call may take, which may be several statements."""
    connect: _Time = timedelta(seconds=5)
    """How long a connection may take to open."""
    rows: Annotated[int, Field(ge=1)] = 5_000_000
    running: Annotated[int, Field(ge=1)] = 64
    rate: Annotated[int, Field(ge=0)] = 0
    """The most rows a second that a backfill reads; 0: no limit."""
    lag: Annotated[timedelta, Field(ge=timedelta())] = timedelta(seconds=30)
    """A replica that is further behind is not read for a backfill."""

    def __post_init__(self) -> None:
        """Let the default of a call follow its statements."""
        if self.call == _CALL:
            object.__setattr__(self, "call", max(_CALL, self.statement))

    @property
    def answer(self) -> timedelta:
        """Time for one answer to come: the server's own limit on the statement comes first."""
        return self.statement + timedelta(seconds=2)

    def refuse_load(self, running: int, where: str) -> None:
        """Raise SparedError, ``loaded``, for a server where so many statements run."""
        if running > self.running:
            msg = f"{where}: loaded: {running} threads run, limits.running is {self.running}"
            raise SparedError(RUNNING, msg)

    def refuse_lag(self, behind: timedelta, where: str) -> None:
        """Raise SparedError for a replica that is so far *behind*."""
        if behind > self.lag:
            far, most = round(behind.total_seconds()), self.lag.total_seconds()
            msg = f"{where}: what is read is {far} s behind, limits.lag is {most:g} s"
            raise SparedError(LAG, msg)

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


def limits_of(options: Mapping[str, Any]) -> Limits:
    """Those that a source's *options* set, which are checked where the source is made."""
    return with_durations(TypeAdapter[Limits](Limits).validate_python, options.get("limits", {}))
