"""Defines the connector protocol: the differences between the connectors of Debezium.

`envelope` reads one message at a time, `batch` a whole batch. Both ask the same connector, so each
of its rules has a form for one source block and a form for many. Both forms must agree.

A new connector is one module with one class, and an entry in `envelope.CONNECTORS`. Fields of its
source block that `SourceBlock` does not have are added there.

Values of a large column that an UPDATE does not change are not in the log. Each connector writes
its `unavailable.value.placeholder` instead. A `Placeholder` removes a column with it, unless the
row before has its value.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from pipeline.formats.format import Decoded
from pipeline.model import Op

UNAVAILABLE = "__debezium_unavailable_value"  # the default of the connector


@dataclass(frozen=True, slots=True)
class Partial:
    """A row without its missing values, the names of its columns, and those of the missing ones.

    Both names are None if nothing is missing after all.
    """

    text: str
    names: tuple[str, ...] | None
    left_out: tuple[str, ...] | None


@dataclass(frozen=True)  # without slots: its spellings are computed once
class Placeholder:
    """The connector's ``unavailable.value.placeholder``, in place of a value it did not send."""

    text: str = UNAVAILABLE

    @cached_property
    def spellings(self) -> frozenset[bytes]:
        """Return its spellings by column type: a text, bytes, or the only elements of an array."""
        data = self.text.encode()
        coded = base64.b64encode(data).decode()
        named = _uuid(data)
        numbers = list(data)
        values = (self.text, coded, [self.text], [coded], [named], numbers, {self.text: self.text})
        plain = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in values]
        quoted = json.dumps(plain[-1], ensure_ascii=False)  # a map in a text
        return frozenset(text.encode() for text in (*plain, quoted))

    @cached_property
    def signs(self) -> tuple[str, ...]:
        """Return texts; every row with a placeholder has at least one of them."""
        found = {one.decode().strip('[]{}"') for one in self.spellings}
        return tuple(sorted(one for one in found if '"' not in one))

    def left_out(self, after: str, before: str | None) -> Partial | None:
        """Return *after* without placeholders; None if it has none.

        A value in the row *before* is used, because it was not changed.

        Raises:
            ValueError: a row is no JSON object.
        """
        if not any(sign in after for sign in self.signs):
            return None
        try:
            sent = _ROW.decode(after)
            if not any(bytes(value) in self.spellings for value in sent.values()):
                return None
            known = _ROW.decode(before) if before is not None else {}
        except (msgspec.MsgspecError, UnicodeError) as error:
            msg = "a row is not built as JSON"
            raise ValueError(msg) from error
        kept = {name: self._previous_text(value, known.get(name)) for name, value in sent.items()}
        present = {name: value for name, value in kept.items() if value is not None}
        fields = (
            f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in present.items()
        )
        text = f"{{{','.join(fields)}}}"
        missing = tuple(name for name in sent if name not in present)
        return Partial(text, tuple(present), missing) if missing else Partial(text, None, None)

    def _previous_text(self, value: Raw, before: Raw | None) -> str | None:
        if bytes(value) not in self.spellings:
            return bytes(value).decode()
        if before is None or bytes(before) in self.spellings or bytes(before) == b"null":
            return None
        return bytes(before).decode()


def _uuid(data: bytes) -> str:
    """Return Java's ``UUID.nameUUIDFromBytes``: a digest with version and variant set."""
    digest = bytearray(hashlib.md5(data, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


_ROW = msgspec.json.Decoder(dict[str, Raw])

Slices = Mapping[str, str]  # an object's values as they were sent, by name
Columns = MutableMapping[str, pa.Array]  # of ``DECODED``, by name
Mask = NDArray[np.bool_]
LogPosition = tuple[int, int, int]  # log, pos and row of an `Order`


class SourceBlock(msgspec.Struct, gc=False):
    """The fields of a source block that any connector reads."""

    connector: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    file: str | None = None
    snapshot: str | bool | None = None
    pos: int | None = None
    row: int | None = None
    lsn: int | None = None
    server_id: int | None = None
    sequence: str | None = None
    ts_ms: int | None = None
    ts_us: int | None = None


class Connector(Protocol):
    """The rules of one connector's messages."""

    @property
    def name(self) -> str:
        """Return ``source.connector`` of its messages."""
        ...

    @property
    def database_field(self) -> str:
        """Return the field of the source block with the first part of the shard's name."""
        ...

    @property
    def no_shard(self) -> str:
        """Return the error of a row without a table."""
        ...

    @property
    def long_name(self) -> str:
        """Return the error of a change with a name that is too long for the database."""
        ...

    def fits(self, name: str) -> bool:
        """Return whether a database or table may have this name, by its length."""
        ...

    @property
    def no_position(self) -> str:
        """Return the error of a row without a position in the log."""
        ...

    @property
    def heartbeat_op(self) -> str | None:
        """Return an operation that is no change of a row and counts as a heartbeat."""
        ...

    @property
    def describes_rows(self) -> bool:
        """Return True if it sends no schema events: columns are in the schema around each row."""
        ...

    def position(self, source: Slices, op: Op) -> LogPosition | None:
        """Return the position of a change; None if the source block has none."""
        ...

    def snapshot(self, source: Slices, name: str | None) -> str | None:
        """Return ``DECODED.snapshot`` of a row with snapshot *name*; None is a live row."""
        ...

    def transaction_id(self, name: str) -> str:
        """Return the id that rows and markers of one transaction share; others do not change."""
        ...

    def complete_row(self, row: Decoded, placeholder: Placeholder) -> Decoded:
        """Remove what is not a value of the row.

        Raises:
            ValueError: the row is no JSON object.
        """
        ...

    def fill_columns(
        self,
        columns: Columns,
        sources: Sequence[SourceBlock],
        rows: Mask,
        placeholder: Placeholder,
    ) -> Mask:
        """Apply all of these rules to the *rows* of this connector; return which can be read.

        Sets ``log``, ``pos`` and ``row``, and other *columns* that differ. Rows of other connectors
        keep their values.

        Raises:
            OverflowError: an integer has more than 64 bits.
        """
        ...


def put_values(columns: Columns, name: str, values: pa.Array, rows: Mask) -> None:
    """Set *values* in the *rows* of a column; the other rows keep theirs, or null."""
    if not rows.all():
        others = columns.get(name, pa.scalar(None, values.type))
        values = pc.if_else(pa.array(rows), values, others)
    columns[name] = values


def to_int64(values: Sequence[int | None]) -> pa.Int64Array:
    """Return integers of 64 bits.

    Raises:
        OverflowError: one is longer.
    """
    return pa.array(values, pa.int64())


def to_mask(array: pa.BooleanArray) -> Mask:
    """Return a column without nulls as a NumPy mask."""
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found
