"""A store in a temporary folder and small values to put into it."""

from datetime import UTC, datetime, timedelta

from monitor.store.store import ServiceStore
from pipeline.model import Fence, Head
from pipeline.sources.mysql.position import binlog_position

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def fence(number: int, at: datetime, source: str = "shop", identity: str = "server-a") -> Fence:
    return Fence(source, number, at, Head(identity, binlog_position(3, 1000 + number, "uuid:1-9")))


def first(store: ServiceStore, instant: datetime) -> Fence | None:
    """The earliest fence kept that is not before *instant*."""
    return next(iter(store.fences.since("shop", instant, limit=1)), None)


def newest(store: ServiceStore, source: str = "shop") -> Fence | None:
    """The last fence kept."""
    return next(reversed(store.fences.since(source, datetime(1970, 1, 1, tzinfo=UTC))), None)
