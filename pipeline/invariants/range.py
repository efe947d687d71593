"""An invariant: values of a column lie between two bounds (inclusive).

NULL is always allowed: see ``not_null``.  NaN is always out of range.  Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError, HeldError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant, Mask

Bound = int | float | str


@dataclass(frozen=True, slots=True)
class ValueBounds:
    """The least and the greatest value; None: no bound.  Dates and times are texts (ISO 8601)."""

    least: Bound | None = None
    """The least value that is allowed."""
    most: Bound | None = None
    """The greatest value that is allowed."""

    def __post_init__(self) -> None:
        """Reject no bound, and numeric bounds between which no value lies."""
        if self.least is None and self.most is None:
            raise ConfigError("has no bound; write least, most, or both")
        bounds = [one for one in (self.least, self.most) if isinstance(one, int | float)]
        if len(bounds) == 2 and bounds[0] > bounds[1]:
            raise ConfigError(f"no value lies between {bounds[0]} and {bounds[1]}")


@dataclass(frozen=True, slots=True)
class Range:
    """``columns`` maps each column to its bounds."""

    columns: Mapping[str, ValueBounds]

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Check column by column."""
        for name, bounds in self.columns.items():
            column = intended.column(name)
            outside = _outside(name, column, bounds)
            if outside.any():
                yield Breach(f"{name} is out of its range", outside)


def _outside(name: str, column: pa.Array, bounds: ValueBounds) -> Mask:
    inside = column.is_valid()
    if bounds.least is not None:
        inside = pc.and_kleene(
            inside, pc.greater_equal(column, _cast_bound(name, column, bounds.least))
        )
    if bounds.most is not None:
        inside = pc.and_kleene(
            inside, pc.less_equal(column, _cast_bound(name, column, bounds.most))
        )
    found: Mask = pc.and_(column.is_valid(), pc.invert(pc.fill_null(inside, False))).to_numpy(
        zero_copy_only=False
    )
    return found


def _cast_bound(name: str, column: pa.Array, bound: Bound) -> pa.Scalar:
    """The bound as a value that compares with values of the column.

    Raises:
        HeldError: ``invariant``, the bound does not compare with the column's type.
    """
    kind = column.type
    try:
        if pa.types.is_temporal(kind) and isinstance(bound, str):
            return pa.scalar(bound).cast(kind)
        if pa.types.is_decimal(kind) and not isinstance(bound, str):
            return pa.scalar(Decimal(str(bound)))
        if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not isinstance(bound, str):
            return pa.scalar(bound)
    except (pa.ArrowInvalid, ArithmeticError):
        pass
    detail = f"column {name} is of type {kind}, which does not compare with {bound!r}"
    raise HeldError("invariant", f"{detail}; correct its `range` and restart the service")


INVARIANT: type[Invariant] = Range
