"""A format that ends the process it runs in, as memory that has run out does."""

import os
from dataclasses import dataclass

import pyarrow as pa

from pipeline.formats.format import Schemas
from tests.pipeline.formats.plain_format import PlainFormat


@dataclass(frozen=True, slots=True)
class Fatal(PlainFormat):
    columns: tuple[str, ...] = ()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        os._exit(9)
