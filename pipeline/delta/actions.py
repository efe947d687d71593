"""Builds Delta log actions that add or remove files, delete rows, and add columns or properties.

Deleting rows of a file needs two actions. Its `remove` has exactly the old deletion vector. Its
`add` has the new one, and every other field as before. Without the `remove` its rows count twice.

If a column changes its type, the same commit must remove the files of the old type.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from pipeline.delta import protocol, statistics
from pipeline.delta.log import Action, ActiveFile, Metadata, Snapshot
from pipeline.delta.types import delta_field, to_arrow
from pipeline.errors import HeldError

_PLAIN = "/=-_.~!$&'()*+,;@:"  # characters that are not encoded in a path of the log


def add_file(
    name: str,
    *,
    size: int,
    at: datetime,
    stats: Mapping[str, Any],
    partition: Mapping[str, str | None] | None = None,
    data_change: bool = True,
) -> Action:
    """Add a new file: *name* is the store's, *stats* is from ``collect_statistics``."""
    return {
        "add": {
            "path": quote(name, safe=_PLAIN),
            "partitionValues": dict(partition or {}),
            "size": size,
            "modificationTime": to_milliseconds(at),
            "dataChange": data_change,
            "stats": statistics.encode_statistics(stats),
        }
    }


def remove_file(file: ActiveFile, *, at: datetime, data_change: bool = True) -> Action:
    """Remove *file* with its current deletion vector."""
    kept = ("path", "partitionValues", "size", "tags", "deletionVector")
    own = {name: file.action[name] for name in kept if name in file.action}
    how = {
        "deletionTimestamp": to_milliseconds(at),
        "dataChange": data_change,
        "extendedFileMetadata": True,
    }
    return {"remove": {**own, **how}}


def add_vector(file: ActiveFile, descriptor: Mapping[str, Any], *, records: int) -> Action:
    """Add *file* again with a new deletion vector, which must include the rows of the old one.

    *records* is the number of rows in the file, from its footer if the log does not have it.

    Raises:
        HeldError: ``log_damaged``, the number contradicts the log, or the vector has more rows.
    """
    logged = file.records
    if logged not in {None, records} or not 0 < descriptor["cardinality"] <= records:
        raise HeldError(
            "log_damaged",
            f"{file.action['path']}: a deletion vector of {descriptor['cardinality']} rows for a "
            f"file of {records} rows, where the log says {logged}; rebuild the table",
        )
    stats = statistics.encode_statistics(statistics.loosen_statistics(file.stats or {}, records))
    vector = dict(descriptor)
    return {"add": {**file.action, "dataChange": True, "stats": stats, "deletionVector": vector}}


def to_milliseconds(at: datetime) -> int:
    """Milliseconds since 1970 (UTC); *at* must have a time zone."""
    return int(at.astimezone(UTC).timestamp() * 1_000)


def alter_metadata(
    snapshot: Snapshot, schema: pa.Schema, properties: Mapping[str, str]
) -> tuple[Action, ...]:
    """Actions that add columns, set the types of *schema* and set properties; none if all is set.

    If a type changes, the same commit must remove the files that have the old type.

    Raises:
        HeldError: ``schema``, a new column is NOT NULL, or differs from another in case only.
    """
    struct = json.loads(snapshot.metadata.schema_string)
    kinds = {field.name: delta_field(field)["type"] for field in schema}
    for field in struct["fields"]:
        field["type"] = kinds.get(field["name"], field["type"])
    text = json.dumps(struct, separators=(",", ":"))
    new = [schema.field(name) for name in schema.names if name not in _names(struct)]
    if lacked := [field.name for field in new if not field.nullable]:
        raise HeldError("schema", f"{snapshot.uri}: existing rows lack {lacked[0]}")
    known = dict(snapshot.metadata.configuration)
    action = {**snapshot.metadata.action, "schemaString": text, "configuration": known}
    there = replace(snapshot, metadata=Metadata.of(action))
    wanted = {**known, **properties}
    if not new and wanted == known and struct == json.loads(snapshot.metadata.schema_string):
        return ()
    if protocol.mapping_needed(schema):
        wanted[protocol.MODE] = "name"
    return _described(there, schema, wanted)


def with_properties(snapshot: Snapshot, properties: Mapping[str, str]) -> tuple[Action, ...]:
    """Actions that set *properties*; none if they are set."""
    known = dict(snapshot.metadata.configuration)
    if properties.items() <= known.items():
        return ()
    return _described(snapshot, pa.schema([]), {**known, **properties})


def _names(struct: Mapping[str, Any]) -> set[str]:
    return {field["name"] for field in struct["fields"]}


def _described(
    snapshot: Snapshot, new: pa.Schema, properties: Mapping[str, str]
) -> tuple[Action, ...]:
    text, configuration = protocol.describe_table(new, properties, snapshot.metadata.schema_string)
    described = {**snapshot.metadata.action, "schemaString": text, "configuration": configuration}
    wanted = protocol.our_protocol(to_arrow(text), configuration)["protocol"]
    better = protocol.upgrade_protocol(snapshot.protocol, wanted)
    first: tuple[Action, ...] = () if better is None else ({"protocol": better},)
    return (*first, {"metaData": described})
