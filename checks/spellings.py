"""How does the log spell an integer of a key, and how does the mirror?

The mirror has numbers; a key of the log may bring one in a code of its collector's, such as the
base64 of a BIGINT UNSIGNED.  Who looks for the digits there finds nothing, and takes a row that
moves for one that is lost.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from checks.world import LogKey, World
from pipeline.formats.json_text import canonical, parse
from pipeline.model import Shard, Table
from pipeline.schema.model import TableSchema


def in_log(table: Table, world: World, shard: Shard, id_: int) -> tuple[str, ...]:
    """Every key as which the change log may have the row of that id; digits if no schema is known.

    For a table whose key is its ``id_column``.
    """
    schema = world.log().schema(shard)
    column = schema.column(str(table.id_column)) if schema else None
    texts = (str(id_),) if column is None else column.dialect.spellings(column, id_)
    unique = table.unique_across_shards
    return tuple(canonical([text], shard.source, shard.name, unique=unique) for text in texts)


def in_mirror(table: Table, world: World, keys: Sequence[LogKey]) -> list[LogKey]:
    """*keys* with their integers in digits; one that is none stays as it is."""
    log = world.log()
    schemas = {shard: log.schema(shard) for shard in {key.shard for key in keys}}
    return [replace(key, key=_in_digits(table, key, schemas[key.shard])) for key in keys]


def _in_digits(table: Table, key: LogKey, schema: TableSchema | None) -> str:
    parts = parse(key.key)
    before, texts = parts[: len(parts) - len(table.key)], parts[len(parts) - len(table.key) :]
    if schema is None or len(texts) != len(table.key):
        return key.key
    told = [
        text if table.restates(name) else _digits(schema, name, text)
        for name, text in zip(table.key, texts, strict=True)
    ]
    return canonical([*before, *told], "", "", unique=True)


def _digits(schema: TableSchema, name: str, text: str | None) -> str | None:
    column = schema.column(name)
    if column is None or not column.dialect.whole(column):
        return text
    value = column.dialect.values(column, pa.array([text], pa.string()))[0].as_py()
    return text if value is None else str(int(value))
