"""What are a mirror's columns called in its files?  Their own names, or those of a mapping; pure.

A name may hold dots, so a column inside a struct is told by its whole path, never by one text.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from pipeline.lake.columns import file_schema
from pipeline.lake.delta_types import to_arrow
from pipeline.lake.log import Metadata

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """``schema`` is that of a table's files, as readers see it; ``physical`` in files' names."""

    schema: pa.Schema
    physical: pa.Schema

    @classmethod
    def of(cls, metadata: Metadata) -> "Layout":
        """Of a table, without the columns that it is partitioned by: no file holds these."""
        schema, parted = to_arrow(metadata.schema_string), metadata.partition_columns
        own = [one for one in schema if one.name not in parted]
        return cls(pa.schema(own), file_schema(metadata))

    def path(self, path: Path) -> Path:
        """Where the files keep the column at *path*."""
        names, ours, theirs = [], pa.struct(list(self.schema)), pa.struct(list(self.physical))
        for name in path:
            at = ours.get_field_index(name)
            if at < 0:
                return path  # not a column of the table: no file has it
            names.append(theirs.field(at).name)
            ours, theirs = ours.field(at).type, theirs.field(at).type
        return tuple(names)

    def of_files(self, rows: pa.Table) -> pa.Table:
        """Rows as a file has them, of the columns that it has, under the table's names."""
        pairs = zip(self.physical, self.schema, strict=True)
        fields = {physical.name: own for physical, own in pairs}
        known = [one.name for one in rows.schema if one.name in fields]
        return _renamed(rows.select(known), pa.schema([fields[name] for name in known]))


def leaves(schema: pa.Schema) -> dict[Path, int]:
    """Number of each column of a Parquet file, as its format counts them; *schema* is the file's.

    What is inside lists and maps is counted, and has no path.
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
    """Give columns other names, inside structs too: a cast would look for equal ones in vain."""
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
    """*kind* with the names inside structs, and their metadata, of *names*."""
    if not (pa.types.is_struct(kind) and pa.types.is_struct(names)):
        return kind
    return pa.struct(
        [
            pa.field(name.name, _named(own.type, name.type), own.nullable, name.metadata)
            for own, name in zip(kind, names, strict=True)
        ]
    )
