"""Decodes rows of files; a row's position in the files identifies it, unless its log has a key.

Its order is the offset that the ledger gave it. A line that is no JSON object is quarantined with
its bytes. A file that was not taken, or was changed after that, is quarantined, too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import ClassVar

import msgspec
import pyarrow as pa

from pipeline.errors import FormatError
from pipeline.files.content import (
    DAY,
    FILE,
    HOUR,
    LINE,
    ColumnsHead,
    FaultHead,
    HeartbeatHead,
    MessageHead,
    RowsHead,
    decode_head,
)
from pipeline.formats import json_text
from pipeline.formats.format import Decoded, Format, Schemas, build_batch
from pipeline.formats.json_text import Row, quote_text
from pipeline.model import Op, Ordering, ShardId
from pipeline.schema.model import ColumnDescription, Notation, SchemaMessage, TableDescription

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OWN = (FILE, LINE, DAY, HOUR)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of files, without settings: the head of a message describes all."""

    ordering: ClassVar[Ordering] = Ordering.OFFSET
    notation: ClassVar[Notation] = Notation.PLAIN
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None
    sent_once: ClassVar[bool] = True

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Return none: columns come with the rows."""
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """Return the columns that a log has from here on."""
        try:
            head = decode_head(payload.encode())
        except (msgspec.MsgspecError, ValueError) as error:
            raise FormatError(f"no columns of files: {error}") from error
        if not isinstance(head, ColumnsHead):
            raise FormatError(f"no columns of files: {type(head).__name__}")
        columns = tuple(
            ColumnDescription(name, kind, position=at, notation=Notation.PLAIN)
            for at, (name, kind) in enumerate(head.columns, start=1)
        )
        shard = ShardId.parse(head.shard)
        table = TableDescription(shard, head.kind, columns, head.key)
        return SchemaMessage(f"{head.kind} {shard}", tables=(table,))

    def columns_payload(self, table: TableDescription) -> None:
        """Return None: the ledger describes columns."""

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        """Return none: no schema is needed."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        every = zip(
            batch["key"].to_pylist(),
            batch["value"].to_pylist(),
            batch["offset"].to_pylist(),
            strict=True,
        )
        return build_batch(
            (number, one)
            for number, (key, value, offset) in enumerate(every)
            for one in _changes(key, value, offset)
        )


def _changes(key: bytes | None, value: bytes | None, offset: int) -> Iterator[Decoded]:
    try:
        head = _head(key)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        yield Decoded(Op.ERROR, error=f"no message of files: {error}", raw=value)
        return
    match head:
        case RowsHead():
            yield from _row(head, value or b"", offset - head.first)
        case ColumnsHead():
            yield Decoded(Op.DDL, head.shard, after=(key or b"").decode())
        case HeartbeatHead():
            row = json.dumps({"id": 1, "source": head.source, "n": head.n})
            yield Decoded(Op.UPDATE, head.shard, '["1"]', after=row)
        case FaultHead():
            why = f"file {head.file}: {head.why}"
            yield Decoded(Op.ERROR, head.shard, error=why, raw=key)


def _row(head: RowsHead, value: bytes, line: int) -> Iterator[Decoded]:
    """Yield the change of a line; ``Op.SKIPPED`` for a blank line."""
    if not value.strip():
        yield Decoded(Op.SKIPPED)
        return
    row = json_text.read_row(msgspec.Raw(value.strip()))
    at = EPOCH + timedelta(microseconds=head.at)
    where = f"line {line + 1} of {head.file}"
    if row is None:
        error = f"{where} is no JSON object"
        yield Decoded(Op.ERROR, head.shard, error=error, raw=value, at=at)
        return
    whole = row | _place(head, line)
    try:
        key = json_text.key_of_row(whole, head.key)
    except (KeyError, ValueError) as error:
        key_columns = ", ".join(head.key)
        why = f"{where}: a column of the key ({key_columns}) is missing or has no value: {error}"
        yield Decoded(Op.ERROR, head.shard, error=why, raw=value, at=at)
        return
    yield Decoded(Op.CREATE, head.shard, key, after=json_text.write_row(whole), at=at)


def _place(head: RowsHead, line: int) -> Row:
    """Return the row's position; it replaces columns of these names in the row."""
    day = head.day.replace("_", "-")
    values = (quote_text(head.file), str(line), quote_text(day), str(int(head.hour)))
    return {name: msgspec.Raw(one.encode()) for name, one in zip(OWN, values, strict=True)}


@lru_cache(maxsize=1024)  # all rows of a file have one head
def _head(key: bytes | None) -> MessageHead:
    return decode_head(key)


FORMAT: type[Format] = FileRows
