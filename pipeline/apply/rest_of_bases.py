"""What does a turn still need of a base that goes on behind its last batch?

A change that is newer than a base may have landed before that base's row.  Came it without some
values, it would take these from the mirror as it was: what the base is there to correct would stay.
So the base's own rows of such keys are read ahead; their own turn finds nothing to do for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.partial_rows import is_partial, leaving
from pipeline.changelog.scan import Part, WantedBatches, scan
from pipeline.checkpoint import Mark
from pipeline.delta.store import open_store
from pipeline.model import Op, Table


@dataclass(frozen=True, slots=True)
class BaseRest:
    """Asks the change log at ``changes``, in ``files``, for rows of bases in later ``batches``."""

    changes: str
    files: tuple[Part, ...]
    table: str
    batches: WantedBatches

    def joined(self, rows: pa.Table) -> pa.Table:
        """*rows*, and the base's of those keys among them that came without some values.

        Raises:
            HeldError: ``file_damaged``.
        """
        keys = _keys(rows)
        if not keys:
            return rows
        store, columns = open_store(self.changes), rows.column_names
        wanted = tuple(dict.fromkeys([*columns, "table", "batch"]))
        found = scan(store, self.files, among=("key", keys), ops=(Op.READ,), columns=wanted)
        own = self.batches.of(found.filter(pc.equal(found["table"], self.table)))
        return pa.concat_tables([rows, own.select(columns)])


def rest_of_bases(
    table: Table, mark: Mark, turn: WantedBatches, until: int
) -> WantedBatches | None:
    """Batches up to *until* in which bases go on that begin in those of a *turn*, or before."""
    end = min(_base_end(table, mark, turn), until)
    return WantedBatches(turn.until, end) if end > turn.until else None


def _keys(rows: pa.Table) -> Sequence[str]:
    """Of rows that are not whole, and of those that took another key in the very same place."""
    short = rows.filter(pa.array(is_partial(rows)))
    if not len(short):
        return ()
    keys = pa.concat_tables([one.select(["key"]) for one in (short, leaving(rows))])["key"]
    found: list[str] = pc.unique(keys.drop_null()).to_pylist()
    return found


def _base_end(table: Table, mark: Mark, turn: WantedBatches) -> int:
    """The last batch of the bases that begin in *turn*; a new mirror has no rows before any."""
    names = [str(shard) for shard in table.shards]
    begun = [one for one in names if turn.after < 0 or mark.based.get(one, -1) <= turn.until]
    return max((mark.complete.get(name, -1) for name in begun), default=-1)
