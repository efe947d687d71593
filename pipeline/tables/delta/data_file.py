"""What does one Parquet file of a mirror hold: which row groups, between which bounds, which rows?

Its own footer tells; the log's statistics are not asked, for other writers round them.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from pipeline.errors import HeldError
from pipeline.lake import vectors
from pipeline.lake.footers import footer_fits
from pipeline.lake.log import ActiveFile
from pipeline.lake.store import Store
from pipeline.tables.delta.layout import Path, leaves

Raw = int | bytes
_CUT = 32  # bytes; a longer text may be cut off in a bound, so equal bounds prove nothing


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a row group's values of one column lie between, raw as in the footer; ``nulls`` of them.

    ``least`` and ``most`` are None together, where the footer does not tell; ``nulls`` is -1 then.
    """

    least: Raw | None
    most: Raw | None
    nulls: int

    @property
    def only(self) -> Raw | None:
        """The one value that all rows have; None if there may be others, or NULLs."""
        one = self.nulls == 0 and self.least is not None and self.least == self.most
        cut = isinstance(self.least, bytes) and len(self.least) >= _CUT
        return self.least if one and not cut else None


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """A file's own description; ``columns`` leads from a path to the number of a Parquet column."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    columns: Mapping[Path, int]

    @property
    def weight(self) -> int:
        """What it costs to keep, in descriptions of one column of one row group."""
        return int(self.metadata.num_row_groups * self.metadata.num_columns)

    def bounds(self, group: int, path: Path) -> Bounds:
        """Bounds of one column in one row group; an absent column is all NULL."""
        number = self.columns.get(path)
        if number is None:
            return Bounds(None, None, self.metadata.row_group(group).num_rows)
        told = self.metadata.row_group(group).column(number).statistics
        nulls = -1 if told is None or not told.has_null_count else told.null_count
        if told is None or not told.has_min_max:
            return Bounds(None, None, nulls)
        return Bounds(told.min_raw, told.max_raw, nulls)


@dataclass(eq=False)
class Footers:
    """Footers by their files' names, kept between turns; the least recently used go first.

    A file of a Delta table never changes under its name.  *limit* is about 0.5 kB each.  Turns of
    two lines may ask at the same time.
    """

    limit: int = 200_000
    _kept: OrderedDict[tuple[str, str], Footer] = field(default_factory=OrderedDict)
    _weight: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def of(self, store: Store, file: ActiveFile) -> Footer:
        """The footer of *file*.

        Raises:
            HeldError: ``file_damaged``; ``file_format``: its times are read in two ways.
        """
        name = (store.uri, file.path)
        with self._turn:
            if (known := self._kept.get(name)) is not None:
                self._kept.move_to_end(name)
                return known
        footer = _read(store, file.path)
        with self._turn:
            if name not in self._kept:
                self._weight += footer.weight
            self._kept[name] = footer
            while self._weight > self.limit and len(self._kept) > 1:
                self._weight -= self._kept.popitem(last=False)[1].weight
        return footer


@dataclass(frozen=True, slots=True, eq=False)
class DataFile:
    """An open file: its footer, its columns row group by row group, and the rows that went."""

    name: str
    footer: Footer
    gone: BitMap64
    _parquet: pq.ParquetFile

    @property
    def groups(self) -> Iterator[tuple[int, int]]:
        """Each row group's number, and the position of its first row in the file."""
        first = 0
        for group in range(self.footer.metadata.num_row_groups):
            yield group, first
            first += self.footer.metadata.row_group(group).num_rows

    def columns(self, group: int, paths: Sequence[Path]) -> list[pa.ChunkedArray]:
        """Columns of one row group; one that the file lacks is all NULL.

        Raises:
            HeldError: ``file_damaged``.
        """
        numbers = [self.footer.columns[path] for path in paths if path in self.footer.columns]
        with _readable(self.name):
            rows = self._parquet.reader.read_row_group(group, column_indices=numbers)
        absent = pa.chunked_array([pa.nulls(self.footer.metadata.row_group(group).num_rows)])
        return [_at(rows, path) if path in self.footer.columns else absent for path in paths]

    def rows(self, group: int, names: Collection[str] | None = None) -> pa.Table:
        """All columns of one row group, or those of *names*; without regard to rows that went.

        Raises:
            HeldError: ``file_damaged``.
        """
        with _readable(self.name):
            if names is None:
                return self._parquet.read_row_group(group)
            chosen = [n for path, n in self.footer.columns.items() if path[0] in names]
            return self._parquet.reader.read_row_group(group, column_indices=chosen)


@contextmanager
def opened(store: Store, file: ActiveFile, footers: Footers) -> Iterator[DataFile]:
    """Open *file* for reading.

    Raises:
        HeldError: ``file_damaged``, ``vector_damaged``, ``file_format``.
    """
    footer = footers.of(store, file)
    gone = vectors.read(store, file.vector) if file.vector else BitMap64()
    with _readable(file.path):
        source = store.source(file.path)
    with source:
        parquet = pq.ParquetFile(source, metadata=footer.metadata)
        yield DataFile(file.path, footer, gone, parquet)


def _read(store: Store, name: str) -> Footer:
    with _readable(name), store.source(name) as source:
        metadata = pq.read_metadata(source)
        schema = metadata.schema.to_arrow_schema()
    footer_fits(metadata, name)
    return Footer(metadata, schema, leaves(schema))


def _at(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    column = rows[path[0]]
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Say of what cannot be read which file it is."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        detail = f"{name}: {error}; restore it, or rebuild the mirror"
        raise HeldError("file_damaged", detail) from error
