"""Decodes Debezium's JSON for MySQL, MariaDB and Postgres, with or without schema."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pipeline.formats import format as told_columns
from pipeline.formats.debezium import batch as messages
from pipeline.formats.debezium import schema_changes
from pipeline.formats.debezium.connector import UNAVAILABLE, Placeholder
from pipeline.formats.debezium.envelope import HEARTBEAT_TOPIC
from pipeline.formats.format import Format, Schemas
from pipeline.model import Ordering
from pipeline.schema.model import Notation, SchemaMessage, TableDescription


@dataclass(frozen=True, slots=True)
class DebeziumJson:
    """Each message names its connector, and may be wrapped with its schema.

    ``unavailable`` is the connector's ``unavailable.value.placeholder``, if it is not the default.
    """

    unavailable: str = UNAVAILABLE
    ordering: ClassVar[Ordering] = Ordering.LOG
    notation: ClassVar[Notation] = Notation.CONNECT
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Return the topics of its transactions and of its own heartbeats."""
        return (f"{prefix}.transaction", f"{HEARTBEAT_TOPIC}.{prefix}")

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read a message of ``include.schema.changes``, or columns of rows without that setting."""
        if told_columns.is_columns_payload(payload):
            return told_columns.decode_columns(payload)
        return schema_changes.read_schema_change(payload)

    def columns_payload(self, table: TableDescription) -> str:
        """Return the columns of *table* as rows without ``include.schema.changes`` have them."""
        return told_columns.encode_columns(table)

    def needs(self, _: pa.RecordBatch) -> frozenset[int]:
        """Return none: a message needs no schema."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        return messages.decode_batch(batch, Placeholder(self.unavailable))


FORMAT: type[Format] = DebeziumJson
