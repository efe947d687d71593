"""Defines the format protocol: decodes batches of messages into changes, in Arrow.

A format turns `RAW` rows into `DECODED` rows and does nothing else. It uses no clock and no server,
and no message content makes it fail. A message may hold one change or several. One that holds none
becomes a row of `Op.SKIPPED`, so each message has a row. The column `message` is the number of the
batch's row from which each change came.

`MessageText` reads and writes one message for a person. A format whose messages are not text
exports such a class as `MESSAGE_TEXT` in its module. For all others the message is the text.

Formats without schema events describe columns with the rows. They share one payload: names, types
in the words of the source's server, and the notation of the values. The dialect interprets the
types.

`heartbeat_number` reads the heartbeat number from a row of the heartbeat table, in any format.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import FormatError
from pipeline.model import LOG_PARTS, Op, Ordering, Origin, ShardId
from pipeline.schema.model import ColumnDescription, Notation, SchemaMessage, TableDescription
from pipeline.settings import RegistrySettings

Schemas = Mapping[int, str | None]  # texts by number; None if the registry knows none

TIME = pa.timestamp("us", "UTC")
RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
OPTIONAL = {  # further columns that a format may request; null if none was written
    "timestamp": TIME,
    "headers": pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
}
DECODED = pa.schema(
    [
        ("message", pa.int32()),
        ("op", pa.string()),
        ("shard", pa.string()),
        ("key_values", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("changed", pa.list_(pa.string())),
        ("left_out", pa.list_(pa.string())),
        ("at", TIME),
        *((part, pa.int64()) for part in LOG_PARTS),
        ("snapshot", pa.string()),
        ("origin", pa.int32()),
        ("tx", pa.struct([("id", pa.string()), ("total_order", pa.int64())])),
        ("schema_id", pa.int32()),
        ("error", pa.string()),
        ("raw", pa.binary()),
    ]
)


SENDER_SAYS = "its sender could not conform it: "
"""Begins an error that continues with its sender's own words, which may hold a value."""

AROUND = "around"
"""Marks a live change whose transaction may have begun before the preceding snapshot."""

INCREMENTAL = "incremental"
"""Marks a row that a signal requested beside the stream: of some tables, or some rows."""


@dataclass(frozen=True, slots=True)
class Tx:
    """The source's transaction of a change, and the change's number in it."""

    id: str
    total_order: int | None = None


LONGEST_NAME = 64  # characters of a database or table of MySQL
LONG_NAME = f"the name of the database or table is longer than {LONGEST_NAME} characters"


def require_short_names(shard: ShardId) -> None:
    """Reject names that no table of MySQL can have.

    Raises:
        FormatError: a name is too long.
    """
    if max(len(shard.database), len(shard.relation)) > LONGEST_NAME:
        raise FormatError(LONG_NAME)


@dataclass(frozen=True, slots=True)
class Decoded:
    """One change, or one message without a change. A missing value is None.

    ``shard``       ``str(ShardId)``; ``key_values`` is a JSON array of the key values' texts.
    ``before``/``after``  the row (or, for begin, end and ddl, the whole payload): the JSON as it
                    was sent, with its blanks, escapes and numbers.
                    ``before`` of a delete has at least its key's columns, or its table is held.
    ``at``          the time of the source's clock, for display only.
    ``log``         the number of the log's file; ``pos`` and ``row`` are the position in it.
    ``changed``     the columns that ``after`` holds, if it holds only some; None: all.
    ``left_out``    then the other columns of the row. A name may have passed to the values of
                    another column, which only all columns together show.
    ``schema_id``   number of the columns in a schema event that only describes the columns of the
                    rows after it. Such an event lands if it has news.
    ``tx``          its transaction; for a schema change it is the name that a redelivery has, too.
    ``snapshot``    which snapshot row this is; None for a live change. ``AROUND`` for a live change
                    after the snapshot that may have a lower order. ``INCREMENTAL`` for a row that
                    surely was not read by a snapshot of all tables.
    ``error``       why it could not be decoded. Then ``raw`` holds the value's bytes, and only
                    ``shard`` and ``key_values`` may be known, too.
    """

    op: Op
    shard: str | None = None
    key_values: str | None = None
    before: str | None = None
    after: str | None = None
    changed: tuple[str, ...] | None = None
    left_out: tuple[str, ...] | None = None
    at: datetime | None = None
    log: int | None = None
    pos: int | None = None
    row: int | None = None
    snapshot: str | None = None
    origin: Origin = Origin.LIVE
    tx: Tx | None = None
    schema_id: int | None = None
    error: str | None = None
    raw: bytes | None = None


