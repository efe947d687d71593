"""Canal's flat JSON: rows of MySQL as its own texts, statements, and no word of their place.

The order of a change is its message's offset and its place in the message; so all of a source
must go through one partition, or each table through one and its statements with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pyarrow as pa

from pipeline.errors import ConfigError, FormatError
from pipeline.formats import told_columns
from pipeline.formats.canal import message as messages
from pipeline.formats.canal.column_types import column
from pipeline.formats.canal.message import FlatMessage
from pipeline.formats.format import Decoded, Format, Schemas, rows
from pipeline.formats.told_columns import told_before
from pipeline.model import Op, Ordering, ShardId
from pipeline.schema.model import Notation, SchemaMessage, TableTold

ZONES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


@dataclass(frozen=True, slots=True)
class CanalJson:
    """``zone``: of canal's process, which it writes every TIMESTAMP in; only UTC is read."""

    zone: str
    ordering: ClassVar[Ordering] = Ordering.OFFSET
    notation: ClassVar[Notation] = Notation.TEXTS
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Refuse what would make other instants of a TIMESTAMP."""
        if self.zone not in ZONES:
            raise ConfigError(
                f"format_options.zone: is {self.zone}, and a TIMESTAMP is read as UTC; run canal "
                "with -Duser.timezone=UTC, and say zone: UTC"
            )

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """None: statements come with the rows."""
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """A statement, without its columns; or the columns that rows tell behind it."""
        if told_columns.is_told(payload):
            return told_columns.read(payload)
        return messages.schema_change(payload)

    def columns_payload(self, table: TableTold) -> str:
        """As rows tell them."""
        return told_columns.columns_payload(table)

    def needs(self, _: pa.RecordBatch) -> frozenset[int]:
        """None: a message says all itself."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        return rows(_decoded(batch["value"].to_pylist()))


def _decoded(values: list[bytes | None]) -> Iterator[tuple[int, Decoded]]:
    """Changes by message; before a row its columns, where they are others than its table's last."""
    last: dict[str, TableTold] = {}
    for number, value in enumerate(values):
        shard = None
        try:
            message = messages.read(value)
            shard = None if message.shard is None else str(message.shard)
            found = messages.changes(message, value or b"")
        except FormatError as error:
            yield number, Decoded(Op.ERROR, shard, error=str(error), raw=value)
            continue
        yield from ((number, one) for one in told_before(found, _columns(message), last))


def _columns(message: FlatMessage) -> TableTold | None:
    """What a message tells of its table's columns; None if nothing."""
    shard, types = message.shard, message.mysqlType
    if message.isDdl or shard is None or not types:
        return None
    return _table(shard, tuple(types.items()), message.key)


@lru_cache(maxsize=1024)  # each message tells them again
def _table(shard: ShardId, types: tuple[tuple[str, str], ...], key: tuple[str, ...]) -> TableTold:
    told = tuple(column(name, text, at) for at, (name, text) in enumerate(types, start=1))
    return TableTold(shard, "alter", told, key)


FORMAT: type[Format] = CanalJson
