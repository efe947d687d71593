"""May Sluice write this table itself, and what does it promise in those that it makes?

Whatever is not known here by name is refused: a feature that is passed over makes a table that
another reader takes for something else.  Features of the first protocols are listed though nobody
uses them, so those are refused by use.  Pure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pipeline.errors import HeldError
from pipeline.lake.columns import MODE
from pipeline.lake.delta_types import PHYSICAL, arrow_field, struct_fields, to_arrow
from pipeline.lake.log import Snapshot

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
    "delta.enableInCommitTimestamps": "commits carry times of their own",
    "delta.enableIcebergCompatV1": "it is an Iceberg table too",
    "delta.enableIcebergCompatV2": "it is an Iceberg table too",
    "delta.enableIcebergCompatV3": "it is an Iceberg table too",
    "delta.enableTypeWidening": "columns may change their type",
}
_PROPERTIES = {  # properties that must not be there at all, or whose names begin so
    "delta.setTransactionRetentionDuration": "the applied batch would be forgotten",
    "delta.constraints.": "rows must be checked",
    "delta.coordinatedCommits": "commits go through a coordinator",
    "delta.redirect": "it lies elsewhere",
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


def refuse(snapshot: Snapshot) -> None:
    """Return only if Sluice may read and write the table.

    Raises:
        HeldError: ``protocol``; names the feature, property or column.
    """
    if (what := unwritable(snapshot)) is not None:
        raise HeldError(
            "protocol",
            f"{snapshot.uri}: {what}; Sluice does not write such a table itself: let Spark "
            "merge it, or take that away",
        )


def unwritable(snapshot: Snapshot) -> str | None:
    """The feature, property or column for which Sluice does not write the table; None if none."""
    return next(_reasons(snapshot), None)


def writes_vectors(snapshot: Snapshot) -> bool:
    """Whether readers heed deletion vectors: without property and feature Spark ignores them."""
    listed = [snapshot.protocol.get(kind) or () for kind in ("readerFeatures", "writerFeatures")]
    on = snapshot.metadata.configuration.get(VECTORS, "false").lower() == "true"
    return on and all("deletionVectors" in features for features in listed)


def ours(schema: pa.Schema, configuration: Mapping[str, str]) -> dict[str, Any]:
    """The ``protocol`` action of a table that we make: what its columns and properties ask for."""
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


def upgraded(protocol: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The table's protocol with the *wanted* features beside its own; None if it has them."""
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


def columns(snapshot: Snapshot) -> pa.Schema:
    """The table's columns in Arrow, partition columns among them."""
    return to_arrow(snapshot.metadata.schema_string)


def column_names(snapshot: Snapshot) -> list[str]:
    """The table's columns in their order, partition columns among them."""
    return [str(one["name"]) for one in _fields(snapshot)]


def column_types(snapshot: Snapshot, names: Iterable[str]) -> pa.Schema:
    """Those of *names* that the table has, in Arrow; others may be of types only Spark knows.

    Raises:
        HeldError: ``protocol``, one of them is of such a type.
    """
    fields = {one["name"]: one for one in _fields(snapshot)}
    return pa.schema([arrow_field(fields[name]) for name in names if name in fields])


def padded(snapshot: Snapshot) -> frozenset[str]:
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
    """Features that a protocol before lists stands for."""
    since = {
        2: ("appendOnly", "invariants"),
        3: ("checkConstraints",),
        4: ("changeDataFeed", "generatedColumns"),
        5: ("columnMapping",),
        6: ("identityColumns",),
    }
    return {one for version, all_ in since.items() if version <= writer for one in all_}
