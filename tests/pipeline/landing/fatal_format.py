"""A format that ends the process it runs in, as memory that has run out does."""

import os
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pipeline.formats.format import Schemas
from pipeline.schema.schema_change import SchemaMessage, TableTold


@dataclass(frozen=True, slots=True)
class Fatal:
    positioned: bool = False
    columns: tuple[str, ...] = ()
    registry: ClassVar[None] = None

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        return SchemaMessage(payload)

    def columns_payload(self, table: TableTold) -> None: ...

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        os._exit(9)
