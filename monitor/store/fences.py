"""Heartbeats as positions: which one answers for an instant?"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select

from monitor.store.database import Database
from monitor.store.schema import fences
from monitor.store.thin import thin
from pipeline.clocks import ClockStep
from pipeline.model import Fence, Head, Position


@dataclass(eq=False)
class Fences:
    """Every fence of the last day, and fewer of the forty before."""

    database: Database

    def add(self, fence: Fence) -> None:
        """Keep *fence*; one of the same source and instant is replaced."""
        same = (fences.c.source == fence.source) & (fences.c.at == fence.at)
        with self.database.write() as connection:
            connection.execute(delete(fences).where(same))
            connection.execute(insert(fences).values(_row(fence)))

    def fell(self, step: ClockStep) -> None:
        """Forget those whose times *step* has shown to be wrong."""
        gone = (
            (fences.c.source == step.source)
            & (fences.c.number >= step.first)
            & (fences.c.number < step.number)
        )
        with self.database.write() as connection:
            connection.execute(delete(fences).where(gone))

    def since(self, source: str, instant: datetime, limit: int = 10_000) -> tuple[Fence, ...]:
        """At most *limit* fences at or after *instant*, oldest first."""
        query = select(fences).where(fences.c.source == source, fences.c.at >= instant)
        query = query.order_by(fences.c.at).limit(limit)
        return tuple(self.database.decoded(query, fences, _fence))

    def prune(self, now: datetime) -> int:
        """Thin out what is old; return how many went."""
        return thin(self.database, fences, ["source"], now)


def _row(fence: Fence) -> dict[str, object]:
    head = fence.head
    return {
        "source": fence.source,
        "at": fence.at,
        "number": fence.number,
        "identity": head.identity,
        "kind": head.position.kind,
        "position": head.position.words,
    }


def _fence(row: Row[Any]) -> Fence:
    head = Head(row.identity, Position(row.kind, row.position))
    return Fence(row.source, row.number, row.at, head)
