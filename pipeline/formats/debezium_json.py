"""Debezium's JSON for MySQL and MariaDB, with and without the schema around each message."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pipeline.formats.debezium import batch as messages
from pipeline.formats.debezium import schema_changes
from pipeline.formats.debezium.envelope import HEARTBEAT_TOPIC
from pipeline.formats.format import Format
from pipeline.schema.schema_change import SchemaMessage


@dataclass(frozen=True, slots=True)
class DebeziumJson:
    """No settings: a message tells by itself whether its schema is around it."""

    positioned: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ()

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Its transactions' and its own heartbeats'."""
        return (f"{prefix}.transaction", f"{HEARTBEAT_TOPIC}.{prefix}")

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read what a connector with ``include.schema.changes`` sends."""
        return schema_changes.read(payload)

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``, one row a message; see :class:`Format`."""
        return messages.decode(batch)


FORMAT: type[Format] = DebeziumJson
