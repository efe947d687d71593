"""Decides whether Sluice may write a table, and how its columns are named in files.

Every feature or property that is not known by name is rejected: ignoring one would produce a
table that other readers misinterpret. Features of the early protocol versions are listed even
in tables that do not use them, so these are rejected only if used.

A column name that Parquet readers reject (blanks, `,;{}()=`, tab, newline) gets another name in
files and statistics, by Delta's column mapping mode `name`. Other names are the same in both.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pipeline.delta.log import Metadata, Snapshot
from pipeline.delta.types import (
    PHYSICAL,
    arrow_field,
    delta_field,
    physical_name,
    struct_fields,
    to_arrow,
)
from pipeline.errors import HeldError

MODE = "delta.columnMapping.mode"
MAX_ID = "delta.columnMapping.maxColumnId"
ID = "delta.columnMapping.id"
_ODD = frozenset(" ,;{}()\n\t=")
_FIELD_ID = b"PARQUET:field_id"


def mapping_needed(schema: pa.Schema) -> bool:
    """Whether a column, or a nested field, needs another name in files."""
    return any(_odd(one["name"]) for one in struct_fields(_struct(schema)))


def describe_table(
    schema: pa.Schema, configuration: Mapping[str, str], before: str | None = None
) -> tuple[str, dict[str, str]]:
    """Schema JSON and properties of a table with these columns.

    *before* is the table's schema JSON: columns that it does not have are appended, the others stay
    as they are there.  If the properties set column mapping, fields get ids and names in files.

    Raises:
        HeldError: ``schema``, the names of two columns differ in case only.
    """
    struct = _struct(schema) if before is None else _extended(json.loads(before), schema)
    _refuse_twins([field["name"] for field in struct["fields"]])
    properties = dict(configuration)
    if properties.get(MODE) == "name":
        properties[MAX_ID] = str(_number(struct, int(properties.get(MAX_ID, 0))))
    return json.dumps(struct, separators=(",", ":")), properties


def file_schema(metadata: Metadata) -> pa.Schema:
    """Schema of a data file: names in files, field ids if mapped, no partition columns."""
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
    """Names of the partition columns in the table -> keys of ``partitionValues``."""
    if not metadata.partition_columns:
        return {}
    fields = json.loads(metadata.schema_string)["fields"]
    own = (one for one in fields if one["name"] in metadata.partition_columns)
    return {str(one["name"]): physical_name(one) for one in own}


def fit_rows(table: pa.Table, metadata: Metadata) -> pa.Table:
    """Convert rows to the columns, order and types of a data file, and check NOT NULL.

    *table* has all columns except partition columns, by their names in the table, in any order.

    Raises:
        HeldError: ``schema``; a column is missing, unknown, does not convert, or has a NULL that
            the table does not allow.
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
    """Give each field without an id or a name in files one; return the highest id."""
    fields: Sequence[dict[str, Any]] = struct_fields(struct)
    highest = max([highest, *(int(one["metadata"].get(ID, 0)) for one in fields)])
    for field in fields:
        metadata = field["metadata"]
        if ID not in metadata:
            highest += 1
            metadata[ID] = highest
        if PHYSICAL not in metadata:
            metadata[PHYSICAL] = f"col-{uuid.uuid4()}" if _odd(field["name"]) else field["name"]
    return highest


def _odd(name: str) -> bool:
    return not _ODD.isdisjoint(name)


def _physical(field: Mapping[str, Any]) -> pa.Field:
    kind = field["type"]
    if isinstance(kind, dict) and kind["type"] == "struct":
        inner = pa.struct([_physical(one) for one in kind["fields"]])
    else:
        inner = arrow_field(field).type
    metadata = {_FIELD_ID: str(field["metadata"][ID]).encode()} if ID in field["metadata"] else None
    return pa.field(physical_name(field), inner, nullable=field["nullable"], metadata=metadata)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise HeldError("schema", f"column {field.name} does not fit its table: {error}") from error


