"""Which ids of a range has the mirror, once it holds all from below the fence?

Those that the source has not are deleted.  A mirror that is behind would not tell of rows that are
still on their way into it, so it is waited for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from shlex import quote

from pipeline.apply.mirror_side import MirrorSide
from pipeline.backfill_state import WishedReread
from pipeline.checkpoint import Mark
from pipeline.errors import ProofError
from pipeline.model import Order, Shard, Table
from pipeline.reread.selection import require_few

UNBOUNDED = 1_000_000


@dataclass(eq=False)
class MirrorIds:
    """Asks each mirror once for each range of a wish; forgotten with the process."""

    open: Callable[[Table], MirrorSide | None]
    _due: dict[tuple[str, str, Order], int] = field(default_factory=dict)
    _known: dict[tuple[tuple[str, str, Order], tuple[int, int]], tuple[int, ...]] = field(
        default_factory=dict
    )

    def of(
        self,
        wish: WishedReread,
        shard: Shard,
        table: Table,
        span: tuple[int, int],
        mark: Mark,
        *,
        fence: Order,
    ) -> tuple[int, ...]:
        """Ids from the first of *span* to the last, ascending; all below *fence* has landed.

        What begins anew behind another fence asks anew.

        Raises:
            ProofError: the mirror is behind what had landed when it was first asked for.
            ConfigError: there are more than *wish* allows.
        """
        begun = (wish.id, str(shard), fence)
        asked = (begun, span)
        if asked not in self._known:
            self._forget(begun)
            due = self._due.setdefault(begun, mark.tables.get(table.name, -1))
            self._known[asked] = self._ids(wish, shard, table, span, due)
        return self._known[asked]

    def keep(self, ids: frozenset[str]) -> None:
        """Forget what is of none of these wishes."""
        self._due = {at: batch for at, batch in self._due.items() if at[0] in ids}
        self._known = {at: found for at, found in self._known.items() if at[0][0] in ids}

    def _ids(
        self, wish: WishedReread, shard: Shard, table: Table, span: tuple[int, int], due: int
    ) -> tuple[int, ...]:
        mirror = self.open(table)
        if mirror is None and due < 0:
            return ()
        applied = -1 if mirror is None else mirror.batch
        if mirror is None or applied < due:
            msg = f"its mirror is merged through batch {applied}, and is to hold {due} first"
            raise ProofError(f"{msg}; sluice explain {quote(table.name)}")
        limit = (wish.rows.most or UNBOUNDED) + 1
        found = mirror.ids(shard, table.key[0], (span[0], span[1] + 1), limit)
        others = (ids for (begun, _), ids in self._known.items() if begun[0] == wish.id)
        require_few(wish, len(found) + sum(map(len, others)))
        return found

    def _forget(self, begun: tuple[str, str, Order]) -> None:
        """What was known of the same shard behind another fence."""
        self._known = {
            at: ids for at, ids in self._known.items() if at[0] == begun or at[0][:2] != begun[:2]
        }
