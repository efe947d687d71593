"""Which columns of a table does its log send, and of what are their values made?

The catalogue tells; what is computed, or left out by the publication, is in no row of the log.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.model import Shard, ShardId
from pipeline.schema.model import ColumnTold, TableSchema, TableTold
from pipeline.sources.postgres.column import KNOWN, PostgresColumn, columns, described

# An array's elements are asked for as if they were a column of that name.
TYPED = """\
SELECT a.attname::text AS name, a.attnum AS place, b.typname::text AS type,
    b.typtype::text AS made, upper(t.typname::text) AS own,
    CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
    t.typtype = 'd' AS domain, a.attnotnull AS filled, pg_get_expr(d.adbin, d.adrelid) AS default,
    n.nspname = 'pg_catalog' OR b.typtype <> 'b' OR b.typcategory = 'A' AS ordered,
    e.typname::text AS element, e.typtype::text AS element_made
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
JOIN pg_namespace n ON n.oid = b.typnamespace
LEFT JOIN pg_type e ON b.typcategory = 'A' AND e.oid = b.typelem
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""
MILLIS = 3  # digits of a second up to which a timestamp is sent in milliseconds
WAYS = {  # kind -> what its values are sent as, with the settings that the doctor demands
    **{"BOOL": "boolean", "INT2": "int16", "INT4": "int32", "INT8": "int64", "OID": "int64"},
    **{"FLOAT4": "float", "FLOAT8": "double", "BYTEA": "bytes", "DATE": "time.Date"},
    **{"TIME": "time.MicroTime", "TIMETZ": "time.ZonedTime", "TIMESTAMPTZ": "time.ZonedTimestamp"},
    **{"BIT": "data.Bits", "VARBIT": "data.Bits", "ENUM": "data.Enum", "UUID": "data.Uuid"},
    **{"JSON": "data.Json", "JSONB": "data.Json", "HSTORE": "data.Json", "XML": "data.Xml"},
    **{"LTREE": "data.Ltree", "INTERVAL": "time.Interval"},
    **{"ARRAY": "array", "POINT": "data.geometry.Point", "TSVECTOR": "data.Tsvector"},
    **dict.fromkeys(
        ("BPCHAR", "VARCHAR", "TEXT", "NAME", "CHAR", "NUMERIC", "MONEY", "CITEXT"), "string"
    ),
    **dict.fromkeys(("INET", "CIDR", "MACADDR", "MACADDR8"), "string"),
    **dict.fromkeys(("INT4RANGE", "INT8RANGE", "NUMRANGE"), "string"),
    **dict.fromkeys(("TSRANGE", "TSTZRANGE", "DATERANGE"), "string"),
}
UNSENT = ("BIT", "VARBIT")  # an array of these is always NULL
LEFT_OUT = ("INTERVAL",)  # and of these no row of the log has a column


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column with the name of its type as rows tell it; ``element`` of those of an array.

    ``ordered`` if its type's own order can be asked for.
    """

    column: PostgresColumn
    own: str
    ordered: bool = True
    element: PostgresColumn | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.column.name

    @property
    def told(self) -> ColumnTold:
        """As a row of the log would tell it."""
        one = self.column
        kind = one.type if one.kind in KNOWN and one.kind != "ENUM" else self.own
        return ColumnTold(
            one.name,
            f"{kind} as {one.sent}",
            one.length,
            one.scale,
            one.nullable,
            position=one.position,
        )


def read_columns(
    rows: Sequence[Mapping[str, Any]],
    declared: TableSchema | None = None,
    published: Collection[str] | None = None,
) -> tuple[ReadColumn, ...]:
    """Those that *rows* of ``TYPED`` tell; in which unit a time is sent rows of the log have told.

    *declared* are the columns as they did, *published* the names of those that are sent; None: all.
    """
    known = {one.name: one for one in columns(declared)} if declared is not None else {}
    among = (row for row in rows if published is None or row["name"] in published)
    sent = (row for row in among if not _is_left_out(row))
    return tuple(_column(row, place, known) for place, row in enumerate(sent, start=1))


def told_by(shard: Shard, found: Sequence[ReadColumn], key: Sequence[str]) -> TableTold:
    """What rows of these columns tell of their table."""
    columns = tuple(one.told for one in found)
    return TableTold(ShardId.parse(shard.name), "alter", columns, tuple(key))


def _is_left_out(row: Mapping[str, Any]) -> bool:
    return str(row["element"] or "").upper() in LEFT_OUT


def _column(row: Mapping[str, Any], place: int, known: Mapping[str, PostgresColumn]) -> ReadColumn:
    column = described(row, place)
    before = known.get(column.name)
    told = before.sent if before is not None and before.kind == column.kind else None
    column = replace(_timed(column, row), sent=told or _way(column, int(row["modifier"])))
    element = _element(row) if row["element"] is not None else None
    return ReadColumn(column, str(row["own"]), bool(row["ordered"]), element)


def _timed(column: PostgresColumn, row: Mapping[str, Any]) -> PostgresColumn:
    """With the digits of a second, of an instant: as many of them are sent."""
    if column.kind != "TIMESTAMPTZ" or int(row["modifier"]) < 0:
        return column
    return replace(column, length=int(row["modifier"]))


def _element(row: Mapping[str, Any]) -> PostgresColumn:
    """As a column of its own; a domain's values are sent as bytes there."""
    made = {"type": row["element"], "made": row["element_made"], "domain": False}
    if row["element_made"] == "d":
        return replace(described({**row, **made}), sent="bytes")
    element = described({**row, **made})
    return replace(element, sent=_way(element, int(row["modifier"])))


def _way(column: PostgresColumn, modifier: int) -> str:
    if column.kind == "TIMESTAMP":
        brief = 0 <= modifier <= MILLIS
        return "time.Timestamp" if brief else "time.MicroTimestamp"
    if column.kind == "BIT" and column.length in (1, None):
        return "boolean"
    return WAYS.get(column.kind, "bytes")
