"""How is one kind of column sent, and how is what was sent read?  Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from pipeline.schema.arrow_types import arrow_type
from pipeline.schema.column import Column
from pipeline.schema.wire import SentAs
from pipeline.schema.wire_values import integer, whole

C = TypeVar("C", bound=Column)


@dataclass(frozen=True, slots=True)
class ColumnReading(Generic[C]):
    """What becomes of a kind of column: int64 or text -> the Arrow type of its lake type."""

    sent: SentAs
    read: Callable[[C, pa.Array], pa.Array]

    def values(self, column: C, wire: pa.Array) -> pa.Array:
        """Values of *column*'s Arrow type, null where the *wire*'s does not fit.

        In: texts; where whole numbers are expected, int64 as well.
        """
        if self.sent is SentAs.WHOLE and pa.types.is_string(wire.type):
            wire = whole(wire)
        return self.read(column, wire)


def as_sent(_: Column, wire: pa.StringArray) -> pa.StringArray:
    """The texts themselves."""
    return wire


def as_integer(column: Column, wire: pa.Int64Array) -> pa.Array:
    """Whole numbers as *column*'s integer type."""
    return integer(wire, arrow_type(column))
