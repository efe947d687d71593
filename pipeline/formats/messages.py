"""Decodes the messages of a batch one by one, for formats with few fields.

A message that cannot be decoded becomes ``Op.ERROR`` with its bytes and affects no other. A table
that messages describe is described again only where its columns change.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

import pyarrow as pa
from msgspec.json import Decoder

from pipeline.errors import FormatError
from pipeline.formats import json_text
from pipeline.formats.format import (
    LONGEST_NAME,
    Decoded,
    build_batch,
    encode_columns,
    require_short_names,
)
from pipeline.model import Op, ShardId
from pipeline.schema.model import TableDescription

END_OF_TIME = 253_402_300_800_000  # milliseconds: the year 10000


class Envelope(Protocol):
    """A message with its envelope read."""

    @property
    def shard(self) -> str | None:
        """Return the text of the shard; None if the message names none."""
        ...


E = TypeVar("E")
M = TypeVar("M", bound=Envelope)
Changes = tuple[Sequence[Decoded], TableDescription | None]


def decode_messages(
    values: Sequence[bytes | None],
    read: Callable[[int], M],
    changes: Callable[[int, M], Changes],
) -> pa.RecordBatch:
    """Decode messages by their numbers to ``DECODED``.

    *changes* returns the changes of a message, and the table that it describes. Both functions
    raise FormatError for a message that is not of the format.
    """
    return build_batch(_decode_each(values, read, changes))


def _decode_each(
    values: Sequence[bytes | None],
    read: Callable[[int], M],
    changes: Callable[[int, M], Changes],
) -> Iterator[tuple[int, Decoded]]:
    last: dict[str, TableDescription] = {}
    for number, value in enumerate(values):
        shard = None
        try:
            message = read(number)
            if (named := message.shard) is not None and len(named) > LONGEST_NAME:
                require_short_names(ShardId.read(named))
            shard = named
            found, table = changes(number, message)
        except FormatError as error:
            yield number, Decoded(Op.ERROR, shard, error=str(error), raw=value)
            continue
        if table is not None and found and last.get(name := str(table.shard)) != table:
            last[name] = table
            yield number, _describe(table, found[0])
        yield from ((number, one) for one in found)


def _describe(table: TableDescription, first: Decoded) -> Decoded:
    """Make a schema event at the position of the *first* row, for which the columns are valid."""
    text = encode_columns(table)
    return Decoded(
        Op.DDL,
        str(table.shard),
        after=text,
        at=first.at,
        log=first.log,
        pos=first.pos,
        row=first.row,
        schema_id=zlib.crc32(text.encode()) >> 1,
        origin=first.origin,
        snapshot=first.snapshot,
    )


def read_envelope(value: bytes | None, decoder: Decoder[E], *, empty: str, bad: str) -> E:
    """Read an envelope in UTF-8; *empty* and *bad* are the errors of no value and of a bad one.

    Raises:
        FormatError: *value* is not such an envelope.
    """
    if value is None:
        raise FormatError(empty)
    try:
        value.decode("utf-8")
        return decoder.decode(value)
    except (ValueError, RecursionError) as error:
        raise FormatError(bad) from error


def read_key(row: json_text.Row, names: Sequence[str], wrong: str) -> str | None:
    """Return a JSON array of the texts of the key's columns; None for a table without a key.

    Raises:
        FormatError: *wrong*: a column is missing, or is null, a list or an object.
    """
    if not names:
        return None
    try:
        return json_text.key_of_row(row, names)
    except (KeyError, ValueError) as error:
        raise FormatError(wrong) from error


def whole_row(op: Op, shard: str, key: str | None, text: str, at: datetime | None) -> Decoded:
    """Make the change of one row from a message with one image: before a delete, else after."""
    if op is Op.DELETE:
        return Decoded(op, shard, key, before=text, at=at)
    return Decoded(op, shard, key, after=text, at=at)


def updated_row(before: Decoded, after: Decoded) -> tuple[Decoded, ...]:
    """Make an update of a delete *before* and a create *after*; return both if the key changed."""
    if before.key_values != after.key_values:
        return before, after
    return (
        Decoded(
            Op.UPDATE,
            after.shard,
            after.key_values,
            before=before.before,
            after=after.after,
            at=after.at,
        ),
    )


def time_of_millis(millis: int | None) -> datetime | None:
    """Return the time of the source's clock; None without one, and if it is out of range."""
    if millis is None or not 0 <= millis < END_OF_TIME:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