class Format(Protocol):
    """A way in which changes are written into messages; the fields of its class are its settings.

    ``sent_once = True``: the log never sends a read change again.
    """

    @property
    def ordering(self) -> Ordering:
        """Return what ``log``, ``pos`` and ``row`` of its changes are: a log position, or less.

        With `Ordering.OFFSET` a message has none of them. The order is the message's offset and the
        change's index in the message; schema events that rows describe (with ``schema_id``) take no
        index.
        """
        ...

    @property
    def notation(self) -> Notation:
        """Return the notation in which the values of rows are written."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names in ``OPTIONAL`` that it reads; each costs time on every message."""
        ...

    @property
    def registry(self) -> RegistrySettings | None:
        """Return where the schemas are that messages name; None if they name none."""
        ...

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Return topics of a source other than *prefix* (its schema changes) and those of rows."""
        ...

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read a change of ``Op.DDL``; *payload* is its ``after``.

        Raises:
            FormatError: it is not of this format.
        """
        ...

    def columns_payload(self, table: TableDescription) -> str | None:
        """Return a payload that ``schema_change`` reads as columns described by rows of *table*.

        None if only statements describe columns.
        """
        ...

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        """Return the numbers of the schemas in the registry that decoding *batch* needs."""
        ...

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode every message of *batch*; an invalid one becomes ``Op.ERROR`` with its bytes.

        A message without a change becomes ``Op.SKIPPED``: a message without a row counts as lost.

        In: ``RAW``, then ``columns``, and all schemas that it ``needs``. Out: ``DECODED``,
        ``message`` rising. An invalid message affects no other.

        Raises:
            ValueError: the batch holds more text than one Arrow column can; nothing else.
        """
        ...


def build_batch(changes: Iterable[tuple[int, Decoded]]) -> pa.RecordBatch:
    """Build ``DECODED`` rows from changes, each with the number of its message, in order."""
    pairs = tuple(changes)
    columns = {name: [read(one) for _, one in pairs] for name, read in _READERS.items()}
    columns["message"] = [message for message, _ in pairs]
    columns["tx"] = [tx and {"id": tx.id, "total_order": tx.total_order} for tx in columns["tx"]]
    arrays = [pa.array(columns[field.name], field.type) for field in DECODED]
    return pa.RecordBatch.from_arrays(arrays, schema=DECODED)


_READERS = {field.name: attrgetter(field.name) for field in fields(Decoded)}


def split_skipped(decoded: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split rows of ``DECODED`` from those of messages without a change (``Op.SKIPPED``)."""
    skipped = pc.equal(decoded["op"], str(Op.SKIPPED))
    if not skipped.true_count:
        return decoded, decoded.slice(0, 0)
    return decoded.filter(pc.invert(skipped)), decoded.filter(skipped)


class MessageText(Protocol):
    """Reads and writes single messages; *schemas* hold that of the message."""

    def schema_of(self, value: bytes) -> int | None:
        """Return the number of the schema that a message names; None if it names none."""
        ...

    def readable(self, value: bytes, schemas: Schemas) -> str:
        """Return the message as a text.

        Raises:
            FormatError: it cannot be read.
        """
        ...

    def written(self, text: str, schemas: Schemas, number: int | None) -> bytes:
        """Return *text* as a message, in schema *number*.

        Raises:
            FormatError: it does not fit the schema, or the schema is unknown.
        """
        ...


class PlainText:
    """Reads and writes messages that are texts already."""

    def schema_of(self, value: bytes) -> None:
        """Return None: it names no schema."""

    def readable(self, value: bytes, schemas: Schemas) -> str:
        """Return the message as it is; FormatError if it is not UTF-8."""
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise FormatError("it is no text") from error

    def written(self, text: str, schemas: Schemas, number: int | None) -> bytes:
        """Return *text* as it is."""
        return text.encode()


class PayloadColumn(msgspec.Struct, omit_defaults=True):
    """A column in a payload; ``type`` is the server's name of the type, and how it is sent.

    ``default`` is the default as JSON; other columns may have defaults that were not sent.
    """

    name: str
    type: str
    nullable: bool = False
    length: int | None = None
    scale: int | None = None
    default: str | None = None
    labels: tuple[str, ...] = ()
    notation: Notation = Notation.CONNECT


class ColumnsPayload(msgspec.Struct):
    """The payload of columns that rows describe: names of the table, key columns and columns."""

    rows_of: tuple[str, str]
    key: tuple[str, ...]
    columns: tuple[PayloadColumn, ...]


@lru_cache(maxsize=1024)  # each message of a table describes the same columns
def encode_columns(table: TableDescription) -> str:
    """Return the payload of columns that rows of *table* would send."""
    columns = tuple(
        PayloadColumn(
            name=one.name,
            type=one.type,
            nullable=one.nullable,
            length=one.length,
            scale=one.scale,
            default=one.default,
            labels=one.values,
            notation=one.notation,
        )
        for one in table.columns
    )
    payload = ColumnsPayload((table.shard.database, table.shard.relation), table.key, columns)
    return msgspec.json.encode(payload).decode()


def is_columns_payload(payload: str) -> bool:
    """Return whether `encode_columns` made the payload."""
    return payload.startswith('{"rows_of":')


def decode_columns(payload: str) -> SchemaMessage:
    """Read a payload of `encode_columns`.

    Raises:
        FormatError: it is no such payload.
    """
    try:
        decoded = _COLUMNS.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"this payload describes no columns: {error!r}") from error
    columns = tuple(
        ColumnDescription(
            name=one.name,
            type=one.type,
            length=one.length,
            scale=one.scale,
            nullable=one.nullable,
            default=one.default,
            position=number,
            values=one.labels,
            notation=one.notation,
        )
        for number, one in enumerate(decoded.columns, start=1)
    )
    table = TableDescription(ShardId(*decoded.rows_of), "alter", columns, decoded.key)
    return SchemaMessage("", tables=(table,))


_COLUMNS = msgspec.json.Decoder(ColumnsPayload)


_WHOLE = re.compile(r"[0-9]{1,18}")  # other numbers would stop the whole batch


def heartbeat_number(after: str | None, source: str) -> int | None:
    """Return the number of a heartbeat of *source*; None for another source's row, or no number."""
    try:
        row = json.loads(after or "null")
    except (ValueError, RecursionError):
        return None
    own = isinstance(row, dict) and row.get("source") == source
    number = str(row.get("n")) if own else ""
    return int(number) if _WHOLE.fullmatch(number) else None
