"""Maxwell's JSON: rows of MySQL, statements with the columns they leave, steps of a bootstrap.

Its messages tell their place in the source's log where Maxwell writes it
(``output_binlog_position``); otherwise, and only then, their order is their offset.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pipeline.errors import ConfigError, FormatError
from pipeline.formats import told_columns
from pipeline.formats.format import Decoded, Format, Schemas, rows
from pipeline.formats.maxwell import message as messages
from pipeline.formats.maxwell import statements
from pipeline.model import Op, Ordering
from pipeline.schema.model import Notation, SchemaMessage, TableTold


@dataclass(frozen=True, slots=True)
class MaxwellJson:
    """``positions``: messages say where they stand in the log; one that does not is quarantined.

    ``statements``: the topic of its statements (``ddl_kafka_topic``), if that is one of its own,
    as it may be where orders are places in the log.
    """

    positions: bool = True
    statements: str = ""
    notation: ClassVar[Notation] = Notation.PLAIN
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Refuse what would put statements among rows by offsets of another topic."""
        if self.statements and not self.positions:
            raise ConfigError(
                f"format_options.statements: those of a topic of their own ({self.statements}) "
                "have no order among rows without positions; take ddl_kafka_topic out of Maxwell's "
                "config, and statements out of this one, or let Maxwell write places"
            )

    @property
    def ordering(self) -> Ordering:
        """By the log, if the messages say where they stand in it."""
        return Ordering.LOG if self.positions else Ordering.OFFSET

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """That of its statements."""
        return (self.statements,) if self.statements else ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """A statement and the table that it leaves; or columns that were read with rows."""
        if told_columns.is_told(payload):
            return told_columns.read(payload)
        return statements.read(payload)

    def columns_payload(self, table: TableTold) -> None:
        """Statements tell columns."""

    def needs(self, _: pa.RecordBatch) -> frozenset[int]:
        """None: a message says all itself."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        sent = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
        return rows(
            (number, one)
            for number, (key, value) in enumerate(sent)
            for one in self._changes(key, value)
        )

    def _changes(self, key: bytes | None, value: bytes | None) -> Sequence[Decoded]:
        shard = None
        try:
            message = messages.read(value)
            shard = message.shard
            return messages.changes(message, key, value or b"", positions=self.positions)
        except FormatError as error:
            return (Decoded(Op.ERROR, shard, error=str(error), raw=value),)


FORMAT: type[Format] = MaxwellJson
