"""Where is the other half of a change of key, if it landed in another batch than this one?

A row that takes another key is a delete and a create of one place in its source's log.  They may
land in two batches, and so be applied by two turns.  Asked of the change log, in files whose orders
lie around these places: at the cost of the slice, not of the log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.archived import in_reach, live, with_partner
from pipeline.apply.provenance import Mask, plain, rank
from pipeline.archive import ArchiveRules
from pipeline.changelog.scan import PlacedPart, scan
from pipeline.delta.store import open_store
from pipeline.model import Op

_PLACED = ("source", "shard", "order", "origin")
_LOG, _POS = 1, 2  # lines of a rank


@dataclass(frozen=True, slots=True)
class LandedPartners:
    """Asks the change log at ``changes``, in ``files``, about rows of ``table``.

    ``after`` is the last batch that its mirror has applied.
    """

    changes: str
    files: tuple[PlacedPart, ...]
    table: str
    rules: ArchiveRules
    after: int

    def joined(self, rows: pa.Table) -> pa.Table:
        """*rows*, and applied deletes whose keys were left for those that creates among them have.

        Only creates count whose delete a rule may have taken for an archive's when it came.
        """
        creates = rows.filter(pa.array(in_reach(rows, self.rules) & live(rows, Op.CREATE)))
        alone = ~with_partner(creates, _deletes(rows))
        creates = creates.filter(pa.array(alone))
        found = self._landed(creates, (Op.DELETE,), (*rows.column_names,))
        own = pc.less_equal(found["batch"], self.after)
        found = found.filter(own)
        return pa.concat_tables([rows, found.filter(pa.array(with_partner(found, creates)))])

    def rekeyed(self, deletes: pa.Table) -> Mask:
        """Which *deletes* have a create at their place, in whatever batch that has landed."""
        return with_partner(deletes, self._landed(deletes, (Op.CREATE,), _PLACED))

    def _landed(self, rows: pa.Table, ops: Sequence[Op], columns: Sequence[str]) -> pa.Table:
        """Rows of *ops* in files near the places of *rows*."""
        near: Iterable[PlacedPart] = ()
        if len(rows):
            orders = rank(rows)
            log, pos = (_span(orders[line]) for line in (_LOG, _POS))
            near = (one for one in self.files if one.near(log, pos))
        store, among = open_store(self.changes), ("table", (self.table,))
        files = [one.part for one in near]
        return scan(store, files, among=among, ops=ops, columns=columns)


def _span(line: Any) -> tuple[int, int]:
    return int(line.min()), int(line.max())


def _deletes(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(plain(rows["op"]), str(Op.DELETE)))
