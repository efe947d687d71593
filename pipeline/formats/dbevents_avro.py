"""Decodes DBEvents, the change events of Uber's pipeline: rows in Avro with metadata.

Each table has a topic, `prefix.database.table`. One field of each record holds the metadata, and
all others are columns. The metadata becomes one more column, in JSON.

The reference key is the version of a row, and here its order. It is a sequence of the producer and
not a position in the source log, so it proves less. Where it falls within a partition, landing
holds the source. `changelog_columns` lists the columns that changed, each with its version. A
version below that of the event is stored with the row, so that the row is merged column by column.
Without `changelog_columns` the event holds the whole row.

Two kinds of events are quarantined with their reason. The first are events that their producer
could not conform. The second are forced updates, which are to be applied although they are older:
nothing here shows which change should win over them.

Column types are those of the Avro schema: numbers, texts and bytes. A type that contains others is
JSON. A nullable field is null in older rows. A field with another default is not filled in.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from msgspec import Raw

from pipeline.errors import ConfigError, FormatError
from pipeline.formats import format as told_columns
from pipeline.formats import json_text
from pipeline.formats.debezium import avro
from pipeline.formats.debezium.avro import AvroMessage
from pipeline.formats.format import SENDER_SAYS, Decoded, Format, MessageText, Schemas
from pipeline.formats.json_text import quote_text
from pipeline.formats.messages import Changes, decode_messages, time_of_millis
from pipeline.model import COLUMN_VERSIONS, Op, Ordering, ShardId
from pipeline.schema.model import ColumnDescription, Notation, SchemaMessage, TableDescription
from pipeline.settings import RegistrySettings

ROW_KEY = "row_key"

NO_ROW = "the event is no record of columns beside its metadata"
NO_METADATA = "its metadata is missing, or a field of it is of a wrong kind"
NO_KEY = "its row key is missing, or a column of the table's key is missing, null or a list"
NO_COLUMN = "changelog_columns names a column that the event does not have: {name}"
NEWER = "changelog_columns names a version above the event's own"
TAKEN = f"a column of it is named {COLUMN_VERSIONS}, which Sluice uses for the versions of columns"
FORCED = (
    "ForceUpdate: it is to be applied though it may be older; send the row again in a new version"
)


class ChangedColumns(msgspec.Struct):
    """Columns that changed together, and their version."""

    ref_key: int
    hadoop_changelog_fields: list[str]
    name: str = ""


class EventMetadata(msgspec.Struct):
    """The metadata of a row; ``timestamp`` is in milliseconds."""

    ref_key: int
    row_key: Raw = json_text.NULL
    changelog_columns: list[ChangedColumns] | None = None
    timestamp: int | None = None
    is_deleted: bool = False
    error_exception: str | None = None
    force_update: bool = False

    @property
    def at(self) -> datetime | None:
        """Return when the event was made; None if that is out of range."""
        return time_of_millis(self.timestamp)


@dataclass(frozen=True, slots=True)
class EventShape:
    """The form of a table's events: its shard, the name of the metadata field, and its key.

    Without a ``key`` the row key is the key, as an additional column. ``changing`` are metadata
    fields that are not stored, because they may differ when an event is sent again.
    """

    shard: str
    metadata: str
    key: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """Return the names of the key's columns."""
        return self.key or (ROW_KEY,)


def decode_change(text: bytes, shape: EventShape) -> Decoded:
    """Return the change in an event; *text* is its JSON.

    Raises:
        FormatError: it is no valid event, or must not be applied.
    """
    row = json_text.read_row(Raw(text))
    if row is None:
        raise FormatError(NO_ROW)
    metadata = _metadata(row.get(shape.metadata, json_text.NULL))
    if metadata.error_exception is not None:
        raise FormatError(f"{SENDER_SAYS}{metadata.error_exception}")
    if metadata.force_update:
        raise FormatError(FORCED)
    if shape.changing:
        row = row | {shape.metadata: _lasting(row[shape.metadata], shape.changing)}
    if COLUMN_VERSIONS in row:
        raise FormatError(TAKEN)
    row, key = _keyed(row, metadata, shape)
    if metadata.is_deleted:
        before = json_text.write_row({name: row[name] for name in shape.keyed_by})
        return _placed(Op.DELETE, shape, key, metadata, before=before)
    if not metadata.changelog_columns:
        return _placed(Op.UPDATE, shape, key, metadata, after=json_text.write_row(row))
    return _placed(Op.UPDATE, shape, key, metadata, **_some(row, metadata, shape))


