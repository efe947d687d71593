"""Reads both sides: source tables as MySQL's texts, mirrors from Delta at a version.

It uses ``deltalake``'s QueryBuilder, because its other readers ignore, or refuse, deletion vectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pymysql
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from pymysql.converters import encoders

from demo.oracle.canon import Column, from_source
from demo.shop.link import Address

Key = tuple[Any, ...]
RowId = tuple[str, Key]
"""A shard, ``database.table``, and the row's key in it."""
Row = Mapping[str, object]

COLUMNS = """
    SELECT column_name, data_type, column_type FROM information_schema.columns
    WHERE table_schema = '{0}' AND table_name = '{1}' ORDER BY ordinal_position
"""
KEY = """
    SELECT column_name FROM information_schema.key_column_usage
    WHERE table_schema = '{0}' AND table_name = '{1}' AND constraint_name = 'PRIMARY'
    ORDER BY ordinal_position
"""


class SourceColumn(Protocol):
    """A column of a source, with the comparison to the mirror's column."""

    @property
    def name(self) -> str:
        """Return its name on both sides."""
        ...

    @property
    def declared(self) -> str:
        """Return its type in the source's spelling."""
        ...

    def fits(self, mirror_type: str) -> bool:
        """Tell whether *mirror_type*, in Delta's names, is the contract's."""
        ...

    def from_mirror(self, value: object) -> object:
        """Convert a mirror's value to the form of the source's values in `Source`."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """All shards of one table at one moment: their columns, key and rows in canonical form.

    ``unverified`` names columns whose types no mirror can have.
    """

    shards: tuple[str, ...]
    columns: Sequence[SourceColumn]
    key: tuple[str, ...]
    rows: Mapping[RowId, Row]
    unverified: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mirror:
    """One version of a mirror: Delta types of its columns, and rows; an id may occur twice."""

    types: Mapping[str, str]
    rows: Sequence[tuple[RowId, Row]]


def read_sources(address: Address, mirrors: Mapping[str, Sequence[str]]) -> dict[str, Source]:
    """Read every shard of every mirror in one snapshot of the server."""
    link = pymysql.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        charset="utf8mb4",
        conv=dict(encoders.items()),  # no decoders: values come as the server's text
        init_command="SET SESSION time_zone = '+00:00'",
    )
    with link, link.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        return {mirror: _source(cursor, tuple(shards)) for mirror, shards in mirrors.items()}


def read_mirror(path: str, source: Source, version: int | None = None) -> Mirror:
    """Read a mirror at *version*, or its newest one; a mirror that does not exist is empty."""
    try:
        table = DeltaTable(path, version=version)
    except TableNotFoundError:
        return Mirror({}, ())
    types = {field.name: _type_name(field.type) for field in table.schema().fields}
    columns = [column for column in source.columns if column.name in types]
    rows = [
        {column.name: column.from_mirror(values[column.name]) for column in columns}
        | {"_sluice": values.get("_sluice")}
        for values in read_rows(table, "SELECT * FROM t").to_pylist()
    ]
    return Mirror(types, [(_row_id(source, row), row) for row in rows])


def read_touched(path: str, key: Sequence[str], version: int | None = None) -> dict[RowId, int]:
    """Read which transaction wrote each row of a mirror last; of duplicates, the oldest."""
    names = ", ".join(f'"{name}"' for name in (*key, "touched"))
    table = DeltaTable(path, version=version)
    found: dict[RowId, int] = {}
    for row in read_rows(table, f"SELECT {names}, _sluice['shard'] AS _shard FROM t").to_pylist():
        row_id = (row["_shard"], tuple(row[name] for name in key))
        found[row_id] = min(row["touched"], found.get(row_id, row["touched"]))
    return found


def _source(cursor: pymysql.cursors.Cursor, shards: tuple[str, ...]) -> Source:
    """Read one table's shards; the columns of the first one count for all."""
    database, _, name = shards[0].partition(".")
    cursor.execute(COLUMNS.format(database, name))
    declared = [Column(*map(str, row)) for row in cursor.fetchall()]
    columns = tuple(column for column in declared if column.verifiable)
    cursor.execute(KEY.format(database, name))
    key = tuple(str(row[0]) for row in cursor.fetchall())
    # MySQL prints a FLOAT with six digits, and as a double with all digits
    names = [f"`{c.name}` * 1e0" if c.kind == "float" else f"`{c.name}`" for c in columns]
    rows: dict[RowId, Row] = {}
    for shard in shards:
        cursor.execute(f"SELECT {', '.join(names)} FROM {shard}")
        for values in cursor.fetchall():
            pairs = zip(columns, values, strict=True)
            row = {column.name: from_source(column, raw) for column, raw in pairs}
            rows[shard, tuple(row[name] for name in key)] = row
    unverified = tuple(column.name for column in declared if not column.verifiable)
    return Source(shards, columns, key, rows, unverified)


def _row_id(source: Source, row: Row) -> RowId:
    """Return the id of a mirror's row; one without metadata (adopted) is of the only shard."""
    sluice = row["_sluice"]
    shard = sluice["shard"] if isinstance(sluice, dict) else source.shards[0]
    return str(shard), tuple(row.get(name) for name in source.key)


def read_rows(table: DeltaTable, query: str) -> pa.Table:
    """Return what *query* selects from *table* (named ``t``); respects deletion vectors."""
    return pa.table(QueryBuilder().register("t", table).execute(query).read_all())


def _type_name(kind: object) -> str:
    """Return the name of a Delta type; ``struct`` for every struct."""
    return str(getattr(kind, "type", kind))
