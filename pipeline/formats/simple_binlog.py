"""Decodes SimpleBinlog, the messages of Ctrip's pipeline: one row per message.

Changes are ordered by ``binlogOffset``. That is a time and a number of six digits within it,
counted by the collector: a sequence from its clock, not a position in the source log. So it proves
less. Where it falls below a value that its partition has shown, landing holds the source: a clock
was set back, or another collector took over.

A row of ``source`` MOCK was selected from the source and sent again. Its time is that of the query,
less five minutes, so that live events win. Here it is a replay, which loses against a live change
at equal order. ``content`` holds the columns after an INSERT or UPDATE, and before a DELETE.

Messages describe neither keys nor columns; the setting ``tables`` does.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import ClassVar

import msgspec
import pyarrow as pa
from msgspec import Raw

from pipeline.errors import ConfigError, FormatError
from pipeline.formats import format as told_columns
from pipeline.formats import json_text
from pipeline.formats.canal_types import describe_column, find_type_fault
from pipeline.formats.format import INCREMENTAL, Decoded, Format, Schemas
from pipeline.formats.messages import (
    Changes,
    decode_messages,
    read_envelope,
    read_key,
    time_of_millis,
)
from pipeline.model import Op, Ordering, Origin, ShardId
from pipeline.schema.model import Notation, SchemaMessage, TableDescription

OPS = {"INSERT": Op.CREATE, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
BINLOG, MOCK = "BINLOG", "MOCK"
OFFSET = re.compile(r"([0-9]{1,18})([0-9]{6})")

NO_VALUE = "the message is empty; SimpleBinlog has none such"
BAD_VALUE = "value is no SimpleBinlog: no JSON object in UTF-8, or a field of a wrong kind"
UNKNOWN_KIND = "eventType must be INSERT, UPDATE or DELETE"
UNKNOWN_SOURCE = "source is neither BINLOG nor MOCK"
NO_SHARD = "schemaName or tableName is missing"
NO_OFFSET = "binlogOffset is no time with a sequence of six digits"
NO_CONTENT = "content is missing, or no object"
NO_KEY = "a column of the table's key is missing in content, or is null, a list or an object"


class SimpleMessage(msgspec.Struct, rename="camel"):
    """The fields that are read; ``binlog_offset`` may be a number or its text."""

    binlog_offset: int | str | None = None
    execute_time: int | None = None
    event_type: str | None = None
    schema_name: str | None = None
    table_name: str | None = None
    source: str = BINLOG
    content: Raw = json_text.NULL

    @property
    def shard(self) -> str | None:
        """Return the shard; None if the message names no table."""
        both = self.schema_name and self.table_name
        return str(ShardId(self.schema_name or "", self.table_name or "")) if both else None

    @property
    def place(self) -> tuple[int, int] | None:
        """Return time and sequence; None if it has none."""
        found = OFFSET.fullmatch(str(self.binlog_offset))
        return None if found is None else (int(found[1]), int(found[2]))

    @property
    def at(self) -> datetime | None:
        """Return when it was executed by the source's clock; a MOCK has a time by its sender."""
        return time_of_millis(self.execute_time)


@dataclass(frozen=True, slots=True)
class SimpleTable:
    """The ``key`` of a table, and its ``columns`` as SHOW COLUMNS shows them."""

    key: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject key columns that do not exist, because each row would be quarantined."""
        if gone := [one for one in self.key if self.columns and one not in self.columns]:
            known = ", ".join(self.columns)
            raise ConfigError(f"key: no column {', '.join(gone)}; columns names {known}")


NO_TABLE = SimpleTable(())


@dataclass(frozen=True, slots=True)
class SimpleBinlog:
    """``tables``: regular expressions on the whole ``database.table``, with key and columns.

    The first match counts. A table without a match has no key and no columns.
    """

    tables: Mapping[str, SimpleTable] = field(default_factory=dict)
    ordering: ClassVar[Ordering] = Ordering.SEQUENCE
    notation: ClassVar[Notation] = Notation.TEXTS
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Reject invalid expressions, and unknown column types, which would be stored as texts."""
        for pattern, table in self.tables.items():
            try:
                re.compile(pattern)
            except re.error as error:
                msg = f"format_options.tables: {pattern!r} is not a regular expression: {error}"
                raise ConfigError(msg) from error
            for name, kind in table.columns.items():
                if why := find_type_fault(kind):
                    at = f"format_options.tables.{pattern}.columns.{name}"
                    raise ConfigError(f"{at}: {why}")

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Return none: there are only rows."""
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read columns of the settings; a message has none."""
        return told_columns.decode_columns(payload)

    def columns_payload(self, table: TableDescription) -> str:
        """Return the columns of *table*, as `encode_columns` does."""
        return told_columns.encode_columns(table)

    def needs(self, _: pa.RecordBatch) -> frozenset[int]:
        """Return none: a message needs no schema."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        values = batch["value"].to_pylist()
        table_of = cache(self._table)

        def changes(_: int, message: SimpleMessage) -> Changes:
            known, table = table_of(message.shard)
            return (_change(message, known.key),), table

        return decode_messages(
            values,
            lambda at: read_envelope(values[at], _MESSAGE, empty=NO_VALUE, bad=BAD_VALUE),
            changes,
        )

    def _table(self, shard: str | None) -> tuple[SimpleTable, TableDescription | None]:
        named = (one for name, one in self.tables.items() if re.fullmatch(name, shard or ""))
        known = next(named, NO_TABLE)
        return known, _described(shard, known)


def _described(shard: str | None, known: SimpleTable) -> TableDescription | None:
    if shard is None or not known.columns:
        return None
    types = enumerate(known.columns.items(), start=1)
    columns = tuple(describe_column(name, text, at) for at, (name, text) in types)
    return TableDescription(ShardId.parse(shard), "alter", columns, known.key)


def _change(message: SimpleMessage, names: Sequence[str]) -> Decoded:
    op, place, shard = OPS.get(message.event_type or ""), message.place, message.shard
    row = json_text.read_row(_content(message.content))
    if op is None:
        raise FormatError(UNKNOWN_KIND)
    if message.source not in (BINLOG, MOCK):
        raise FormatError(UNKNOWN_SOURCE)
    if shard is None:
        raise FormatError(NO_SHARD)
    if place is None:
        raise FormatError(NO_OFFSET)
    if row is None:
        raise FormatError(NO_CONTENT)
    text = json_text.row_text(_content(message.content))
    live = message.source == BINLOG
    return Decoded(
        op=op if live or op is Op.DELETE else Op.READ,
        shard=shard,
        key_values=read_key(row, names, NO_KEY),
        before=text if op is Op.DELETE else None,
        after=None if op is Op.DELETE else text,
        at=message.at,
        log=place[0],
        pos=place[1],
        row=0,
        snapshot=None if live else INCREMENTAL,
        origin=Origin.LIVE if live else Origin.REPLAY,
    )


def _content(raw: Raw) -> Raw:
    """Return the object, also if it was sent as a text."""
    if not bytes(raw).startswith(b'"'):
        return raw
    try:
        return Raw(_TEXT.decode(raw).encode())
    except (ValueError, RecursionError) as error:
        raise FormatError(NO_CONTENT) from error


_MESSAGE = msgspec.json.Decoder(SimpleMessage)
_TEXT = msgspec.json.Decoder(str)

FORMAT: type[Format] = SimpleBinlog
