"""What stands still right now, and since when: open gaps and holds as last reported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select

from monitor.store.database import Database, stored_text
from monitor.store.schema import standstills
from pipeline.reports import Gap, Hold

GAP, HOLD = "gap", "hold"


@dataclass(frozen=True, slots=True)
class Standstill:
    """A gap or a hold; ``subject`` is a table, ``source:NAME`` or, of a gap, its partition.

    ``tables`` are those a gap concerns; empty for a hold, whose subject says it.
    """

    id: str
    kind: str
    subject: str
    reason: str
    detail: str
    since: datetime
    tables: tuple[str, ...] = ()


@dataclass(eq=False)
class Holds:
    """The newest report; nothing of what is over."""

    database: Database

    def replace(self, gaps: Sequence[Gap], holds: Sequence[Hold], at: datetime) -> None:
        """Take *gaps* and *holds* for all there is now; what stays keeps its ``since``."""
        found = [_of_gap(gap, at) for gap in gaps] + [_of_hold(hold, at) for hold in holds]
        now = {(one.kind, one.id): one for one in found}
        with self.database.write() as connection:
            since = {(one.kind, one.id): one.since for one in self.list()}
            connection.execute(delete(standstills))
            if rows := [_row(one, since.get(key, at)) for key, one in now.items()]:
                connection.execute(insert(standstills), rows)

    def list(self) -> tuple[Standstill, ...]:
        """All of them, oldest first; one that cannot be read still holds its subject."""
        query = select(standstills).order_by(standstills.c.since, standstills.c.id)
        return tuple(self.database.decoded(query, standstills, _standstill, _salvaged))


def _standstill(row: Row[Any]) -> Standstill:
    texts = (row.id, row.kind, row.subject, row.reason, row.detail)
    return Standstill(*texts, row.since, tuple(row.tables))


def _salvaged(stored: Mapping[str, bytes | None]) -> Standstill:
    id_, kind, subject, reason = (
        stored_text(stored[name]) for name in ("id", "kind", "subject", "reason")
    )
    detail = "its row in the store cannot be read; it ends with the next merge or landing"
    return Standstill(id_, kind, subject, reason or HOLD, detail, datetime.now(UTC))


def _of_gap(gap: Gap, at: datetime) -> Standstill:
    where = f"{gap.topic}:{gap.partition}"
    detail = f"offsets [{gap.first}, {gap.until}) of {where}: {gap.why}"
    return Standstill(gap.id, GAP, where, "gap", detail, at, gap.tables)


def _of_hold(hold: Hold, at: datetime) -> Standstill:
    return Standstill(hold.id, HOLD, hold.subject, hold.reason, hold.detail, at)


def _row(one: Standstill, since: datetime) -> dict[str, object]:
    return {
        "id": one.id,
        "kind": one.kind,
        "subject": one.subject,
        "reason": one.reason,
        "detail": one.detail,
        "tables": list(one.tables),
        "since": since,
    }
