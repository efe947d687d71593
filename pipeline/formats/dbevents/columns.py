"""Which columns have rows that are written in a schema of Avro?

Their types are those of the schema: numbers, texts, bytes; what holds others inside is JSON.  A
field that may be null holds null in older rows; one with another default is not filled in.  Pure.
"""

from functools import lru_cache
from typing import Any

import msgspec

from pipeline.formats.dbevents.event import ROW_KEY, EventShape
from pipeline.model import COLUMN_VERSIONS, ShardId
from pipeline.schema.model import ColumnTold, Notation, TableTold

TYPES = {
    **{"int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE"},
    **{"boolean": "TINYINT", "string": "LONGTEXT", "enum": "LONGTEXT"},
    **{"bytes": "LONGBLOB", "fixed": "LONGBLOB"},
}
OTHER = "JSON"


@lru_cache(maxsize=1024)  # each message of a table is written in the same schema
def table(schema: str, shape: EventShape) -> TableTold | None:
    """The table that *schema* tells; None of what is no record."""
    try:
        fields = msgspec.json.decode(schema)["fields"]
        told = [(str(one["name"]), one["type"]) for one in fields]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        return None
    added = [*([] if shape.key else [(ROW_KEY, "string")]), (COLUMN_VERSIONS, ["null", "map"])]
    columns = tuple(_column(*one, at) for at, one in enumerate([*told, *added], start=1))
    return TableTold(ShardId.parse(shape.shard), "alter", columns, shape.keyed_by)


def _column(name: str, kind: Any, position: int) -> ColumnTold:
    branches = kind if isinstance(kind, list) else [kind]
    others = [one for one in branches if one != "null"]
    return ColumnTold(
        name=name,
        type=_type(others[0]) if len(others) == 1 else OTHER,
        nullable="null" in branches,
        position=position,
        notation=Notation.PLAIN,
    )


def _type(kind: Any) -> str:
    while isinstance(kind, dict):
        kind = kind.get("type")
    return TYPES.get(kind, OTHER) if isinstance(kind, str) else OTHER
