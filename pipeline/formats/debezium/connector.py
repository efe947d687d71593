"""Defines the connector protocol: what differs between the connectors of Debezium.

`envelope` reads one message at a time, `batch` a whole batch. Both ask the same connector, so
each of its rules has a form for one source block and a form for many. Both forms must agree.

A new connector is one module with one class, and an entry in `envelope.CONNECTORS`. Fields of
its source block that `SourceBlock` does not have are added there.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.formats.debezium.placeholder import Placeholder
from pipeline.formats.format import Decoded
from pipeline.model import Op

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
        """``source.connector`` of its messages."""
        ...

    @property
    def database_field(self) -> str:
        """The field of the source block with the first part of the shard's name."""
        ...

    @property
    def no_shard(self) -> str:
        """The error of a row without a table."""
        ...

    @property
    def no_position(self) -> str:
        """The error of a row without a position in the log."""
        ...

    @property
    def heartbeat_op(self) -> str | None:
        """An operation that is no change of a row and counts as a heartbeat."""
        ...

    @property
    def describes_rows(self) -> bool:
        """True if it sends no schema events: columns are in the schema around each row."""
        ...

    def position(self, source: Slices, op: Op) -> LogPosition | None:
        """Read the position of a change; None if the source block has none."""
        ...

    def snapshot(self, source: Slices, name: str | None) -> str | None:
        """``DECODED.snapshot`` of a row with snapshot *name*; None stands for a live row."""
        ...

    def transaction_id(self, name: str) -> str:
        """The id that rows and markers of one transaction share; others stay as they are."""
        ...

    def complete_row(self, row: Decoded, placeholder: Placeholder) -> Decoded:
        """Remove what is not a value of the row.

        Raises:
            ValueError: the row is not built as JSON.
        """
        ...

    def fill_columns(
        self,
        columns: Columns,
        sources: Sequence[SourceBlock],
        rows: Mask,
        placeholder: Placeholder,
    ) -> Mask:
        """Do all of the above in the *rows* of this connector; return which can be read.

        Sets ``log``, ``pos`` and ``row``, and other *columns* that differ.  Rows of other
        connectors keep their values.

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
    """Integers of 64 bits.

    Raises:
        OverflowError: one is longer.
    """
    return pa.array(values, pa.int64())


def to_mask(array: pa.BooleanArray) -> Mask:
    """A column without nulls for numpy."""
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found
