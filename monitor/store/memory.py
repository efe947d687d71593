"""What a check asked to be remembered between its rounds.

Thousands of tables are looked at every few seconds, and each look is remembered; a transaction for
each would cost more than the looks.  So what is remembered waits in memory, some seconds at most,
and is written in one transaction: the next of the store, whatever it is about, or one of its own.
A verdict is therefore never on the disk before what its check remembered.  What was written stays
at hand: nobody else writes it.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Text, bindparam, delete, insert, select, type_coerce

from monitor.store.database import Database
from monitor.store.schema import memory
from pipeline.errors import ProofError, UnreachableError

LONGEST = timedelta(seconds=1)
SHORT, MOST = 10_000, 50_000  # characters of a text that is kept at hand, and how many are
Place = tuple[str, str]  # table, check
Kept = tuple[str, datetime]  # JSON, and of when

_OLD = (memory.c.table == bindparam("of")) & (memory.c.check == bindparam("by"))
_NEW = {
    "table": bindparam("of"),
    "check": bindparam("by"),
    "kept": bindparam("text", type_=Text()),
    "at": bindparam("then"),
}


@dataclass(eq=False)
class CheckMemory:
    """One JSON object per table and check; the newest replaces the one before."""

    database: Database
    _waiting: dict[Place, Kept] = field(default_factory=dict)
    _known: dict[Place, str] = field(default_factory=dict)  # what the store has
    _since: datetime | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Be written with whatever else is."""
        self.database.first.append(self)

    def recall(self, table: str, check: str) -> Mapping[str, Any] | None:
        """What was kept last; None at first.

        Raises:
            ProofError: its row in the store cannot be read; to forget it could hide what it held.
        """
        place = table, check
        with self._turn:
            waiting = self._waiting.get(place)
            text = self._known.get(place) if waiting is None else waiting[0]
        if text is None:
            return self._stored(table, check)
        return dict(json.loads(text))

    def _stored(self, table: str, check: str) -> Mapping[str, Any] | None:
        own = (memory.c.table == table) & (memory.c.check == check)
        said = f"what {check} remembers of {table} cannot be read; see the log"
        found: list[Mapping[str, Any] | ProofError] = self.database.decoded(
            select(type_coerce(memory.c.kept, Text()).label("kept")).where(own),
            memory,
            lambda row: dict(json.loads(row.kept)),
            lambda _: ProofError(said),
        )
        for one in found:
            if isinstance(one, ProofError):
                raise one
            return one
        return None

    def remember(self, table: str, check: str, kept: Mapping[str, Any], at: datetime) -> None:
        """Keep *kept* (JSON values only).

        While the store takes nothing it waits in memory: a check that were told so would lose what
        it has just found, for its next look begins behind it.
        """
        text = json.dumps(dict(kept))
        with self._turn:
            self._since = self._since or at
            self._waiting[table, check] = (text, at)
            due = not timedelta(0) <= at - self._since < LONGEST
        if self.database.writing:
            with self.database.write() as connection:
                self.write(connection)
        elif due:
            self.flush()

    def flush(self) -> None:
        """Write what waits, though nobody writes anything else; later, if the store takes none."""
        if self.waits:
            with suppress(UnreachableError), self.database.write():
                pass

    @property
    def waits(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._waiting)

    def write(self, connection: Connection) -> Callable[[], None]:
        """Write all that waits; what is returned forgets it."""
        with self._turn:
            rows = dict(self._waiting)
        values = [
            {"of": table, "by": check, "text": text, "then": at}
            for (table, check), (text, at) in rows.items()
        ]
        connection.execute(delete(memory).where(_OLD), values)
        connection.execute(insert(memory).values(_NEW), values)
        return lambda: self._forget(rows)

    def _forget(self, written: Mapping[Place, Kept]) -> None:
        """Keep what was remembered since."""
        with self._turn:
            for place, kept in written.items():
                self._known.pop(place, None)
                if len(kept[0]) <= SHORT and len(self._known) < MOST:
                    self._known[place] = kept[0]
                if self._waiting.get(place) is kept:
                    del self._waiting[place]
            self._since = min((at for _, at in self._waiting.values()), default=None)