def _renamed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values, with the field names of *kind* in structs."""
    if array.type.equals(kind) or not pa.types.is_struct(kind):
        return array
    inner = [_renamed(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
    return pa.StructArray.from_arrays(inner, fields=list(kind), mask=array.is_null())


VECTORS = "delta.enableDeletionVectors"
_READER = frozenset({"deletionVectors", "timestampNtz", "columnMapping"})
_KNOWN = _READER | {
    *("v2Checkpoint", "vacuumProtocolCheck", "appendOnly", "invariants", "checkConstraints"),
    *("changeDataFeed", "generatedColumns", "identityColumns"),
}
_SWITCHES = {  # properties that are harmless only while they are off
    "delta.appendOnly": "it takes no updates or deletes",
    "delta.enableChangeDataFeed": "each change must be written a second time, for its feed",
    "delta.enableRowTracking": "rows are numbered",
    "delta.enableInCommitTimestamps": "commits have their own times",
    "delta.enableIcebergCompatV1": "it is an Iceberg table too",
    "delta.enableIcebergCompatV2": "it is an Iceberg table too",
    "delta.enableIcebergCompatV3": "it is an Iceberg table too",
    "delta.enableTypeWidening": "columns may change their type",
}
_PROPERTIES = {  # properties that must not be set, by the beginning of their names
    "delta.setTransactionRetentionDuration": "the applied batch would be forgotten",
    "delta.constraints.": "rows must be checked",
    "delta.coordinatedCommits": "commits go through a coordinator",
    "delta.redirect": "it is redirected to another table",
    "delta.universalFormat": "it is another format's table too",
}
_COLUMN = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    "delta.typeChanges": "changed its type",
    "CURRENT_DEFAULT": "has a default of its own",
}
_PARTITIONS = (pa.string(), pa.date32(), pa.int8(), pa.int16(), pa.int32(), pa.int64())
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"


def require_writable(snapshot: Snapshot) -> None:
    """Raise unless Sluice may read and write the table.

    Raises:
        HeldError: ``protocol``; names the feature, property or column.
    """
    if (what := why_unwritable(snapshot)) is not None:
        raise HeldError(
            "protocol",
            f"{snapshot.uri}: {what}; Sluice does not write such a table itself; merge it "
            "with Spark, or remove that",
        )


def why_unwritable(snapshot: Snapshot) -> str | None:
    """The feature, property or column for which Sluice does not write the table; None if none."""
    return next(_reasons(snapshot), None)


def writes_vectors(snapshot: Snapshot) -> bool:
    """Whether readers apply deletion vectors; Spark does only with both property and feature."""
    listed = [snapshot.protocol.get(kind) or () for kind in ("readerFeatures", "writerFeatures")]
    on = snapshot.metadata.configuration.get(VECTORS, "false").lower() == "true"
    return on and all("deletionVectors" in features for features in listed)


def our_protocol(schema: pa.Schema, configuration: Mapping[str, str]) -> dict[str, Any]:
    """The ``protocol`` action of a new table, with the features its columns and properties need."""
    reader = set()
    if configuration.get(VECTORS) == "true":
        reader.add("deletionVectors")
    if configuration.get(MODE, "none") != "none":
        reader.add("columnMapping")
    if any(_holds_ntz(field.type) for field in schema):
        reader.add("timestampNtz")
    if not reader:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(reader),
            "writerFeatures": sorted({*reader, "appendOnly", "invariants"}),
        }
    }


def upgrade_protocol(
    protocol: Mapping[str, Any], wanted: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The table's protocol with the *wanted* features added; None if it has them."""
    if wanted["minReaderVersion"] < 3:
        return None
    if protocol["minWriterVersion"] < 7:
        merged = {kind: set(wanted[kind]) for kind in ("readerFeatures", "writerFeatures")}
        merged["writerFeatures"] |= _implied(protocol["minWriterVersion"])
    else:
        merged = {
            kind: {*(protocol.get(kind) or ()), *wanted[kind]}
            for kind in ("readerFeatures", "writerFeatures")
        }
    lists = {kind: sorted(features) for kind, features in merged.items()}
    new = {"minReaderVersion": 3, "minWriterVersion": 7, **lists}
    same = {kind: sorted(protocol.get(kind) or ()) for kind in lists} == lists
    return None if same and protocol["minWriterVersion"] == 7 else new


