"""Has everything landed that a table waits for before rows of another name become its own?

Only what the collector says it has handed over shows that nothing below a RENAME or DROP is still
on its way.  As a rule that is a matter of seconds; a collector that says nothing would stop the
table without a word.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pipeline.apply.moved_rows import RowMove
from pipeline.checkpoint import Mark
from pipeline.clocks import over
from pipeline.errors import HeldError

PATIENCE = timedelta(minutes=5)


@dataclass(eq=False)
class Arrivals:
    """Since when each table has waited; forgotten at a restart, which begins to wait anew."""

    _since: dict[str, datetime] = field(default_factory=dict)

    def complete(self, table: str, moves: Sequence[RowMove], mark: Mark, now: datetime) -> bool:
        """Whether all below *moves* has landed.

        Raises:
            HeldError: ``unacknowledged``, the table has waited for too long.
        """
        late = [move for move in moves if not mark.passed(move.shard.source, move.order)]
        if not late:
            self._since.pop(table, None)
            return True
        if not over(self._since.setdefault(table, now), PATIENCE, now):
            return False
        shard, order = late[0].shard, late[0].order
        detail = (
            f"{shard.source}: {shard.name} was renamed, or dropped, at {order}; whether all before "
            f"that has come is not known, since the collector has not said so for minutes; see to "
            f"the collector, and the table goes on by itself"
        )
        raise HeldError("unacknowledged", detail)
