"""Which transactions wrote a marker, a row that says that their deletes are an archive's?

Asked of the change log.  That a transaction wrote none is known only once all that its source
committed before it, and itself, has landed: until then the deletes wait.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.provenance import Mask, above, owned, plain
from pipeline.archive import ArchiveMarker
from pipeline.changelog.scan import Part, scan
from pipeline.delta.store import open_store
from pipeline.errors import HeldError
from pipeline.model import Op

_COLUMNS = ("source", "after", "tx")


@dataclass(frozen=True, slots=True)
class LandedMarkers:
    """Asks the change log at ``changes``, in ``files``, for rows of the markers' tables.

    ``reached``: source -> below which epoch, log and pos everything is landed.
    """

    changes: str
    files: tuple[Part, ...]
    markers: tuple[ArchiveMarker, ...]
    reached: Mapping[str, tuple[int, int, int]]

    def __call__(self, deletes: pa.Table) -> Mask:
        """Which *deletes* (tx, source, shard, order, origin) are of a transaction with a marker.

        Raises:
            HeldError: ``archive``, one names no transaction; ``awaited``, a marker may be on its
                way; or a file cannot be read.
        """
        names = _names(deletes)
        if names.null_count:
            detail = "a delete names no transaction, so that no marker can be found beside it"
            advice = (
                "let the collector tell of them from now on (provide.transaction.metadata), or "
                "name windows instead; once the markers are out of `archive`, those that have "
                "landed go on as deletes, but for what a window keeps"
            )
            raise HeldError("archive", f"{detail}; {advice}")
        found = pc.is_in(names, value_set=self._marked(pc.unique(names)))
        marked: Mask = found.to_numpy(zero_copy_only=False)
        if (unknown := ~marked & ~self._is_landed(deletes)).any():
            tables = ", ".join(one.table for one in self.markers)
            detail = f"{int(unknown.sum())} deletes wait until a marker of theirs could have landed"
            raise HeldError("awaited", f"{detail} ({tables})")
        return marked

    def _marked(self, wanted: pa.Array) -> pa.Array:
        """Those of the *wanted* transactions that have a marker."""
        store, names = open_store(self.changes), [pa.array([], pa.string())]
        for marker in self.markers:
            among = ("table", (marker.table,))
            rows = scan(
                store, self.files, among=among, ops=(Op.CREATE, Op.UPDATE), columns=_COLUMNS
            )
            rows = rows.filter(pc.is_in(_names(rows), value_set=wanted))
            names.append(_names(rows.filter(pa.array(_fits(rows, marker), pa.bool_()))))
        return pc.unique(pa.concat_arrays(names))

    def _is_landed(self, deletes: pa.Table) -> Mask:
        """Below which place all is landed: a transaction ends before it, or begins after it."""
        theirs = owned(deletes)
        known = np.zeros(len(deletes), np.bool_)
        for source, reached in self.reached.items():
            own = pc.equal(theirs.source, source).to_numpy(zero_copy_only=False)
            known |= own & above(np.array(reached, np.int64)[:, None], theirs.rank[:3])
        return known


def _names(rows: pa.Table) -> pa.Array:
    """``source transaction`` of each row; null where it names none."""
    ids = pc.struct_field(rows["tx"], "id").combine_chunks()
    return pc.binary_join_element_wise(plain(rows["source"]).combine_chunks(), ids, " ")


def _fits(rows: pa.Table, marker: ArchiveMarker) -> list[bool]:
    if not marker.column:
        return [True] * len(rows)
    texts = (json.loads(text) for text in plain(rows["after"]).to_pylist())
    return [str(row.get(marker.column)) in marker.values for row in texts]
