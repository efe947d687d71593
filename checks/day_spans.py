"""Which days are counted, and from when to when is each, for a column of dates or times?  Pure.

A day is one of a named zone, and may have 23 or 25 hours.  A column without a zone holds the wall's
time of one, which may be another.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa

from pipeline.aggregates import Moment, TimeSpan
from pipeline.errors import ProofError

DAY = timedelta(days=1)


def days_before(now: datetime, number: int, zone: ZoneInfo) -> tuple[date, ...]:
    """The last *number* days of *zone* that are over, oldest first."""
    today = now.astimezone(zone).date()
    return tuple(today - ago * DAY for ago in range(number, 0, -1))


def span_of(day: date, kind: pa.DataType, zone: ZoneInfo, wall: ZoneInfo) -> TimeSpan:
    """From when to when *day* is, as a column of *kind* has it; *wall* is that of naive times.

    Raises:
        ProofError: a column of that kind holds no dates or times.
    """
    first, until = (_moment(one, kind, zone, wall) for one in (day, day + DAY))
    return first, until


def place(moment: Moment, spans: Sequence[TimeSpan]) -> int | None:
    """The number of the span that holds *moment*; None if none does."""
    return next((n for n, (first, until) in enumerate(spans) if first <= moment < until), None)


def _moment(day: date, kind: pa.DataType, zone: ZoneInfo, wall: ZoneInfo) -> Moment:
    if pa.types.is_date(kind):
        return day
    if not pa.types.is_timestamp(kind):
        raise ProofError(f"a column of type {kind} holds no dates or times")
    begins = datetime.combine(day, time(), zone).astimezone(UTC)
    return begins if kind.tz else begins.astimezone(wall).replace(tzinfo=None)
