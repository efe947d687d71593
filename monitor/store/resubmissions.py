"""Which quarantined messages did people correct, how, why, and what became of that?"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row, Select, insert, select, update

from monitor.store.database import Database
from monitor.store.schema import resubmissions
from pipeline.errors import ConfigError
from pipeline.resubmissions import Resubmission, ResubmissionState


@dataclass(frozen=True, slots=True)
class ResubmissionRecord:
    """Who corrected a message, why and when; ``ended`` is None until it has landed or never will.

    ``change`` is the message's name.  What it is to say instead is not told here: it may be long.
    ``table`` is empty where it was not known.  ``original`` is the SHA-256 of the bytes that could
    not be read.  ``batch`` is the one that it landed in; without one ``why`` says what it waits
    for, or, once it has ended, why it never lands.
    """

    id: str
    change: str
    table: str
    reason: str
    who: str
    at: datetime
    original: str
    ended: datetime | None = None
    batch: int | None = None
    why: str = ""


@dataclass(eq=False)
class Resubmissions:
    """Kept for ever: they say how a change came that nobody could read.

    What it was to say is kept until it has ended: values may be in it that are in no lake.
    """

    database: Database

    def add(self, asked: Resubmission, made: ResubmissionRecord) -> ResubmissionRecord:
        """Record *made*, which says of *asked* who asks for it.

        Raises:
            ConfigError: another correction of the message waits to land.
        """
        change = resubmissions.c.change == made.change
        with self.database.write() as connection:
            open_one = select(resubmissions).where(change & resubmissions.c.ended.is_(None))
            if (known := connection.execute(open_one).first()) is not None:
                told = f"{known.who} at {known.at:%Y-%m-%dT%H:%M:%SZ}: {known.reason}"
                raise ConfigError(f"{made.change} is being sent again already ({told})")
            body = _BODY.dump_json(asked).decode()
            row = {"id": made.id, "change": made.change, "body": body}
            whose = {"table": made.table, "reason": made.reason, "who": made.who, "why": ""}
            stands = {"at": made.at, "ended": None, "batch": None, "original": made.original}
            connection.execute(insert(resubmissions).values(**row, **whose, **stands))
        return made

    def wished(self) -> tuple[Resubmission, ...]:
        """Those that are to land, oldest first."""
        query = select(resubmissions).where(resubmissions.c.ended.is_(None))
        query = query.order_by(resubmissions.c.at)
        return tuple(
            self.database.decoded(query, resubmissions, lambda row: _BODY.validate_json(row.body))
        )

    def told(self, states: Iterable[ResubmissionState], at: datetime) -> None:
        """Keep what became of them; one that has landed, or never will, has ended."""
        for one in states:
            over = one.refused or one.batch is not None
            values = {"batch": one.batch, "why": one.why, "ended": at if over else None}
            values |= {"body": ""} if over else {}
            own = (resubmissions.c.id == one.id) & resubmissions.c.ended.is_(None)
            with self.database.write() as connection:
                connection.execute(update(resubmissions).where(own).values(values))

    def get(self, id_: str) -> ResubmissionRecord | None:
        """The one of that id."""
        with self.database.read() as connection:
            found = connection.execute(_records().where(resubmissions.c.id == id_)).first()
        return None if found is None else _read(found)

    def list(self, *, limit: int = 100) -> tuple[ResubmissionRecord, ...]:
        """Newest first."""
        query = _records().order_by(resubmissions.c.at.desc()).limit(limit)
        with self.database.read() as connection:
            return tuple(_read(row) for row in connection.execute(query).all())

    def of(self, changes: Collection[str]) -> tuple[ResubmissionRecord, ...]:
        """Those of these *changes*, newest first."""
        query = _records().where(resubmissions.c.change.in_(changes))
        with self.database.read() as connection:
            rows = connection.execute(query.order_by(resubmissions.c.at.desc())).all()
        return tuple(_read(row) for row in rows)


def _records() -> Select[Any]:
    """All but the bodies."""
    return select(*(resubmissions.c[one.name] for one in fields(ResubmissionRecord)))


def _read(row: Row[Any]) -> ResubmissionRecord:
    return ResubmissionRecord(**row._mapping)


_BODY = TypeAdapter(Resubmission)
