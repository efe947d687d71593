"""A mirror's files as of one version, and whose the rows in them are.

Where a footer says that a column of ``_sluice`` is the same in all rows of a row group, it is not
read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.data_file import DataFile, Footers
from pipeline.apply.layout import Layout
from pipeline.apply.provenance import META, NOBODY, PARTS, SLUICE, Integers, Owned, ranked
from pipeline.lake.log import ActiveFile
from pipeline.lake.store import Store
from pipeline.model import Order, Origin, Shard

SOURCE, SHARD = (SLUICE, "source"), (SLUICE, "shard")
RANK = (*((SLUICE, "order", part) for part in PARTS), (SLUICE, "origin"))
_BEFORE_ALL = Order(np.iinfo(np.int64).min, 0, 0)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What counts for rows without ``_sluice``: read at ``order``, and of which shard.

    Without an order they are older than any change.  ``shard`` is None where the table has several.
    """

    order: Order | None = None
    shard: Shard | None = None

    def owners(self, rows: pa.Table) -> Owned:
        """Provenance of whole *rows*, under the table's names."""
        if SLUICE not in rows.column_names:
            nobody = pa.nulls(len(rows), META)
            rows = rows.append_column(SLUICE, nobody)
        told = (pc.struct_field(rows[SLUICE], list(path[1:])) for path in (SOURCE, SHARD, *RANK))
        source, shard, *rank = (column.combine_chunks() for column in told)
        return self.owned(source, shard, rank)

    def owned(self, source: pa.Array, shard: pa.Array, rank: Sequence[pa.Array]) -> Owned:
        """Provenance of rows by what stands in their ``_sluice``; *rank* is as ``RANK``."""
        order, origin = rank[:-1], rank[-1]
        adopted = np.zeros(len(source), np.bool_)
        for part in order:
            adopted |= pc.is_null(part).to_numpy(zero_copy_only=False)
        lines = [pc.fill_null(part.cast(pa.int64()), 0).to_numpy() for part in (*order, origin)]
        found = np.stack(lines)
        found[:, adopted] = ranked(self.order or _BEFORE_ALL, Origin.SNAPSHOT)
        if (own := self.shard) is not None and adopted.any():
            source, shard = pc.fill_null(source, own.source), pc.fill_null(shard, own.name)
        return Owned(source, shard, found, adopted)


@dataclass(eq=False)
class MirrorFiles:
    """The rows of a mirror as of one version: its files and what is needed to read them."""

    store: Store
    files: Sequence[ActiveFile]
    layout: Layout
    adoption: Adoption = Adoption()
    footers: Footers = field(default_factory=Footers)

    def __post_init__(self) -> None:
        """Look up once where the files keep the provenance."""
        self._paths = tuple(self.layout.path(path) for path in (SOURCE, SHARD, *RANK))

    def owned(self, data: DataFile, group: int, rows: Integers) -> Owned:
        """Provenance of *rows* of a row group; columns that are constant in it are not read."""
        if not len(rows):
            return NOBODY
        paths = self._paths
        only = [data.footer.bounds(group, path).only for path in paths]
        unknown = [path for path, value in zip(paths, only, strict=True) if value is None]
        read = dict(zip(unknown, data.columns(group, unknown) if unknown else (), strict=True))
        source, shard, *rank = (
            taken(read[path], rows) if value is None else pa.repeat(_scalar(value), len(rows))
            for path, value in zip(paths, only, strict=True)
        )
        return self.adoption.owned(source.cast(pa.string()), shard.cast(pa.string()), rank)

    def owners(self, rows: pa.Table) -> Owned:
        """Provenance of whole *rows*, under the table's names."""
        return self.adoption.owners(rows)

    def count(self) -> int:
        """Rows that are not deleted, as the log tells, or else the footers."""
        return sum(
            self.records(file) - (file.vector["cardinality"] if file.vector else 0)
            for file in self.files
        )

    def records(self, file: ActiveFile) -> int:
        """Rows in *file*, deleted ones among them."""
        if (told := file.records) is not None:
            return told
        return int(self.footers.of(self.store, file).metadata.num_rows)


def taken(column: pa.ChunkedArray, rows: Integers) -> pa.Array:
    """Values of a column at *rows*, in their order."""
    return column.take(pa.array(rows)).combine_chunks()


def _scalar(value: int | bytes) -> int | str:
    return value.decode() if isinstance(value, bytes) else value
