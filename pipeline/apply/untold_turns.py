"""Which turns may nobody have been told of?  Those that a process committed and did not outlive.

Each commit holds the account of its turn, so that the next process can tell the newest of each
mirror.  So it is with a commit that got no answer: whether it was made, the mirror says later.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.apply.foreign_writes import Watch
from pipeline.apply.mirrors import Mirrors
from pipeline.errors import HeldError, UnreachableError
from pipeline.reports import Applied


@dataclass(eq=False)
class UntoldTurns:
    """Remembers of which mirrors the newest turn was told; at first of none."""

    mirrors: Mirrors[Any]
    watch: Watch
    clock: Callable[[], datetime]
    _told: set[str] = field(default_factory=set)
    _unanswered: dict[str, int] = field(default_factory=dict)

    def told(self, table: str) -> None:
        """The newest turn of *table* is told by who made it."""
        self._told.add(table)

    def unanswered(self, table: str, batch: int) -> None:
        """Nobody knows whether the turn of *table* through *batch* was committed."""
        self._unanswered[table] = batch

    def settle(self) -> None:
        """Look what became of commits that got no answer; who is not there is asked again."""
        for table, batch in tuple(self._unanswered.items()):
            try:
                self.mirrors.look(table)
                made = self.mirrors.applied(table) >= batch
            except (HeldError, UnreachableError):
                continue
            if made:
                self._told.discard(table)
            del self._unanswered[table]

    def turns(self, tables: Iterable[str]) -> Iterator[Applied]:
        """The newest turn of each of *tables* that nobody was told of; from now on it is told.

        A mirror that does not answer is asked in the next pass, and keeps no other from it.
        """
        for table in tables:
            if table in self._told:
                continue
            try:
                snapshot, last = self.mirrors.seen(table), self.watch.last_turn(table)
            except (HeldError, UnreachableError):
                continue
            self._told.add(table)
            if snapshot is not None and last is not None:
                batch, account = last
                now = self.clock()
                yield Applied(table, batch, snapshot.version, account, now, now - now)