def _metadata(raw: Raw) -> EventMetadata:
    try:
        return _METADATA.decode(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(NO_METADATA) from error


def _lasting(metadata: Raw, changing: Sequence[str]) -> Raw:
    """Return *metadata* without fields that change when the event is sent again."""
    fields = json_text.read_row(metadata) or {}
    kept = {name: one for name, one in fields.items() if name not in changing}
    return Raw(json_text.write_row(kept).encode())


def _keyed(
    row: json_text.Row, metadata: EventMetadata, shape: EventShape
) -> tuple[json_text.Row, str]:
    """Return the row with its key's columns, and the key."""
    if not shape.key:
        row = row | {ROW_KEY: _row_key(metadata.row_key)}
    try:
        return row, json_text.key_of_row(row, shape.keyed_by)
    except (KeyError, ValueError) as error:
        raise FormatError(NO_KEY) from error


def _row_key(raw: Raw) -> Raw:
    """Return the row key as a text, even if it was sent as a number."""
    found = json_text.read_exactly('{"v":' + json_text.row_text(raw) + "}")
    try:
        text = None if found is None else json_text.write_text(found.get("v"))
    except ValueError as error:
        raise FormatError(NO_KEY) from error
    if text is None:
        raise FormatError(NO_KEY)
    return Raw(quote_text(text).encode())


def _some(row: json_text.Row, metadata: EventMetadata, shape: EventShape) -> dict[str, Any]:
    """Return the columns that changed, with the versions of older ones."""
    versions = _versions(metadata, row)
    if any(one > metadata.ref_key for one in versions.values()):
        raise FormatError(NEWER)
    beside = (*shape.keyed_by, shape.metadata)
    columns = {name: row[name] for name in dict.fromkeys((*beside, *versions))}
    late = {n: v for n, v in versions.items() if v < metadata.ref_key and n not in beside}
    if late:
        columns[COLUMN_VERSIONS] = Raw(msgspec.json.encode(late))
    others = tuple(name for name in row if name not in columns)
    return {"after": json_text.write_row(columns), "changed": tuple(columns), "left_out": others}


def _versions(metadata: EventMetadata, row: Mapping[str, Raw]) -> dict[str, int]:
    """Return versions by column; if a column is named twice, the newest counts."""
    newest: dict[str, int] = {}
    for one in metadata.changelog_columns or ():
        for name in one.hadoop_changelog_fields:
            if name not in row:
                raise FormatError(NO_COLUMN.format(name=name))
            newest[name] = max(one.ref_key, newest.get(name, one.ref_key))
    return newest


def _placed(op: Op, shape: EventShape, key: str, metadata: EventMetadata, **images: Any) -> Decoded:
    return Decoded(
        op, shape.shard, key, at=metadata.at, log=0, pos=metadata.ref_key, row=0, **images
    )


_METADATA = msgspec.json.Decoder(EventMetadata)


TYPES = {
    **{"int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE"},
    **{"boolean": "TINYINT", "string": "LONGTEXT", "enum": "LONGTEXT"},
    **{"bytes": "LONGBLOB", "fixed": "LONGBLOB"},
}
OTHER = "JSON"


@lru_cache(maxsize=1024)  # all messages of a table use the same schema
def describe_table(schema: str, shape: EventShape) -> TableDescription | None:
    """Describe the table of *schema*; None unless it is a record."""
    try:
        fields = msgspec.json.decode(schema)["fields"]
        declared = [(str(one["name"]), one["type"]) for one in fields]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        return None
    added = [*([] if shape.key else [(ROW_KEY, "string")]), (COLUMN_VERSIONS, ["null", "map"])]
    columns = tuple(_column(*one, at) for at, one in enumerate([*declared, *added], start=1))
    return TableDescription(ShardId.parse(shape.shard), "alter", columns, shape.keyed_by)


def _column(name: str, kind: Any, position: int) -> ColumnDescription:
    branches = kind if isinstance(kind, list) else [kind]
    others = [one for one in branches if one != "null"]
    return ColumnDescription(
        name=name,
        type=_type(others[0]) if len(others) == 1 else OTHER,
        nullable="null" in branches,
        position=position,
        notation=Notation.PLAIN,
    )


def _type(kind: Any) -> str:
    while isinstance(kind, dict):
        kind = kind.get("type")
    return TYPES.get(kind, OTHER) if isinstance(kind, str) else OTHER


NO_VALUE = "the message is empty; a deleted row must arrive as an event with is_deleted"
NO_SHARD = "the topic's name is not PREFIX.DATABASE.TABLE"
PARTS = 3


@dataclass(frozen=True, slots=True)
class DbEventsAvro:
    """``registry`` is where its schemas are, ``metadata`` the name of the metadata field.

    ``keys``: regular expressions on the whole ``database.table``, with the key's columns; the first
    match counts, and the row key is the key of all other tables. ``changing``: metadata fields that
    may differ when an event is sent again; they are not stored with the row.
    """

    registry: RegistrySettings
    """The registry that has the schemas."""
    metadata: str = "hadoop_metadata"
    """Name of the field that holds the metadata."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changing: tuple[str, ...] = ()
    ordering: ClassVar[Ordering] = Ordering.SEQUENCE
    notation: ClassVar[Notation] = Notation.PLAIN
    columns: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Reject invalid regular expressions, and fields that identify a row."""
        if needed := sorted({"ref_key", "row_key"} & {*self.changing}):
            problem = f"{needed[0]!r} identifies the row of an event and its version"
            raise ConfigError(f"format_options.changing: {problem}; leave it out")
        for pattern in self.keys:
            try:
                re.compile(pattern)
            except re.error as error:
                msg = f"format_options.keys: {pattern!r} is no regular expression: {error}"
                raise ConfigError(msg) from error

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Return none: there are only rows."""
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read the columns that the schemas of rows describe."""
        return told_columns.decode_columns(payload)

    def columns_payload(self, table: TableDescription) -> str:
        """Return the columns of *table* as schemas describe them."""
        return told_columns.encode_columns(table)

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        """Return the numbers of the schemas of values in ``RAW``."""
        return avro.schema_numbers(batch["value"])

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        values, topics = batch["value"].to_pylist(), batch["topic"].to_pylist()
        read = avro.convert_to_json(batch["value"], schemas, unicode_names=False)
        texts = read.column.to_pylist()

        def changes(at: int, shape: EventShape) -> Changes:
            found = decode_change(_whole(texts[at], read.wrong.get(at)), shape)
            schema = schemas.get(int.from_bytes(values[at][1 : avro.HEADER], "big"))
            return (found,), None if schema is None else describe_table(schema, shape)

        return decode_messages(values, lambda at: self._shape(topics[at]), changes)

    def _shape(self, topic: str) -> EventShape:
        parts = topic.split(".")
        if len(parts) != PARTS or not all(parts):
            raise FormatError(NO_SHARD)
        shard = str(ShardId(parts[1], parts[2]))
        named = (key for pattern, key in self.keys.items() if re.fullmatch(pattern, shard))
        return EventShape(shard, self.metadata, next(named, ()), self.changing)


def _whole(text: bytes | None, wrong: str | None) -> bytes:
    if wrong is not None or text is None:
        raise FormatError(wrong or NO_VALUE)
    return text


FORMAT: type[Format] = DbEventsAvro
MESSAGE_TEXT: type[MessageText] = AvroMessage
