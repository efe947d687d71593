"""Defines the format protocol: decodes batches of messages into changes, in Arrow.

A format turns `RAW` rows into `DECODED` rows and does nothing else. It uses no clock and no
server, and no message content makes it fail. A message may hold one change or several. One that
holds none becomes a row of `Op.SKIPPED`, so each message has a row. The column `message` says from
which row of the batch each change came.

`MessageText` reads and writes one message for a person. A format whose messages are not text
exports such a class as `MESSAGE_TEXT` in its module. For all others the message is the text.

Formats without schema events describe columns with the rows. They share one payload: names,
types in the words of the source's server, and the notation of the values. The dialect
interprets the types.

`number_of` reads the heartbeat number from a row of the heartbeat table, in any format.
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

Schemas = Mapping[int, str | None]  # texts by their numbers; None where the registry knows none

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
OPTIONAL = {  # what a format may ask for besides; None where none was written
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
    """The source's transaction a change belongs to, and the change's place in it."""

    id: str
    total_order: int | None = None


LONGEST_NAME = 64  # characters of a database or table of MySQL
LONG_NAME = f"the name of the database or table is longer than {LONGEST_NAME} characters"


def require_short_names(shard: ShardId) -> None:
    """Refuse names that no table of MySQL can have.

    Raises:
        FormatError: one is longer.
    """
    if max(len(shard.database), len(shard.relation)) > LONGEST_NAME:
        raise FormatError(LONG_NAME)


@dataclass(frozen=True, slots=True)
class Decoded:
    """One change, or one message without a change. A missing value is None.

    ``shard``       ``str(ShardId)``; ``key_values`` a JSON array of the key values' texts.
    ``before``/``after``  the row (or, for begin, end and ddl, the whole payload): the JSON as it
                    was sent, with its blanks, escapes and numbers.
                    A delete has at least its key's columns before, or its table is held.
    ``at``          the source's clock, for display only.
    ``log``         the number of the log's file, ``pos`` and ``row`` the place in it.
    ``changed``     the columns that ``after`` holds, where it holds some only; None: all.
    ``left_out``    then the others that the row has: a name may have gone to another column's
                    values, and only all of them together show it.
    ``schema_id``   of a schema event that only describes the columns of the rows after it: a
                    number of them.  It is landed where it says something new.
    ``tx``          its transaction; a schema change's has the name it has when it is sent again.
    ``snapshot``    which snapshot row this is; None for a live change, and ``AROUND`` for one
                    that may stand below the snapshot before it, though it came after that.
                    ``INCREMENTAL`` if it is known that no snapshot of all tables has read it.
    ``error``       why it could not be decoded; then ``raw`` holds the value's bytes, and only
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
    """A way changes are written into messages; its settings are the fields of its class.

    ``sent_once = True``: the log never sends again what was read.
    """

    @property
    def ordering(self) -> Ordering:
        """What its changes' ``log``, ``pos`` and ``row`` are: a place in the source's log, or less.

        Of `Ordering.OFFSET` a message names none: the order is the message's offset and the
        change's index in the message; schema events that rows describe (those with ``schema_id``)
        take none.
        """
        ...

    @property
    def notation(self) -> Notation:
        """In which notation the values of rows are written."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of those of ``OPTIONAL`` that it reads; each costs time on every message."""
        ...

    @property
    def registry(self) -> RegistrySettings | None:
        """Where the schemas are that messages name; None if they name none."""
        ...

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Topics of a source beside *prefix*, its schema changes', and those of rows."""
        ...

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read a change of ``Op.DDL``; *payload* is its ``after``.

        Raises:
            FormatError: it is not of this format.
        """
        ...

    def columns_payload(self, table: TableDescription) -> str | None:
        """What ``schema_change`` reads as columns that rows of *table* tell of themselves.

        None where only statements tell columns.
        """
        ...

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        """Numbers of the schemas in the registry that *batch*, as below, is decoded with."""
        ...

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode every message of *batch*; one that makes no sense is ``Op.ERROR`` with its bytes.

        One without a change is ``Op.SKIPPED``: a message without a row counts as lost.

        In: ``RAW``, then ``columns``, and all schemas that it ``needs``.
        Out: ``DECODED``, ``message`` rising.
        One odd message spoils no other.

        Raises:
            ValueError: the batch holds more text than one Arrow column can; nothing else.
        """
        ...


def build_batch(changes: Iterable[tuple[int, Decoded]]) -> pa.RecordBatch:
    """Build ``DECODED`` rows of values, each with the number of its message, in their order."""
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
        """The number of the schema that a message names; None if it names none."""
        ...

    def readable(self, value: bytes, schemas: Schemas) -> str:
        """The message as a text.

        Raises:
            FormatError: it cannot be read.
        """
        ...

    def written(self, text: str, schemas: Schemas, number: int | None) -> bytes:
        """*text* as a message, in schema *number*.

        Raises:
            FormatError: it does not fit the schema, or the schema is unknown.
        """
        ...


class PlainText:
    """A message is a text already."""

    def schema_of(self, value: bytes) -> None:
        """It names none."""

    def readable(self, value: bytes, schemas: Schemas) -> str:
        """As it is."""
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise FormatError("it is no text") from error

    def written(self, text: str, schemas: Schemas, number: int | None) -> bytes:
        """As it is."""
        return text.encode()


class PayloadColumn(msgspec.Struct, omit_defaults=True):
    """A column as a payload keeps it; ``type`` is the server's name for it, and how it is sent.

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
    """The payload of a schema that rows tell of themselves: names, columns and key's columns."""

    rows_of: tuple[str, str]
    key: tuple[str, ...]
    columns: tuple[PayloadColumn, ...]


@lru_cache(maxsize=1024)  # each message of a table tells the same again
def encode_columns(table: TableDescription) -> str:
    """What rows of *table* would tell, if there were any."""
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
    """Whether a payload is of the kind that is made here."""
    return payload.startswith('{"rows_of":')


def decode_columns(payload: str) -> SchemaMessage:
    """Read a payload back.

    Raises:
        FormatError: it was not made here.
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


_WHOLE = re.compile(r"[0-9]{1,18}")  # others would stop the whole batch


def heartbeat_number(after: str | None, source: str) -> int | None:
    """The number of a heartbeat of *source*; None if the row is not its own, or says nothing."""
    try:
        row = json.loads(after or "null")
    except (ValueError, RecursionError):
        return None
    own = isinstance(row, dict) and row.get("source") == source
    number = str(row.get("n")) if own else ""
    return int(number) if _WHOLE.fullmatch(number) else None
