"""Which tables and sources stand still, as the Spark process last said?

A table's hold stands until a turn of that table comes back without one: a table that had nothing
to do is not mentioned.  Each has a name of its own, which ends with it.  Kept in the store, so that
a restart does not forget what blocks.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from monitor.store.holds import Holds
from pipeline.reports import Applied, Gap, Hold, Landed


@dataclass(eq=False)
class Standstills:
    """Holds of the last landing, and of each table's last turn; told from several threads.

    What is held is replaced, never changed, so that whoever reads it meanwhile sees all of it.
    """

    store: Holds
    _sources: tuple[Hold, ...] = ()
    _gaps: tuple[Gap, ...] = ()
    _tables: Mapping[str, Hold] = field(default_factory=dict)
    _named: dict[str, dict[str, Hold]] = field(default_factory=dict)
    _kept: tuple[tuple[Gap, ...], tuple[Hold, ...]] | None = None  # what the store has
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self) -> None:
        """Remember what an earlier life kept."""
        holds = [
            Hold(one.id, one.subject, one.reason, one.detail)
            for one in self.store.list()
            if one.kind == "hold"
        ]
        self._sources = tuple(hold for hold in holds if hold.subject.startswith("source:"))
        self._tables = {hold.subject: hold for hold in holds if hold not in self._sources}
        for table, hold in self._tables.items():
            self._named[table] = {hold.reason: hold}

    def holds(self) -> tuple[Hold, ...]:
        """All that stand now."""
        return (*self._sources, *self._tables.values())

    def landed(self, landed: Landed, at: datetime) -> None:
        """Take over what one landing said."""
        with self._lock:
            self._sources, self._gaps = landed.holds, landed.gaps
            self._keep(at)

    def applied(self, turns: Iterable[Applied], at: datetime) -> None:
        """Take over what the turns said of their tables."""
        with self._lock:
            told = {turn.table: self._named_once(turn.table, turn.hold, at) for turn in turns}
            tables = {**self._tables, **told}
            self._tables = {name: hold for name, hold in tables.items() if hold is not None}
            self._keep(at)

    def lane_held(self, hold: Hold, sources: Iterable[str], at: datetime) -> None:
        """Hold every source: the lane itself cannot go on."""
        with self._lock:
            self._sources = tuple(
                Hold(hold.id, f"source:{source}", hold.reason, hold.detail) for source in sources
            )
            self._keep(at)

    def _named_once(self, table: str, hold: Hold | None, at: datetime) -> Hold | None:
        """*hold* with the second since which it stands in its id, if it names nothing of its own.

        A waiver ends with it: once the table has gone on, the next hold has another name.  What
        comes between, as a lake that does not answer, ends nothing.
        """
        if hold is None:
            self._named.pop(table, None)
            return None
        if hold.id != f"{hold.reason}:{table}":
            return hold
        known = self._named.setdefault(table, {})
        named = known.get(hold.reason, replace(hold, id=f"{hold.id}@{int(at.timestamp())}"))
        known[hold.reason] = replace(named, detail=hold.detail)
        return known[hold.reason]

    def _keep(self, at: datetime) -> None:
        """Store what is new: of each landing and each turn most is as it was."""
        now = self._gaps, self.holds()
        if now != self._kept or self.store.database.unreadable:  # that row may be one of these
            self._kept = None
            self.store.replace(*now, at)
            self._kept = now
