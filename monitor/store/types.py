"""Converts times and typed values to columns of the database and back.

Times are whole microseconds since 1970 UTC in the database, and aware datetimes in Python.
Values are JSON text of their types. An unknown field is an error, so no value is lost silently.
"""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import BigInteger
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def dumps(kind: Any, value: object) -> str:
    """Encode *value* of type *kind*; times keep their microseconds, durations are ISO 8601."""
    return _adapter(kind).dump_json(value).decode()


def loads(kind: type[T], text: str) -> T:
    """Decode what :func:`dumps` wrote."""
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # types are hashable
    return adapter.validate_json(text)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Instant(TypeDecorator[datetime]):
    """A column of instants. Integers sort and subtract alike on every database."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Refuse a naive datetime, because its clock is unknown."""
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect | None) -> datetime | None:
        """Return the moment in UTC."""
        return None if value is None else _EPOCH + value * _MICROSECOND


def to_microseconds(instant: datetime) -> int:
    """Return microseconds since 1970 UTC, exactly.

    Raises:
        ValueError: *instant* is naive.
    """
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone")
    return (instant - _EPOCH) // _MICROSECOND
