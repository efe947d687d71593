"""Which columns does a schema of Avro tell, where nothing else does?

A connector without schema changes (Postgres) tells columns by the schema that its rows are written
with.  Connect's converters keep in it what Connect's own schema says (``connect.name``,
``connect.type``, ``connect.parameters``; seen with Apicurio's 2.6, and so documented of
Confluent's ``connect.meta.data``): it is turned back into the one that the JSON converter would
put around a row.  Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from pipeline.formats.debezium.avro_schema import plain_name

POSTGRES = "io.debezium.connector.postgresql.Source"
AFTER, SOURCE = "after", "source"
SPELLED = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes", "record": "struct"}


@lru_cache(maxsize=1024)  # tables that are written to at the same time; one is some 10 kB
def row_schema(schema: str, *, unicode_names: bool) -> Raw | None:
    """The schema around rows of this Avro *schema*; None of what is no row of Postgres."""
    try:
        envelope = msgspec.json.decode(schema)
        fields = {one["name"]: one["type"] for one in envelope["fields"]}
        if _branch(fields[SOURCE])["connect.name"] != POSTGRES:
            return None
        space = envelope.get("namespace", "")
        named = {name: one for one in _records(fields.values()) for name in _names(one, space)}
        row = _branch(fields[AFTER])
        record = named[row] if isinstance(row, str) else row
        told = [_column(one, unicode_names=unicode_names) for one in record["fields"]]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    after = {"field": AFTER, "type": "struct", "optional": True, "fields": told}
    return Raw(msgspec.json.encode({"type": "struct", "fields": [after]}))


def _column(field: Mapping[str, Any], *, unicode_names: bool) -> dict[str, Any]:
    kind = _branch(field["type"])
    about = kind if isinstance(kind, dict) else {"type": kind}
    spelled = about.get("connect.type") or SPELLED.get(about["type"], about["type"])
    found: dict[str, Any] = {
        "field": plain_name(field["name"]) if unicode_names else field["name"],
        "type": spelled,
        "optional": isinstance(field["type"], list) and "null" in field["type"],
    }
    if "connect.name" in about:
        found["name"] = about["connect.name"]
    if "connect.parameters" in about:
        found["parameters"] = about["connect.parameters"]
    if field.get("default") is not None:
        found["default"] = field["default"]
    return found


def _branch(schema: Any) -> Any:
    """The type of what is not null."""
    if not isinstance(schema, list):
        return schema
    (one,) = (one for one in schema if one != "null")
    return one


def _records(schemas: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Records that are the types of fields; later fields only name them."""
    for schema in schemas:
        one = _branch(schema)
        if isinstance(one, dict) and one["type"] == "record":
            yield one


def _names(record: Mapping[str, Any], space: str) -> tuple[str, str]:
    """By which others in the same namespace name it, and by which all others."""
    name = str(record["name"]).rpartition(".")[2]
    own = str(record["name"]).rpartition(".")[0] or record.get("namespace", space)
    return name, f"{own}.{name}"
