"""Debezium's JSON for MySQL, MariaDB and Postgres, with and without the schema around a message."""

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
    """Each message names its connector and may have its schema around it.

    ``unavailable``: the connector's ``unavailable.value.placeholder``, where it is another.
    """

    unavailable: str = UNAVAILABLE
    ordering: ClassVar[Ordering] = Ordering.LOG
    notation: ClassVar[Notation] = Notation.CONNECT
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Its transactions' and its own heartbeats'."""
        return (f"{prefix}.transaction", f"{HEARTBEAT_TOPIC}.{prefix}")

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read what a connector with ``include.schema.changes`` sends, or rows of one without."""
        if told_columns.is_columns_payload(payload):
            return told_columns.decode_columns(payload)
        return schema_changes.read_schema_change(payload)

    def columns_payload(self, table: TableDescription) -> str:
        """As rows of a connector without ``include.schema.changes`` tell them."""
        return told_columns.encode_columns(table)

    def needs(self, _: pa.RecordBatch) -> frozenset[int]:
        """None: a message says all itself."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        return messages.decode_batch(batch, Placeholder(self.unavailable))


FORMAT: type[Format] = DebeziumJson
