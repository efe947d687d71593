"""Defines the invariant protocol: a condition on rows before they reach a mirror.

Each invariant has its own module, named by its config key; the config may also name modules of
yours. A slice that breaks an invariant is held as a whole, before any of it is written: see
`pipeline.apply.invariants`. An invariant gets rows in memory, wherever a task runs.

`number_values` finds rows with the same values in all columns. It compares texts byte by byte.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline import invariants, plugins
from pipeline.errors import HeldError

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LandedDay:
    """The changes of one day that were applied to a table before the current slice.

    ``usual`` is the usual number of changes of a day before it, None if that is not known.
    ``deleted`` are the rows deleted on that day, without archived ones.  They have the requested
    column and ``at``, the time of the delete.
    """

    usual: float | None
    deleted: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class IntendedRows:
    """The rows that a slice is about to write to a mirror, and readers of related rows.

    ``rows`` are the new rows, in the mirror's columns; ``key`` names the key columns.  ``batches``
    has the batch in which the newest change of each row landed.  ``there`` is the number of the
    mirror's rows before the slice.  The slice replaces or deletes ``changed`` of them.  If
    ``emptied``, a TRUNCATE deletes further rows, which are not counted.

    ``standing`` takes distinct values without nulls, in columns of the mirror's names.  It returns
    which of them are in a row of the mirror that the slice does not change.
    ``before`` reads columns of ``rows`` as the before images have them, null where unknown.
    ``elsewhere`` takes the name of another table (see :class:`Referring`) and values in columns
    of that table, in the order of ``rows``.  It returns whether that table has them: null if that
    is not known yet, true if one of the values is null.
    ``deleted`` reads columns of the rows that the slice deletes, and ``at``, the source's time of
    the delete; archived rows are not among them.  ``landed`` returns what was applied before on a
    day (UTC).
    """

    table: str
    key: tuple[str, ...]
    rows: pa.Table
    batches: npt.NDArray[np.int64]
    there: int
    changed: int
    emptied: bool
    standing: Callable[[pa.Table], Mask]
    before: Callable[[Sequence[str]], pa.Table]
    elsewhere: Callable[[str, pa.Table], pa.BooleanArray]
    deleted: Callable[[Sequence[str]], pa.Table]
    landed: Callable[[str, date], LandedDay]

    def column(self, name: str) -> pa.Array:
        """The column *name* of the new rows, as one array.

        Raises:
            HeldError: ``invariant``, the mirror has no column of that name.
        """
        self.require(name)
        column = self.rows[name].combine_chunks()
        return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)

    def require(self, name: str) -> None:
        """Raise unless the mirror has a column *name*.

        Raises:
            HeldError: ``invariant``; the message lists the mirror's columns.
        """
        if name not in self.rows.column_names:
            known = ", ".join(one for one in self.rows.column_names if not one.startswith("_"))
            detail = f"an invariant names {name!r}, and the columns of {self.table} are {known}"
            advice = "correct it under `invariants` and restart the service"
            raise HeldError("invariant", f"{detail}; {advice}")


@dataclass(frozen=True, slots=True, eq=False)
class Breach:
    """One way in which a slice breaks an invariant; ``what`` contains no value of a row.

    ``rows`` selects the new rows that break it; None means the slice as a whole.  If it is not
    ``sure``, changes that have not landed yet may resolve it.
    """

    what: str
    rows: Mask | None = None
    sure: bool = True


class Invariant(Protocol):
    """A condition on the rows of some tables; its settings are its dataclass fields."""

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Yield each breach; nothing if the rows satisfy the invariant.

        Raises:
            HeldError: ``invariant``, it cannot be checked on this table; the message says why.
        """
        ...


@runtime_checkable
class Recalling(Protocol):
    """An invariant that may call ``landed``, which works only if ``recalls`` is true."""

    recalls: ClassVar[bool]


@runtime_checkable
class Referring(Protocol):
    """An invariant that calls ``elsewhere``, only for the tables ``others``."""

    @property
    def others(self) -> frozenset[str]:
        """Names of the other tables."""
        ...


def known_invariants() -> tuple[str, ...]:
    """Names of all invariants, sorted."""
    return plugins.list_keys(invariants, "INVARIANT")


def find_invariant(name: str) -> type[Invariant]:
    """The invariant class called *name*.

    Raises:
        ConfigError: the name is unknown.
    """
    return cast("type[Invariant]", plugins.find_class(invariants, "INVARIANT", name))


def number_values(values: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each row, from 0; rows with equal values get the same one.  No value is null."""
    numbers = np.zeros(len(values), np.int64)
    for column in values.columns:
        encoded = column.combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        _, numbers = np.unique(numbers * len(encoded.dictionary) + codes, return_inverse=True)
    return numbers
