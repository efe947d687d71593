"""Times in the database: whole microseconds since 1970 UTC; at the interface aware datetimes."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Instant(TypeDecorator[datetime]):
    """A moment.  Integers sort and subtract alike on every database; ISO text does not."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Refuse a naive datetime: whose clock it means cannot be known."""
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect | None) -> datetime | None:
        """Return the moment in UTC."""
        return None if value is None else _EPOCH + value * _MICROSECOND


def microseconds(instant: datetime) -> int:
    """Microseconds since 1970 UTC, exactly.

    Raises:
        ValueError: *instant* is naive.
    """
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone")
    return (instant - _EPOCH) // _MICROSECOND