def list_columns(snapshot: Snapshot) -> pa.Schema:
    """The table's columns in Arrow, partition columns included."""
    return to_arrow(snapshot.metadata.schema_string)


def column_names(snapshot: Snapshot) -> list[str]:
    """Names of the table's columns in their order, partition columns included."""
    return [str(one["name"]) for one in _fields(snapshot)]


def column_types(snapshot: Snapshot, names: Iterable[str]) -> pa.Schema:
    """The columns *names* in Arrow, without those that the table does not have.

    Other columns may have types that only Spark supports.

    Raises:
        HeldError: ``protocol``, one of *names* has such a type.
    """
    fields = {one["name"]: one for one in _fields(snapshot)}
    return pa.schema([arrow_field(fields[name]) for name in names if name in fields])


def padded_columns(snapshot: Snapshot) -> frozenset[str]:
    """Columns of type CHAR(n), which Spark pads when it reads: no key may be one of them."""
    chars = (
        one for one in _fields(snapshot) if str(one["metadata"].get(_CHAR, "")).startswith("char")
    )
    return frozenset(str(one["name"]) for one in chars)


def _fields(snapshot: Snapshot) -> list[dict[str, Any]]:
    return list(json.loads(snapshot.metadata.schema_string)["fields"])


def _reasons(snapshot: Snapshot) -> Iterator[str]:
    protocol, metadata = snapshot.protocol, snapshot.metadata
    reader, writer = protocol["minReaderVersion"], protocol["minWriterVersion"]
    if reader > 3 or writer > 7:
        yield (
            f"its Delta protocol is reader {reader}, writer {writer}; Sluice reads and writes"
            " tables of reader 3, writer 7 at most"
        )
    listed = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    for feature in sorted(listed - _KNOWN):
        yield f"it has the table feature {feature}"
    for name, value in sorted(metadata.configuration.items()):
        if name in _SWITCHES and value.lower() != "false":
            yield f"{name} = {value}, so {_SWITCHES[name]}"
        for beginning, why in _PROPERTIES.items():
            if name.startswith(beginning):
                yield f"{name} is set, so {why}"
    if (mode := metadata.configuration.get(MODE, "none")) not in {"none", "name"}:
        yield f"{MODE} = {mode}"
    found = _in_columns(metadata.schema_string, metadata.partition_columns, mode == "name")
    if found is not None:
        yield found


@lru_cache(maxsize=4_096)
def _in_columns(schema_string: str, partitions: tuple[str, ...], mapped: bool) -> str | None:
    for field in struct_fields(json.loads(schema_string)):
        for name, why in _COLUMN.items():
            if name in field["metadata"]:
                return f"column {field['name']} {why} ({name})"
        if mapped and PHYSICAL not in field["metadata"]:
            return f"column {field['name']} has no name in files, though columns are mapped"
    try:
        schema = to_arrow(schema_string)
    except HeldError as error:
        return error.detail
    for name in partitions:
        if schema.field(name).type not in _PARTITIONS:
            return f"it is partitioned by {name}, a {schema.field(name).type}"
    return None


def _holds_ntz(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_holds_ntz(kind.field(i).type) for i in range(kind.num_fields))


def _implied(writer: int) -> set[str]:
    """Features that a writer version below 7, which lists no features, implies."""
    since = {
        2: ("appendOnly", "invariants"),
        3: ("checkConstraints",),
        4: ("changeDataFeed", "generatedColumns"),
        5: ("columnMapping",),
        6: ("identityColumns",),
    }
    return {one for version, all_ in since.items() if version <= writer for one in all_}
