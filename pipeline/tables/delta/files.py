"""Reads the Parquet files of a mirror: row groups, bounds, row positions and row origins.

Bounds come from the file's own footer, because other writers round the statistics in the Delta
log. A bound of 32 bytes or more may be truncated, so equal bounds of that length prove nothing.
A column of `_sluice` that has one value in a row group according to the footer is not read.

Columns have their own names in the files, or those of a column mapping. A name may contain
dots, so a column inside a struct is given by its path, never as one text. Positions of deleted
rows are 64-bit bitmaps.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from pipeline.apply.row_metadata import (
    NO_ORIGINS,
    OP,
    RANK,
    SHARD,
    SOURCE,
    Adoption,
    Integers,
    Mask,
    RowOrigins,
)
from pipeline.delta import deletion_vectors
from pipeline.delta.log import ActiveFile, Metadata
from pipeline.delta.protocol import file_schema
from pipeline.delta.statistics import footer_fits
from pipeline.delta.store import Store
from pipeline.delta.types import to_arrow
from pipeline.errors import HeldError

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """``schema`` has the table's column names, ``physical`` the names in its files."""

    schema: pa.Schema
    physical: pa.Schema

    @classmethod
    def of(cls, metadata: Metadata) -> "Layout":
        """The layout of a table, without its partition columns, which no file holds."""
        schema, parted = to_arrow(metadata.schema_string), metadata.partition_columns
        own = [one for one in schema if one.name not in parted]
        return cls(pa.schema(own), file_schema(metadata))

    def path(self, path: Path) -> Path:
        """The path of a column in the files."""
        names, ours, theirs = [], pa.struct(list(self.schema)), pa.struct(list(self.physical))
        for name in path:
            at = ours.get_field_index(name)
            if at < 0:
                return path  # not a column of the table, so no file has it
            names.append(theirs.field(at).name)
            ours, theirs = ours.field(at).type, theirs.field(at).type
        return tuple(names)

    def of_files(self, rows: pa.Table) -> pa.Table:
        """Convert a file's rows to the table's column names; columns that the file has."""
        pairs = zip(self.physical, self.schema, strict=True)
        fields = {physical.name: own for physical, own in pairs}
        known = [one.name for one in rows.schema if one.name in fields]
        return _renamed(rows.select(known), pa.schema([fields[name] for name in known]))


def leaf_paths(schema: pa.Schema) -> dict[Path, int]:
    """Path -> number of a column in a Parquet file, as its format counts; *schema* is the file's.

    Columns inside lists and maps are counted, but have no path.
    """
    found: dict[Path, int] = {}
    for number, path in enumerate(path for one in schema for path in _below(one, ())):
        if path is not None:
            found[path] = number
    return found


def _below(field: pa.Field, above: Path | None) -> Iterator[Path | None]:
    path = None if above is None else (*above, field.name)
    if pa.types.is_struct(field.type):
        for inner in field.type:
            yield from _below(inner, path)
    elif pa.types.is_nested(field.type):
        for number in range(field.type.num_fields):
            yield from _below(field.type.field(number), None)
    else:
        yield path


def _renamed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rename columns, inside structs too; a cast would match them by name."""
    columns = []
    for column, one in zip(rows.columns, schema, strict=True):
        kind = _named(column.type, one.type)
        chunks = [chunk.view(kind) for chunk in column.chunks]
        columns.append(column if column.type.equals(kind) else pa.chunked_array(chunks, kind))
    fields = [
        pa.field(one.name, column.type, one.nullable, one.metadata)
        for one, column in zip(schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _named(kind: pa.DataType, names: pa.DataType) -> pa.DataType:
    """*kind* with the field names and metadata inside structs from *names*."""
    if not (pa.types.is_struct(kind) and pa.types.is_struct(names)):
        return kind
    return pa.struct(
        [
            pa.field(name.name, _named(own.type, name.type), own.nullable, name.metadata)
            for own, name in zip(kind, names, strict=True)
        ]
    )


Raw = int | bytes
_CUT = 32  # bytes; a longer text may be truncated in a bound, so equal bounds prove nothing


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and greatest value of one column in a row group, as in the footer, and its NULLs.

    ``least`` and ``most`` are both None if the footer does not have them; ``nulls`` is -1 if it
    does not count NULLs.
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
    """A file's own description; ``columns``: path -> number of a Parquet column."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    columns: Mapping[Path, int]

    @property
    def weight(self) -> int:
        """Its cost in memory, in descriptions of one column of one row group."""
        return int(self.metadata.num_row_groups * self.metadata.num_columns)

    def bounds(self, group: int, path: Path) -> Bounds:
        """Bounds of one column in one row group; an absent column is all NULL."""
        number = self.columns.get(path)
        if number is None:
            return Bounds(None, None, self.metadata.row_group(group).num_rows)
        stats = self.metadata.row_group(group).column(number).statistics
        nulls = -1 if stats is None or not stats.has_null_count else stats.null_count
        if stats is None or not stats.has_min_max:
            return Bounds(None, None, nulls)
        return Bounds(stats.min_raw, stats.max_raw, nulls)


@dataclass(eq=False)
class Footers:
    """Footers by file name, cached between merges; the least recently used are dropped first.

    A file of a Delta table never changes under its name. *limit* counts column descriptions of
    about 0.5 kB each. Merges of two queues may ask at the same time.
    """

    limit: int = 200_000
    _kept: OrderedDict[tuple[str, str], Footer] = field(default_factory=OrderedDict)
    _weight: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def of(self, store: Store, file: ActiveFile) -> Footer:
        """The footer of *file*.

        Raises:
            HeldError: ``file_damaged``; ``file_format``, its times have two interpretations.
        """
        name = (store.uri, file.path)
        with self._lock:
            if (known := self._kept.get(name)) is not None:
                self._kept.move_to_end(name)
                return known
        footer = read_footer(store, file.path)
        with self._lock:
            if name not in self._kept:
                self._weight += footer.weight
            self._kept[name] = footer
            while self._weight > self.limit and len(self._kept) > 1:
                self._weight -= self._kept.popitem(last=False)[1].weight
        return footer


