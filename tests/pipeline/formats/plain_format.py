"""What most formats of tests have in common: rows, and nothing else to tell."""

from typing import ClassVar

import pyarrow as pa

from pipeline.model import Ordering
from pipeline.schema.model import Notation, SchemaMessage, TableDescription


class PlainFormat:
    """No place in a log, no registry, no topics or columns beside those of rows."""

    __slots__ = ()
    ordering: ClassVar[Ordering] = Ordering.OFFSET
    notation: ClassVar[Notation] = Notation.CONNECT
    registry: ClassVar[None] = None

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        return SchemaMessage(payload)

    def columns_payload(self, table: TableDescription) -> None: ...

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        return frozenset()
