"""A mirror's files as of one version, and whose the rows in them are.

Where a footer says that a column of ``_sluice`` is the same in all rows of a row group, it is not
read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pipeline.apply.adoption import OP, RANK, SHARD, SOURCE, Adoption
from pipeline.apply.provenance import NOBODY, Integers, Owned
from pipeline.lake.log import ActiveFile
from pipeline.lake.store import Store
from pipeline.tables.delta.data_file import DataFile, Footers
from pipeline.tables.delta.layout import Layout


@dataclass(eq=False)
class MirrorFiles:
    """The rows of a mirror as of one version: its files and what is needed to read them.

    Only one that ``keeps`` archived rows is asked which they are.
    """

    store: Store
    files: Sequence[ActiveFile]
    layout: Layout
    adoption: Adoption = field(default_factory=Adoption)
    footers: Footers = field(default_factory=Footers)
    keeps: bool = False

    def __post_init__(self) -> None:
        """Look up once where the files keep the provenance."""
        told = (OP,) if self.keeps else ()
        self._paths = tuple(self.layout.path(path) for path in (SOURCE, SHARD, *RANK, *told))

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
        op = rank.pop() if self.keeps else None
        return self.adoption.owned(source.cast(pa.string()), shard.cast(pa.string()), rank, op)

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
