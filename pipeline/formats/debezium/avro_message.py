"""How does a person read one message in Avro, and write it anew?  As JSON, by its schema."""

import pyarrow as pa

from pipeline.errors import FormatError
from pipeline.formats.debezium import avro
from pipeline.formats.debezium.avro_writing import message
from pipeline.formats.format import Schemas

UNSAID = "the message named no schema: say in which one it is to be written (--schema)"


class AvroMessage:
    """Messages in Confluent's wire format."""

    def schema_of(self, value: bytes) -> int | None:
        """The number that it begins with; None if it is no message of that format."""
        return next(iter(avro.numbers(pa.array([value], pa.binary()))), None)

    def readable(self, value: bytes, schemas: Schemas) -> str:
        """Its JSON; FormatError if it does not fit its schema."""
        sent = pa.array([value], pa.binary())
        found = avro.json_texts(sent, schemas, unicode_names=False)
        if found.wrong:
            raise FormatError(found.wrong[0])
        told: bytes = found.column[0].as_py()
        return told.decode()

    def written(self, text: str, schemas: Schemas, number: int | None) -> bytes:
        """*text*, which is JSON, in schema *number*."""
        if number is None:
            raise FormatError(UNSAID)
        schema = schemas.get(number)
        if schema is None:
            raise FormatError(f"the registry knows no schema {number}; name another one (--schema)")
        return message(text, number, schema)
