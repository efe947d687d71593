"""Which batch had landed what: the marks of each lane, without their offsets."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select

from monitor.store.codec import dumps, loads
from monitor.store.database import Database
from monitor.store.schema import marks
from monitor.store.thin import thin
from pipeline.mark import Epoch, Mark
from pipeline.model import Acknowledged, Fence

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Landing:
    """A batch and when it was committed.

    ``mark`` can be asked what it covers; of the rest only heartbeats, acknowledged positions,
    epochs and tables are kept.
    """

    mark: Mark
    at: datetime


@dataclass(eq=False)
class Marks:
    """Every mark of a day, and fewer of the forty before; the newest always."""

    database: Database

    def add(self, mark: Mark, at: datetime) -> None:
        """Keep *mark*, committed at *at*; a batch known before stays as it was."""
        same = (marks.c.lane == mark.lane) & (marks.c.batch == mark.batch)
        with self.database.write() as connection:
            if connection.scalar(select(marks.c.batch).where(same)) is None:
                connection.execute(insert(marks).values(_row(mark, at)))

    def newest(self, lane: str) -> Landing | None:
        """The mark of the lane's last batch; None before the first."""
        return self._one(select(marks).where(marks.c.lane == lane).order_by(marks.c.batch.desc()))

    def at(self, lane: str, batch: int) -> Landing | None:
        """The newest kept mark at or below *batch*: what it covers, *batch* covers too."""
        query = select(marks).where(marks.c.lane == lane, marks.c.batch <= batch)
        return self._one(query.order_by(marks.c.batch.desc()))

    def since(self, lane: str, instant: datetime, limit: int = 1000) -> tuple[Landing, ...]:
        """At most *limit* marks committed at or after *instant*, oldest first."""
        query = select(marks).where(marks.c.lane == lane, marks.c.at >= instant)
        with self.database.read() as connection:
            rows = connection.execute(query.order_by(marks.c.batch).limit(limit)).all()
        return tuple(_landing(row) for row in rows)

    def first_covering(self, lane: str, fence: Fence) -> Landing | None:
        """The earliest kept batch in which all below *fence* is landed; None if there is none yet.

        A heartbeat lands after it was written, so only marks committed since are looked at.
        """
        query = select(marks).where(marks.c.lane == lane, marks.c.at >= fence.at)
        last = -1
        while True:
            page = query.where(marks.c.batch > last).order_by(marks.c.batch).limit(_PAGE)
            with self.database.read() as connection:
                rows = connection.execute(page).all()
            for row in rows:
                landing = _landing(row)
                if landing.mark.covers(fence):
                    return landing
                last = row.batch
            if len(rows) < _PAGE:
                return None

    def prune(self, now: datetime) -> int:
        """Thin out what is old; return how many went."""
        with self.database.write() as connection:
            return thin(connection, marks, ["lane"], now)

    def _one(self, query: Any) -> Landing | None:
        with self.database.read() as connection:
            row = connection.execute(query.limit(1)).first()
        return None if row is None else _landing(row)


def _row(mark: Mark, at: datetime) -> dict[str, object]:
    return {
        "lane": mark.lane,
        "batch": mark.batch,
        "at": at,
        "heartbeats": dict(mark.heartbeats),
        "acknowledged": dumps(Mapping[str, Acknowledged], mark.acknowledged),
        "epochs": dumps(Mapping[str, Epoch], mark.epochs),
        "tables": dict(mark.tables),
    }


def _landing(row: Row[Any]) -> Landing:
    known: Mapping[str, Acknowledged] = loads(dict[str, Acknowledged], row.acknowledged)
    epochs: Mapping[str, Epoch] = loads(dict[str, Epoch], row.epochs)
    mark = Mark(
        lane=row.lane,
        batch=row.batch,
        acknowledged=known,
        heartbeats=row.heartbeats,
        tables=row.tables,
        epochs=epochs,
    )
    return Landing(mark, row.at)
