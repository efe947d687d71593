"""Judges whether a READY was true: each transaction acknowledged before its cut must be there.

Numbers rise along every key, and the ledger knows them all, so "there" is decided per row: it
carries the last number due, or a later one that the ledger knows.  Nothing else explains a gap.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from demo.oracle.rows import RowId
from demo.shop.ledger import Entry, Outcome, RowState
from demo.shop.schema import MIRRORS
from tests.oracle.landed import Landed

History = Sequence[tuple[Entry, RowState]]


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that is not as transaction *number*, acknowledged before the cut, left it."""

    row: RowId
    number: int
    why: str


@dataclass(eq=False)
class Judge:
    """Judges answers about any table against one ledger, read when the run is over."""

    ledger: Mapping[int, Entry]
    mirrors: Mapping[str, Sequence[str]] = field(default_factory=lambda: MIRRORS)

    def __post_init__(self) -> None:
        """Sort the ledger by row; numbers ascend in each history."""
        self._histories: dict[str, dict[RowId, list[tuple[Entry, RowState]]]] = defaultdict(dict)
        for number in sorted(self.ledger):
            for state in self.ledger[number].rows:
                history = self._histories[state.shard].setdefault((state.shard, state.key), [])
                history.append((self.ledger[number], state))

    def ready(
        self,
        table: str,
        cut: datetime,
        version_rows: Mapping[RowId, int],
        sampled: datetime | None = None,
    ) -> list[Violation]:
        """Judge READY for a mirror as of *cut*.

        *version_rows* says which number each row of the certified version carries (see
        ``rows.read_touched``); *sampled* is when the answer was given: what began later cannot
        explain what it shows.
        """
        found = []
        for row_id, history in self._rows(table):
            known = [each for each in history if sampled is None or each[0].begun < sampled]
            violation = _judge_row(row_id, known, cut, version_rows.get(row_id))
            found.extend([violation] if violation else [])
        return found

    def landed(
        self,
        table: str,
        cut: datetime,
        landed: Landed,
        batch: int,
        snapshot: datetime | None = None,
    ) -> list[Violation]:
        """Judge READY for the change log up to *batch*, as of *cut*.

        *snapshot* is when the table's base was complete: of what was committed before, only the
        rows that then still stood were ever sent.
        """
        found = []
        for row_id, history in self._rows(table):
            for place, (entry, state) in enumerate(history):
                if not _due(entry, cut) or landed.shows(state, batch):
                    continue
                later = history[place + 1 :]
                if snapshot is None or not _unseen(entry, state, later, snapshot):
                    found.append(Violation(row_id, entry.number, "not in the change log"))
        return found

    def _rows(self, table: str) -> Iterable[tuple[RowId, History]]:
        """Every row of *table* that any transaction wrote, with what they did to it."""
        for shard in self.mirrors[table]:
            yield from self._histories[shard].items()


def judge_ready(
    ledger: Mapping[int, Entry],
    table: str,
    cut: datetime,
    version_rows: Mapping[RowId, int],
    sampled: datetime | None = None,
) -> list[Violation]:
    """Judge one answer for a mirror; for many, keep a ``Judge``."""
    return Judge(ledger).ready(table, cut, version_rows, sampled)


def _due(entry: Entry, cut: datetime) -> bool:
    return (
        entry.outcome is Outcome.COMMITTED
        and entry.acknowledged is not None
        and entry.acknowledged < cut
    )


def _judge_row(
    row_id: RowId, history: History, cut: datetime, carried: int | None
) -> Violation | None:
    """Judge one row of a mirror, which carries *carried*, or is absent (None)."""
    due = [(entry.number, state) for entry, state in history if _due(entry, cut)]
    number, state = due[-1] if due else (0, None)
    if carried is None:
        gone = state is None or state.touched is None or _may_show(None, number, history)
        return None if gone else Violation(row_id, number, "missing")
    writers = [entry for entry, left in history if left.touched == carried]
    if not writers and not _may_show(carried, number, history):
        return Violation(row_id, number, f"carries {carried}, which never left it so")
    if writers and writers[-1].outcome is Outcome.ROLLED_BACK:
        return Violation(row_id, carried, "carries a transaction that was rolled back")
    if carried < number:
        return Violation(row_id, number, f"carries the older {carried}")
    return None


def _may_show(carried: int | None, number: int, history: History) -> bool:
    """Tell whether a transaction later than *number* left the row so, or may have, or passed by it.

    Of a transaction later than the cut a mirror may show a part.
    """
    return any(
        entry.number > number
        and carried in (state.touched, *state.passing)
        and entry.outcome is not Outcome.ROLLED_BACK
        for entry, state in history
    )


def _unseen(entry: Entry, state: RowState, later: History, snapshot: datetime) -> bool:
    """Tell whether a snapshot passed over what *entry* left: gone, or replaced, by then."""
    if entry.sent > snapshot:
        return False
    replaced = any(
        after.sent <= snapshot and after.outcome is not Outcome.ROLLED_BACK for after, _ in later
    )
    return state.touched is None or replaced
