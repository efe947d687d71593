"""Was the account of each mirror's last turn closed, and told?  Asked once a process.

A process may die after a MERGE and before its account: then nobody has heard of rows that no term
explains, and the next turn would balance.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pipeline.apply.account import balance
from pipeline.apply.last_turn import LastTurn, last_turn
from pipeline.apply.mirror import State
from pipeline.apply.slices import Slice
from pipeline.apply.turn import Applier, Turn
from pipeline.errors import ProofError
from pipeline.lake.commits import Commit
from pipeline.lake.pinned import commit_at
from pipeline.model import Account

_BACK = 50  # versions; between a turn and the next come a few that only compact or note


@dataclass(eq=False)
class Audit:
    """Look at each mirror's last turn once."""

    applier: Applier
    _done: set[str] = field(default_factory=set)

    def due(self, tables: Mapping[str, int]) -> tuple[str, ...]:
        """Those of *tables* (name -> applied batch) that have a turn nobody has looked at."""
        return tuple(sorted(n for n, batch in tables.items() if batch >= 0 and n not in self._done))

    def skip(self, table: str) -> None:
        """Leave *table* out: this process knows its turns."""
        self._done.add(table)

    def account(self, turn: Turn, state: State, path: str) -> Account | None:
        """The account of the newest turn that *path*'s log tells; None if it tells of none."""
        try:
            last = last_turn(_commits(path, state.version))
        except ProofError:
            last = None  # too old: no log tells
        found = None
        if last is not None and last.batch == state.batch:
            found = self._closed(replace(turn, after=last.since, high=None), last, path)
        self.skip(turn.table.name)
        return found

    def _closed(self, turn: Turn, last: LastTurn, path: str) -> Account:
        told = balance(last.counted, last.applied, last.counted.vanished)
        if last.explained:
            return told
        session, log = self.applier.session, self.applier.log
        try:
            with Slice(session, log, {turn.table.name: last.since}, last.batch) as slice_:
                return self.applier.recount(turn, slice_, path, last)
        except (PySparkException, Py4JJavaError):
            return told  # what it was merged from is gone: unexplained it stays


def _commits(path: str, version: int) -> Iterator[Commit]:
    """Those up to *version*, newest first, each read when it is asked for."""
    for number in range(version, max(version - _BACK, -1), -1):
        yield commit_at(path, number)
