"""Decodes Debezium's messages in Avro, with schemas from a registry by number.

A message becomes the JSON that Debezium's JSON converter would have written, and is decoded as
that. So a change has the same content and spelling in the change log with either converter.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.debezium import avro
from pipeline.formats.debezium.avro import AvroMessage
from pipeline.formats.debezium.connector import UNAVAILABLE
from pipeline.formats.debezium.schema_changes import add_schema_events
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import RAW, Decoded, Format, MessageText, Schemas, build_batch
from pipeline.model import Op, Ordering
from pipeline.schema.model import Notation, SchemaMessage, TableDescription
from pipeline.settings import RegistrySettings


@dataclass(frozen=True, slots=True)
class DebeziumAvro:
    """``registry`` is where the connector's converter registers its schemas.

    ``unicode_names``: the connector writes names with
    ``field.name.adjustment.mode=avro_unicode``, which keeps every name; if false, names are taken
    as they are. ``unavailable`` as in :class:`DebeziumJson`.
    """

    registry: RegistrySettings
    unicode_names: bool = True
    unavailable: str = UNAVAILABLE
    """The connector's `unavailable.value.placeholder`, if it is not the default."""
    ordering: ClassVar[Ordering] = Ordering.LOG
    notation: ClassVar[Notation] = Notation.CONNECT
    columns: ClassVar[tuple[str, ...]] = ()

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Return the topics of its transactions and of its own heartbeats."""
        return self._json.added_topics(prefix)

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read the payload, which is stored as JSON."""
        return self._json.schema_change(payload)

    def columns_payload(self, table: TableDescription) -> str:
        """Return what `DebeziumJson` does."""
        return self._json.columns_payload(table)

    def needs(self, batch: pa.RecordBatch) -> frozenset[int]:
        """Return the numbers of the schemas of keys and values in ``RAW``."""
        return avro.schema_numbers(batch["key"]) | avro.schema_numbers(batch["value"])

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        key = avro.convert_to_json(batch["key"], schemas, unicode_names=self.unicode_names)
        value = avro.convert_to_json(batch["value"], schemas, unicode_names=self.unicode_names)
        wrong = {number: f"value: {why}" for number, why in value.wrong.items()}
        wrong |= {number: f"key: {why}" for number, why in key.wrong.items()}
        texts = {"key": key.column, "value": value.column}
        arrays = [texts[name] if name in texts else batch[name] for name in RAW.names]
        json = pa.RecordBatch.from_arrays(arrays, schema=RAW)
        if not wrong:
            return self._with_schema_events(
                _raw(self._json.decode(json, {}), batch), json, batch, schemas
            )
        good = pa.array(np.setdiff1d(np.arange(len(batch)), list(wrong)), pa.int32())
        found = self._json.decode(json.take(good), {})
        at = found.schema.get_field_index("message")
        found = found.set_column(at, found.schema.field(at), good.take(found["message"]))
        errors = build_batch((n, Decoded(Op.ERROR, error=wrong[n])) for n in sorted(wrong))
        return self._with_schema_events(_raw(_merged(found, errors), batch), json, batch, schemas)

    def _with_schema_events(
        self,
        found: pa.RecordBatch,
        json: pa.RecordBatch,
        batch: pa.RecordBatch,
        schemas: Schemas,
    ) -> pa.RecordBatch:
        """Add the columns that schemas of Postgres rows describe, before these rows."""
        descriptions = avro.read_row_schemas(
            batch["value"], schemas, unicode_names=self.unicode_names
        )
        if not descriptions:
            return found
        keys = avro.first_texts(batch["key"], json["key"])
        return add_schema_events(found, json.set_column(0, RAW.field("key"), keys), descriptions)

    @property
    def _json(self) -> DebeziumJson:
        return DebeziumJson(self.unavailable)


def _raw(found: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Set ``raw`` of undecodable messages to the bytes as sent, not to their JSON."""
    odd = pc.equal(found["op"], str(Op.ERROR))
    if not odd.true_count:
        return found
    sent = batch["value"].take(found["message"])
    at = found.schema.get_field_index("raw")
    raw = pc.if_else(odd, sent, pa.scalar(None, pa.binary()))
    return found.set_column(at, found.schema.field(at), raw)


def _merged(*parts: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of all parts in the order of their messages."""
    table = pa.Table.from_batches(parts)
    order = np.argsort(table["message"].to_numpy(), kind="stable")
    (batch,) = table.take(pa.array(order)).combine_chunks().to_batches()
    return batch


FORMAT: type[Format] = DebeziumAvro
MESSAGE_TEXT: type[MessageText] = AvroMessage
