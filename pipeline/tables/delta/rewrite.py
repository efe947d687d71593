"""Files written anew: without the rows that went, with the table's columns and types of today.

For widened and added columns, and for many small files to become few.  Rows keep their
``_sluice``, so that nothing is applied to them twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.apply.fills import Fill, filled
from pipeline.errors import HeldError
from pipeline.lake import actions
from pipeline.lake.delta_types import to_arrow
from pipeline.lake.entries import Action
from pipeline.tables.delta.data_file import DataFile, opened
from pipeline.tables.delta.mirror_files import MirrorFiles
from pipeline.tables.delta.positions import among
from pipeline.tables.delta.write import Target, write

_WINDOW = 512 << 20  # bytes in memory; what is sorted together, and about four of a file's


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Actions that put new files in the place of old ones, and the rows in each of the new."""

    actions: tuple[Action, ...]
    files: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows in all of them."""
        return sum(self.files)


def rewrite(
    mirror: MirrorFiles,
    target: Target,
    *,
    fills: Sequence[Fill] = (),
    data_change: bool = True,
    window: int = _WINDOW,
) -> Rewritten:
    """Write all rows of *mirror*'s files into new ones, each sorted by key.

    In: *mirror* holds the files that are to go; *target* the table's columns of today.  About
    *window* bytes are in memory; more rows become several files.

    Raises:
        HeldError: ``schema``, a value does not fit its column's new type; ``no_shard``;
            ``account``, rows were lost or doubled; or a file cannot be read.
    """
    made: list[Action] = []
    files: list[int] = []
    for part in _windows(_rows(mirror, target, fills), window):
        files.append(len(part))
        made.append(write(part, target, data_change=data_change))
    went = [actions.removed(file, at=target.at, data_change=data_change) for file in mirror.files]
    if sum(files) != (wanted := mirror.count()):
        detail = f"{sum(files)} rows were written anew from files that have {wanted}; report this"
        raise HeldError("account", detail)
    return Rewritten((*went, *made), tuple(files))


def _rows(mirror: MirrorFiles, target: Target, fills: Sequence[Fill]) -> Iterator[pa.Table]:
    schema = to_arrow(target.metadata.schema_string)
    for file in mirror.files:
        with opened(mirror.store, file, mirror.footers) as data:
            for group, first in data.groups:
                rows = fitting(mirror.layout.of_files(data.rows(group)), schema, data.name)
                rows = _alive(rows, data, first)
                yield filled(rows, mirror.owners(rows), fills)


def _alive(rows: pa.Table, data: DataFile, first: int) -> pa.Table:
    """Those of a row group that have not gone; views of texts no filter takes."""
    if not data.gone:
        return rows
    return rows.filter(pa.array(~among(data.gone, np.arange(first, first + len(rows)))))


def fitting(rows: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """The rows of file *name* with all columns of *schema*; those that it lacks are null.

    Raises:
        HeldError: ``schema``, a value does not fit its column's new type.
    """
    columns = []
    for one in schema:
        there = one.name in rows.column_names
        try:
            columns.append(rows[one.name].cast(one.type) if there else _nulls(len(rows), one.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            detail = f"{name}: column {one.name} does not become {one.type}: {error}"
            raise HeldError("schema", f"{detail}; rebuild the mirror") from error
    fields = [pa.field(one.name, one.type) for one in schema]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _nulls(number: int, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(number, kind)])


def _windows(parts: Iterator[pa.Table], window: int) -> Iterator[pa.Table]:
    """Join parts until they are *window* bytes, or more by one part."""
    held: list[pa.Table] = []
    size = 0
    for part in parts:
        if len(part):
            held.append(part)
            size += part.nbytes
        if size >= window:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)
