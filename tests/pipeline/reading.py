"""How schema changes of MySQL by Debezium are read, as the product puts it together."""

from collections.abc import Mapping

from pipeline.formats.debezium_json import DebeziumJson
from pipeline.schema.reading import SchemaReading
from pipeline.sources.mysql.dialect import MYSQL

READING = SchemaReading(DebeziumJson().schema_change, MYSQL)
parse, read = READING.changes, READING.told


def readings(*sources: str) -> Mapping[str, SchemaReading]:
    """The same one for each source."""
    return dict.fromkeys(sources, READING)
