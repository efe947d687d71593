"""DBEvents, the change events of Uber's pipeline: rows in Avro with their metadata beside them.

A topic a table, ``prefix.database.table``.  One field of each record holds the metadata, all others
are columns; it stays beside them as one more column, in JSON.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from pipeline.errors import ConfigError, FormatError
from pipeline.formats import told_columns
from pipeline.formats.dbevents import columns, event
from pipeline.formats.dbevents.event import EventShape
from pipeline.formats.debezium import avro
from pipeline.formats.debezium.avro_message import AvroMessage
from pipeline.formats.format import Decoded, Format, Schemas, rows
from pipeline.formats.message_text import MessageText
from pipeline.model import Op, Ordering, ShardId
from pipeline.schema.model import Notation, SchemaMessage, TableTold
from pipeline.settings import RegistrySettings

NO_VALUE = "the message is empty: a row that goes is an event with is_deleted"
NO_SHARD = "the topic's name is no PREFIX.DATABASE.TABLE"
PARTS = 3


@dataclass(frozen=True, slots=True)
class DbEventsAvro:
    """``registry`` is where its schemas are, ``metadata`` the name of the field that holds it.

    ``keys``: regular expressions on the whole ``database.table``, and its key's columns; the first
    that matches counts, and the row key is one for all others.  ``changing``: fields of metadata
    that another sending of an event may tell otherwise; they are not kept beside the row.
    """

    registry: RegistrySettings
    """Where the schemas are."""
    metadata: str = "hadoop_metadata"
    """Name of the field that holds the metadata."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changing: tuple[str, ...] = ()
    ordering: ClassVar[Ordering] = Ordering.SEQUENCE
    notation: ClassVar[Notation] = Notation.PLAIN
    columns: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Refuse what is no expression, and what every row is told by."""
        if needed := sorted({"ref_key", "row_key"} & {*self.changing}):
            told = f"{needed[0]!r} says which version of which row an event is"
            raise ConfigError(f"format_options.changing: {told}; leave it out")
        for pattern in self.keys:
            try:
                re.compile(pattern)
            except re.error as error:
                msg = f"format_options.keys: {pattern!r} is no regular expression: {error}"
                raise ConfigError(msg) from error

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """None: there are only rows."""
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """Columns that the schemas of rows tell."""
        return told_columns.read(payload)

    def columns_payload(self, table: TableTold) -> str:
        """As schemas tell them."""
        return told_columns.columns_payload(table)

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        """Numbers of the schemas that values of ``RAW`` are written with."""
        return avro.numbers(batch["value"])

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        return rows(self._decoded(batch, schemas))

    def _decoded(self, batch: pa.RecordBatch, schemas: Schemas) -> Iterator[tuple[int, Decoded]]:
        """Changes by message; before a row its columns, where they are others than before."""
        values, topics = batch["value"].to_pylist(), batch["topic"].to_pylist()
        read = avro.json_texts(batch["value"], schemas, unicode_names=False)
        last: dict[str, TableTold] = {}
        for number, text in enumerate(read.column.to_pylist()):
            shape = self._shape(topics[number])
            try:
                found = event.change(_whole(text, read.wrong.get(number)), _known(shape))
            except FormatError as error:
                shard = None if shape is None else shape.shard
                yield number, Decoded(Op.ERROR, shard, error=str(error), raw=values[number])
                continue
            schema = schemas.get(int.from_bytes(values[number][1 : avro.HEADER], "big"))
            told = None if schema is None else columns.table(schema, _known(shape))
            yield from ((number, one) for one in told_columns.told_before((found,), told, last))

    def _shape(self, topic: str) -> EventShape | None:
        parts = topic.split(".")
        if len(parts) != PARTS or not all(parts):
            return None
        shard = str(ShardId(parts[1], parts[2]))
        named = (key for pattern, key in self.keys.items() if re.fullmatch(pattern, shard))
        return EventShape(shard, self.metadata, next(named, ()), self.changing)


def _known(shape: EventShape | None) -> EventShape:
    if shape is None:
        raise FormatError(NO_SHARD)
    return shape


def _whole(text: bytes | None, wrong: str | None) -> bytes:
    if wrong is not None or text is None:
        raise FormatError(wrong or NO_VALUE)
    return text


FORMAT: type[Format] = DbEventsAvro
MESSAGE_TEXT: type[MessageText] = AvroMessage