@dataclass(frozen=True, slots=True, eq=False)
class DataFile:
    """An open file: its footer, its columns row group by row group, and its deleted rows."""

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
        """Columns of one row group; a column that the file does not have is all NULL.

        Raises:
            HeldError: ``file_damaged``.
        """
        numbers = [self.footer.columns[path] for path in paths if path in self.footer.columns]
        with _readable(self.name):
            rows = self._parquet.reader.read_row_group(group, column_indices=numbers)
        absent = pa.chunked_array([pa.nulls(self.footer.metadata.row_group(group).num_rows)])
        return [_column_at(rows, path) if path in self.footer.columns else absent for path in paths]

    def rows(self, group: int, names: Collection[str] | None = None) -> pa.Table:
        """All columns of one row group, or those of *names*, including deleted rows.

        Raises:
            HeldError: ``file_damaged``.
        """
        with _readable(self.name):
            if names is None:
                return self._parquet.read_row_group(group)
            chosen = [n for path, n in self.footer.columns.items() if path[0] in names]
            return self._parquet.reader.read_row_group(group, column_indices=chosen)


@contextmanager
def open_file(store: Store, file: ActiveFile, footers: Footers) -> Iterator[DataFile]:
    """Open *file* for reading.

    Raises:
        HeldError: ``file_damaged``, ``vector_damaged``, ``file_format``.
    """
    footer = footers.of(store, file)
    gone = deletion_vectors.read_vector(store, file.vector) if file.vector else BitMap64()
    with _readable(file.path):
        source = store.source(file.path)
    with source:
        parquet = pq.ParquetFile(source, metadata=footer.metadata)
        yield DataFile(file.path, footer, gone, parquet)


def read_footer(store: Store, name: str) -> Footer:
    """Read the footer of one data file."""
    with _readable(name), store.source(name) as source:
        metadata = pq.read_metadata(source)
        schema = metadata.schema.to_arrow_schema()
    footer_fits(metadata, name)
    return Footer(metadata, schema, leaf_paths(schema))


def _column_at(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    column = rows[path[0]]
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Convert read errors to a hold that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        detail = f"{name}: {error}; restore it, or rebuild the mirror"
        raise HeldError("file_damaged", detail) from error


@dataclass(eq=False)
class MirrorFiles:
    """The rows of a mirror as of one version: its files and what is needed to read them.

    Archived rows are looked for only if the mirror ``keeps`` any.
    """

    store: Store
    files: Sequence[ActiveFile]
    layout: Layout
    adoption: Adoption = field(default_factory=Adoption)
    footers: Footers = field(default_factory=Footers)
    keeps: bool = False

    def __post_init__(self) -> None:
        """Look up once where the files have the row origins."""
        op_paths = (OP,) if self.keeps else ()
        self._paths = tuple(self.layout.path(path) for path in (SOURCE, SHARD, *RANK, *op_paths))

    def owned(self, data: DataFile, group: int, rows: Integers) -> RowOrigins:
        """Origins of *rows* of a row group; columns that are constant in it are not read."""
        if not len(rows):
            return NO_ORIGINS
        paths = self._paths
        only = [data.footer.bounds(group, path).only for path in paths]
        unknown = [path for path, value in zip(paths, only, strict=True) if value is None]
        read = dict(zip(unknown, data.columns(group, unknown) if unknown else (), strict=True))
        source, shard, *rank = (
            take_rows(read[path], rows) if value is None else pa.repeat(_scalar(value), len(rows))
            for path, value in zip(paths, only, strict=True)
        )
        op = rank.pop() if self.keeps else None
        return self.adoption.owned(source.cast(pa.string()), shard.cast(pa.string()), rank, op)

    def owners(self, rows: pa.Table) -> RowOrigins:
        """Origins of whole *rows*, which have the table's column names."""
        return self.adoption.owners(rows)

    def count(self) -> int:
        """Rows that are not deleted, by the log, or else by the footers."""
        return sum(
            self.records(file) - (file.vector["cardinality"] if file.vector else 0)
            for file in self.files
        )

    def records(self, file: ActiveFile) -> int:
        """Rows in *file*, including deleted ones."""
        if (logged := file.records) is not None:
            return logged
        return int(self.footers.of(self.store, file).metadata.num_rows)


def take_rows(column: pa.ChunkedArray, rows: Integers) -> pa.Array:
    """Values of a column at *rows*, in their order."""
    return column.take(pa.array(rows)).combine_chunks()


def _scalar(value: int | bytes) -> int | str:
    return value.decode() if isinstance(value, bytes) else value


def to_bitmap(positions: Integers) -> BitMap64:
    """The *positions* as a set; they may be in any order and repeated."""
    return BitMap64(array("Q", np.sort(positions).astype(np.uint64).tobytes()))


def is_among(known: BitMap64, positions: Integers) -> Mask:
    """Which of *positions* are *known*; in any order."""
    if not known or not len(positions):
        return np.zeros(len(positions), np.bool_)
    both = known & to_bitmap(positions)
    found: Mask = np.isin(positions, np.frombuffer(both.to_array(), np.uint64).astype(np.int64))
    return found
