"""Converts column types between Delta's schema JSON and Arrow.

Timestamps are in microseconds, because Spark cannot read nanoseconds in a file.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline.errors import HeldError

_ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DELTA = {kind: name for name, kind in _ARROW.items()} | {
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}
PHYSICAL = "delta.columnMapping.physicalName"
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def physical_name(field: Mapping[str, Any]) -> str:
    """A field's name in files and statistics."""
    return str(field["metadata"].get(PHYSICAL, field["name"]))


def to_arrow(schema_string: str) -> pa.Schema:
    """The columns of a schema JSON, by their names in the table, with NOT NULL.

    Raises:
        HeldError: ``protocol``, Sluice does not support a type.
    """
    return pa.schema([arrow_field(one) for one in json.loads(schema_string)["fields"]])


def arrow_field(field: Mapping[str, Any]) -> pa.Field:
    """Convert one field of Delta's schema JSON to Arrow."""
    return pa.field(field["name"], _arrow(field["type"]), nullable=bool(field["nullable"]))


def delta_field(field: pa.Field) -> dict[str, Any]:
    """Convert one Arrow field to Delta's schema JSON."""
    return {
        "name": field.name,
        "type": _delta(field.type),
        "nullable": field.nullable,
        "metadata": {},
    }


def struct_fields(kind: Any) -> Sequence[dict[str, Any]]:
    """Fields of every struct at or below a type of Delta's schema JSON, outer ones first."""
    if not isinstance(kind, dict):
        return []
    found = list(kind.get("fields", ()))
    inner = [kind.get(part) for part in ("elementType", "keyType", "valueType")]
    for below in [field["type"] for field in found] + inner:
        found += struct_fields(below)
    return found


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, dict):
        return _arrow_nested(kind)
    if kind in _ARROW:
        return _ARROW[kind]
    if kind == "decimal":
        return pa.decimal128(10, 0)
    if match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    raise HeldError("protocol", f"a column has type {kind}, which only Spark reads and writes")


def _arrow_nested(kind: Mapping[str, Any]) -> pa.DataType:
    if kind["type"] == "struct":
        return pa.struct([arrow_field(one) for one in kind["fields"]])
    if kind["type"] == "array":
        element = pa.field("element", _arrow(kind["elementType"]), nullable=kind["containsNull"])
        return pa.list_(element)
    if kind["type"] == "map":
        value = pa.field("value", _arrow(kind["valueType"]), nullable=kind["valueContainsNull"])
        return pa.map_(_arrow(kind["keyType"]), value)
    raise HeldError("protocol", f"a column has type {kind['type']}, which Sluice does not know")


def _delta(kind: pa.DataType) -> Any:
    if kind in _DELTA:
        return _DELTA[kind]
    if pa.types.is_dictionary(kind):
        return _delta(kind.value_type)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [delta_field(field) for field in kind]}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _delta(kind.key_type),
            "valueType": _delta(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {
            "type": "array",
            "elementType": _delta(kind.value_type),
            "containsNull": kind.value_field.nullable,
        }
    raise HeldError("protocol", f"Delta has no column type for Arrow's {kind}")
