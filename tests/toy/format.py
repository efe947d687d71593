"""The toy's messages: several changes in one, and no word of where they stand in a log."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pipeline.errors import FormatError
from pipeline.formats.format import Decoded, Format, Schemas, build_batch
from pipeline.model import Op, Ordering, ShardId
from pipeline.schema.model import ColumnDescription, Notation, SchemaMessage, TableDescription


@dataclass(frozen=True, slots=True)
class ToyFormat:
    """No settings."""

    ordering: ClassVar[Ordering] = Ordering.OFFSET
    notation: ClassVar[Notation] = Notation.CONNECT
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        try:
            told = json.loads(payload)
            columns = tuple(ColumnDescription(name, kind) for name, kind in told["columns"].items())
            shard = ShardId.parse(told["table"])
            tables = (TableDescription(shard, told["kind"], columns, (told["key"],)),)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"no schema change of the toy: {error!r}") from error
        return SchemaMessage(f"{told['kind']} {shard}", tables=tables)

    def columns_payload(self, table: TableDescription) -> None: ...

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        values = enumerate(batch["value"].to_pylist())
        return build_batch((number, one) for number, value in values for one in _changes(value))


NOTHING = [Decoded(Op.SKIPPED)]


def _changes(value: bytes | None) -> Iterator[Decoded]:
    try:
        found = [_change(one) for one in json.loads(value or b"")["changes"]] or NOTHING
    except (ValueError, KeyError, TypeError) as error:
        found = [Decoded(Op.ERROR, error=f"no message of the toy: {error!r}", raw=value)]
    yield from found


def _change(told: Mapping[str, Any]) -> Decoded:
    shard = str(ShardId.parse(told["table"]))
    key = json.dumps([str(told["key"])])
    match told["kind"]:
        case "put":
            return Decoded(Op.UPDATE, shard, key, after=json.dumps(told["row"]))
        case "delete":
            return Decoded(Op.DELETE, shard, key, before=json.dumps(told["row"]))
        case "create" | "alter":
            return Decoded(Op.DDL, shard, after=json.dumps(told))
    raise ValueError(f"kind {told['kind']!r}")


FORMAT: type[Format] = ToyFormat
