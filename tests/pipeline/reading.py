"""How schema changes of MySQL by Debezium are read, as the product puts it together."""

from collections.abc import Mapping

from pipeline.formats.debezium_json import DebeziumJson
from pipeline.model import Order
from pipeline.schema.history import SchemaChange, SchemaReader
from pipeline.schema.model import SchemaEvent
from pipeline.sources.mysql.dialect import MYSQL

READING = SchemaReader(DebeziumJson().schema_change, MYSQL)


def read(payload: str, order: Order) -> SchemaEvent:
    """What a message tells as a whole."""
    return READING.read(payload, order)[0]


def parse(payload: str, order: Order) -> tuple[SchemaChange, ...]:
    """What it tells of each table."""
    return READING.read(payload, order)[1]


def readings(*sources: str) -> Mapping[str, SchemaReader]:
    """The same one for each source."""
    return dict.fromkeys(sources, READING)
