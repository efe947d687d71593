"""How are columns kept that rows tell of themselves, where no statement does?

One payload for all formats that tell columns so: names, types in the words of the source's
server, and in which notation the values are written.  What they mean the dialect knows.  Pure.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from pipeline.errors import FormatError
from pipeline.formats.format import Decoded
from pipeline.model import Op, ShardId
from pipeline.schema.model import ColumnTold, Notation, SchemaMessage, TableTold


class ToldColumn(msgspec.Struct, omit_defaults=True):
    """A column as a payload keeps it; ``type`` is the server's name for it, and how it is sent.

    ``default`` is the default as it was written in JSON: there may be others that are not told.
    """

    name: str
    type: str
    nullable: bool = False
    length: int | None = None
    scale: int | None = None
    default: str | None = None
    labels: tuple[str, ...] = ()
    notation: Notation = Notation.CONNECT


class ToldRows(msgspec.Struct):
    """The payload of a schema that rows tell of themselves: names, columns and key's columns."""

    rows_of: tuple[str, str]
    key: tuple[str, ...]
    columns: tuple[ToldColumn, ...]


@lru_cache(maxsize=1024)  # each message of a table tells the same again
def columns_payload(table: TableTold) -> str:
    """What rows of *table* would tell, if there were any."""
    columns = tuple(
        ToldColumn(
            name=one.name,
            type=one.type,
            nullable=one.nullable,
            length=one.length,
            scale=one.scale,
            default=one.default,
            labels=one.values,
            notation=one.notation,
        )
        for one in table.columns
    )
    told = ToldRows((table.shard.database, table.shard.relation), table.key, columns)
    return msgspec.json.encode(told).decode()


def told_before(
    found: Sequence[Decoded], table: TableTold | None, last: dict[str, TableTold]
) -> Iterator[Decoded]:
    """The changes *found* in a message; before them the *table* that it tells, if that is news.

    *last* is what each shard's message told last, and learns.  Columns stand at the place of the
    first row, for they hold for it.
    """
    if table is not None and found and last.get(shard := str(table.shard)) != table:
        last[shard], text, first = table, columns_payload(table), found[0]
        yield Decoded(
            Op.DDL,
            shard,
            after=text,
            at=first.at,
            log=first.log,
            pos=first.pos,
            row=first.row,
            schema_id=zlib.crc32(text.encode()) >> 1,
            origin=first.origin,
            snapshot=first.snapshot,
        )
    yield from found


def is_told(payload: str) -> bool:
    """Whether a payload is of the kind that is made here."""
    return payload.startswith('{"rows_of":')


def read(payload: str) -> SchemaMessage:
    """Read a payload back.

    Raises:
        FormatError: it was not made here.
    """
    try:
        told = _TOLD.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"these are no columns that rows told: {error!r}") from error
    columns = tuple(
        ColumnTold(
            name=one.name,
            type=one.type,
            length=one.length,
            scale=one.scale,
            nullable=one.nullable,
            default=one.default,
            position=number,
            values=one.labels,
            notation=one.notation,
        )
        for number, one in enumerate(told.columns, start=1)
    )
    table = TableTold(ShardId(*told.rows_of), "alter", columns, told.key)
    return SchemaMessage("", tables=(table,))


_TOLD = msgspec.json.Decoder(ToldRows)
