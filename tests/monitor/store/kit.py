"""A store in a temporary folder and small values to put into it."""

from datetime import UTC, datetime, timedelta

from pipeline.model import Fence, Head

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


def fence(number: int, at: datetime, source: str = "shop", identity: str = "server-a") -> Fence:
    return Fence(source, number, at, Head(identity, 3, 1000 + number, "uuid:1-9"))
