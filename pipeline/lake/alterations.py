"""How does a table get columns or properties?  By actions that go into any commit of it.  Pure."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pipeline.errors import HeldError
from pipeline.lake import columns, protocol
from pipeline.lake.delta_types import delta_field, to_arrow
from pipeline.lake.entries import Action
from pipeline.lake.log import Metadata, Snapshot


def altered(
    snapshot: Snapshot, schema: pa.Schema, properties: Mapping[str, str]
) -> tuple[Action, ...]:
    """Actions that add columns, give others the types of *schema*, and set properties; none if so.

    Where a type changes, the files that have the old one must go in the same commit.

    Raises:
        HeldError: ``schema``; a new column would be NOT NULL, or differ from one in case only.
    """
    struct = json.loads(snapshot.metadata.schema_string)
    kinds = {field.name: delta_field(field)["type"] for field in schema}
    for field in struct["fields"]:
        field["type"] = kinds.get(field["name"], field["type"])
    text = json.dumps(struct, separators=(",", ":"))
    new = [schema.field(name) for name in schema.names if name not in _names(struct)]
    if lacked := [field.name for field in new if not field.nullable]:
        raise HeldError("schema", f"{snapshot.uri}: rows that are there lack {lacked[0]}")
    known = dict(snapshot.metadata.configuration)
    action = {**snapshot.metadata.action, "schemaString": text, "configuration": known}
    there = replace(snapshot, metadata=Metadata.of(action))
    wanted = {**known, **properties}
    if not new and wanted == known and struct == json.loads(snapshot.metadata.schema_string):
        return ()
    if columns.mapping_needed(schema):
        wanted[columns.MODE] = "name"
    return _described(there, schema, wanted)


def with_properties(snapshot: Snapshot, properties: Mapping[str, str]) -> tuple[Action, ...]:
    """Actions that set properties; none if they are set."""
    known = dict(snapshot.metadata.configuration)
    if properties.items() <= known.items():
        return ()
    return _described(snapshot, pa.schema([]), {**known, **properties})


def _names(struct: Mapping[str, Any]) -> set[str]:
    return {field["name"] for field in struct["fields"]}


def _described(
    snapshot: Snapshot, new: pa.Schema, properties: Mapping[str, str]
) -> tuple[Action, ...]:
    text, told = columns.described(new, properties, snapshot.metadata.schema_string)
    described = {**snapshot.metadata.action, "schemaString": text, "configuration": told}
    wanted = protocol.ours(to_arrow(text), told)["protocol"]
    better = protocol.upgraded(snapshot.protocol, wanted)
    first: tuple[Action, ...] = () if better is None else ({"protocol": better},)
    return (*first, {"metaData": described})
