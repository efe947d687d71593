"""What did a table's log hold up to a version?  Read from its checkpoint.

Found by listing: ``_last_checkpoint`` may be gone or old, and who believes it then reads files that
left long ago.  Classic (one file), in parts, and v2 (a file that names its sidecars).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.lake.entries import FOLDER, Action, damaged, parse
from pipeline.lake.store import Store

_WHOLE = re.compile(r"(\d{20})\.checkpoint(?:\.[0-9a-fA-F-]{36})?\.(?:parquet|json)")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_KINDS = ("protocol", "metaData", "txn", "add", "sidecar")  # tombstones are of no use here
_PARSED = {"stats_parsed", "partitionValues_parsed"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: the files it is made of, sidecars aside."""

    version: int
    names: tuple[str, ...]


def complete(names: Sequence[str]) -> list[Checkpoint]:
    """Complete checkpoints among the names of a log's folder, newest first."""
    found = [Checkpoint(int(m[1]), (m[0],)) for m in map(_WHOLE.fullmatch, names) if m]
    parts: dict[tuple[int, int], list[str]] = defaultdict(list)
    for match in map(_PART.fullmatch, names):
        if match:
            parts[int(match[1]), int(match[3])].append(match[0])
    found += [
        Checkpoint(version, tuple(own)) for (version, n), own in parts.items() if len(own) == n
    ]
    return sorted(found, key=lambda one: one.version, reverse=True)


def read(store: Store, checkpoint: Checkpoint) -> list[Action]:
    """Protocol, metadata, transactions and active files as of the checkpoint's version.

    Raises:
        FileNotFoundError: a part of it is gone.
        HeldError: ``log_damaged``, a part of it cannot be read.
    """
    actions: list[Action] = []
    for name in checkpoint.names:
        actions += _read(store, f"{FOLDER}/{name}")
    for sidecar in [action["sidecar"] for action in actions if "sidecar" in action]:
        file = str(sidecar["path"]).rpartition("/")[2]
        actions += _read(store, f"{FOLDER}/_sidecars/{file}")
    return actions


def _read(store: Store, name: str) -> Iterator[Action]:
    if name.endswith(".json"):
        yield from parse(store.uri, name, store.read(name))
        return
    try:
        with store.source(name) as source:
            file = pq.ParquetFile(source)
            table = file.read(columns=_columns(file.schema_arrow))
    except pa.ArrowException as error:
        raise damaged(store.uri, f"{name} cannot be read ({error})") from error
    for kind in table.column_names:
        for value in _values(table[kind].combine_chunks()):
            yield {kind: value}


def _columns(schema: pa.Schema) -> list[str]:
    """All that is needed; what is there twice, as JSON and parsed, is read as JSON."""
    wanted = [kind for kind in _KINDS if kind in schema.names and kind != "add"]
    if "add" in schema.names:
        fields = {field.name for field in schema.field("add").type}
        spare = _PARSED if "stats" in fields else _PARSED - {"stats_parsed"}
        wanted += [f"add.{name}" for name in sorted(fields - spare)]
    return wanted


def _values(column: pa.StructArray) -> Iterator[dict[str, Any]]:
    """One dict a valid row, without what is null; by columns, since rows take ten times as long."""
    rows = column.filter(pc.is_valid(column))
    names = [field.name for field in rows.type]
    fields = [_texts(rows.field(i)) for i in range(len(names))]
    for values in zip(*fields, strict=True):
        row = {name: v for name, v in zip(names, values, strict=True) if v is not None}
        if (parsed := row.pop("stats_parsed", None)) is not None and "stats" not in row:
            row["stats"] = _stats(parsed)
        yield row


def _texts(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if not pa.types.is_nested(column.type):
        return values
    return [_plain(value, column.type) for value in values]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Maps as dicts, structs without what is null."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(value[field.name], field.type) for field in kind}
        return {name: inner for name, inner in fields.items() if inner is not None}
    return value


def _stats(parsed: Mapping[str, Any]) -> str:
    """Statistics that were kept parsed only, as JSON; bounds whose text differs are left out."""
    return msgspec.json.encode(_safe(parsed)).decode()


def _safe(values: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            kept[name] = _safe(value)
        elif isinstance(value, bool | int | str) or type(value) is date:
            kept[name] = value
    return kept
