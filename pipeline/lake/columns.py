"""Which columns does a file of a table have, under which names?  Pure, but for new names.

A column whose name Parquet readers do not take (blanks, ``,;{}()=``, tab, newline) has another name
in files and statistics: Delta's column mapping by name.  Plain names are the same in both.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline.errors import HeldError
from pipeline.lake.delta_types import (
    PHYSICAL,
    arrow_field,
    delta_field,
    physical_name,
    struct_fields,
)
from pipeline.lake.log import Metadata

MODE = "delta.columnMapping.mode"
MAX_ID = "delta.columnMapping.maxColumnId"
ID = "delta.columnMapping.id"
_ODD = frozenset(" ,;{}()\n\t=")
_FIELD_ID = b"PARQUET:field_id"


def mapping_needed(schema: pa.Schema) -> bool:
    """Whether a name, nested ones too, needs another name in files."""
    return any(_odd(one["name"]) for one in struct_fields(_struct(schema)))


def described(
    schema: pa.Schema, configuration: Mapping[str, str], before: str | None = None
) -> tuple[str, dict[str, str]]:
    """Schema JSON and properties of a table with these columns; mapped if the properties say so.

    Columns at the end that *before*, the table's schema JSON, lacks are new; the rest stays as it
    is written there.

    Raises:
        HeldError: ``schema``, two columns have one name but for case.
    """
    struct = _struct(schema) if before is None else _extended(json.loads(before), schema)
    _refuse_twins([field["name"] for field in struct["fields"]])
    properties = dict(configuration)
    if properties.get(MODE) == "name":
        properties[MAX_ID] = str(_number(struct, int(properties.get(MAX_ID, 0))))
    return json.dumps(struct, separators=(",", ":")), properties


def file_schema(metadata: Metadata) -> pa.Schema:
    """What a data file has: the names in files, field ids if mapped, no partition columns."""
    fields = [_physical(one) for one in fields_in_files(metadata)]
    return pa.schema(fields)


def fields_in_files(metadata: Metadata) -> list[dict[str, Any]]:
    """Delta's fields, without the partition columns."""
    fields = json.loads(metadata.schema_string)["fields"]
    return [one for one in fields if one["name"] not in metadata.partition_columns]


def partition_names(metadata: Metadata) -> set[str]:
    """Keys of ``partitionValues``: the partition columns by their names in files."""
    return set(partition_keys(metadata).values())


def partition_keys(metadata: Metadata) -> dict[str, str]:
    """Partition columns by their names in the table -> keys of ``partitionValues``."""
    if not metadata.partition_columns:
        return {}
    fields = json.loads(metadata.schema_string)["fields"]
    own = (one for one in fields if one["name"] in metadata.partition_columns)
    return {str(one["name"]): physical_name(one) for one in own}


def fitted(table: pa.Table, metadata: Metadata) -> pa.Table:
    """Rows as they are written to a file: exactly the table's columns and types, and its NOT NULLs.

    In: the columns in files, by their names in the table, in any order.

    Raises:
        HeldError: ``schema``; a column is missing or too many, does not convert, or has a NULL
            where none may be.
    """
    fields = fields_in_files(metadata)
    names = [field["name"] for field in fields]
    if sorted(table.column_names) != sorted(names):
        odd = sorted(set(table.column_names) ^ set(names))
        raise HeldError("schema", f"a new file has not exactly its table's columns: {odd}")
    schema = file_schema(metadata)
    written = []
    for delta, field in zip(fields, schema, strict=True):
        column = _cast(table[delta["name"]], arrow_field(delta))
        if not field.nullable and column.null_count:
            raise HeldError("schema", f"column {delta['name']} is NOT NULL, and a row has NULL")
        chunks = [_renamed(chunk, field.type) for chunk in column.chunks]
        written.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(written, schema=schema)


def _struct(schema: pa.Schema) -> dict[str, Any]:
    return {"type": "struct", "fields": [delta_field(field) for field in schema]}


def _extended(struct: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    known = {field["name"] for field in struct["fields"]}
    new = [delta_field(field) for field in schema if field.name not in known]
    return {**struct, "fields": [*struct["fields"], *new]}


def _refuse_twins(names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (twin := seen.setdefault(name.lower(), name)) != name:
            raise HeldError("schema", f"columns {twin} and {name} differ in case only")


def _number(struct: dict[str, Any], highest: int) -> int:
    """Give every field an id and a name in files where it has none yet; the highest id."""
    fields: Sequence[dict[str, Any]] = struct_fields(struct)
    highest = max([highest, *(int(one["metadata"].get(ID, 0)) for one in fields)])
    for field in fields:
        told = field["metadata"]
        if ID not in told:
            highest += 1
            told[ID] = highest
        if PHYSICAL not in told:
            told[PHYSICAL] = f"col-{uuid.uuid4()}" if _odd(field["name"]) else field["name"]
    return highest


def _odd(name: str) -> bool:
    return not _ODD.isdisjoint(name)


def _physical(field: Mapping[str, Any]) -> pa.Field:
    kind = field["type"]
    if isinstance(kind, dict) and kind["type"] == "struct":
        inner = pa.struct([_physical(one) for one in kind["fields"]])
    else:
        inner = arrow_field(field).type
    told = {_FIELD_ID: str(field["metadata"][ID]).encode()} if ID in field["metadata"] else None
    return pa.field(physical_name(field), inner, nullable=field["nullable"], metadata=told)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise HeldError("schema", f"column {field.name} does not fit its table: {error}") from error


def _renamed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values, with the names of *kind* inside structs."""
    if array.type.equals(kind) or not pa.types.is_struct(kind):
        return array
    inner = [_renamed(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
    return pa.StructArray.from_arrays(inner, fields=list(kind), mask=array.is_null())
