"""Where do ticks stand?  On a grid of wall-clock time that is the same in every life.  Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def due(now: datetime, every: timedelta) -> datetime:
    """The newest tick at or before *now*."""
    return now - (now - EPOCH) % every


def missed(last: datetime, planned: datetime, every: timedelta) -> Iterator[datetime]:
    """Ticks after *last* and before *planned*, oldest first."""
    tick = due(last, every) + every
    while tick < planned:
        yield tick
        tick += every


def batches(ticks: Iterator[datetime], size: int = 5_000) -> Iterator[tuple[datetime, ...]]:
    """Cut *ticks* so that a week of silence fits through one statement at a time."""
    while batch := tuple(islice(ticks, size)):
        yield batch
