"""Defines the invariant protocol: what rows must satisfy before they reach a mirror.

Each invariant has its own module, named by its config key; the config may also name modules of
yours. A slice that breaks an invariant is held as a whole, before any of it is written: see
`pipeline.apply.invariants`. An invariant gets rows in memory, wherever a task runs.

`numbered` finds rows that have the same values in all columns. It compares texts byte by byte.
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
    """What was applied of a table before a slice, as of one day.

    ``usual`` is how many changes a day before it had, None where that is not known; ``deleted`` are
    the rows that went on it, but for archived ones: the column that was asked for, and ``at``.
    """

    usual: float | None
    deleted: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class IntendedRows:
    """What a slice is about to leave in a mirror.

    ``rows`` are the new rows, in the mirror's columns; ``key`` names those of its key.  ``there``
    is the number of the mirror's rows before; the slice replaces or takes ``changed`` of them, and
    with ``emptied`` also some that are not counted, by a TRUNCATE.
    ``standing`` takes values (a column for each of a row's; each row once, none null) and returns
    which are in a row of the mirror that the slice leaves as it is.  ``before`` reads columns as
    each of ``rows`` held them before the slice; an unknown column is all null.  ``elsewhere``
    takes values, a row for each of ``rows``, and returns whether they are in the columns of these
    names of another table, see :class:`Referring`: null where that is not known yet, true where
    one of them is null.  ``deleted`` reads columns of the rows that go by a delete, and ``at``,
    the source's time of it; archived ones do not go.  ``landed`` returns what was applied before
    on a day (UTC).
    """

    table: str
    key: tuple[str, ...]
    rows: pa.Table
    there: int
    changed: int
    emptied: bool
    standing: Callable[[pa.Table], Mask]
    before: Callable[[Sequence[str]], pa.Table]
    elsewhere: Callable[[str, pa.Table], pa.BooleanArray]
    deleted: Callable[[Sequence[str]], pa.Table]
    landed: Callable[[str, date], LandedDay]

    def column(self, name: str) -> pa.Array:
        """One of its columns, whole.

        Raises:
            HeldError: ``invariant``, the mirror has none of that name.
        """
        self.require(name)
        column = self.rows[name].combine_chunks()
        return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)

    def require(self, name: str) -> None:
        """Return only if there is a column of that *name*.

        Raises:
            HeldError: ``invariant``.
        """
        if name not in self.rows.column_names:
            known = ", ".join(one for one in self.rows.column_names if not one.startswith("_"))
            detail = f"an invariant names {name!r}, and the columns of {self.table} are {known}"
            advice = "correct it under `invariants` and restart the service"
            raise HeldError("invariant", f"{detail}; {advice}")


@dataclass(frozen=True, slots=True, eq=False)
class Breach:
    """How an invariant is broken, without a value of a row, and by which; None: by all of them.

    Where it is not ``sure``, changes that are still on their way may resolve it.
    """

    what: str
    rows: Mask | None = None
    sure: bool = True


class Invariant(Protocol):
    """One demand on the rows of some tables; its settings are its dataclass fields."""

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """How the rows break it; nothing if they do not.

        Raises:
            HeldError: ``invariant``, it cannot be asked of this table: says why.
        """
        ...


@runtime_checkable
class Recalling(Protocol):
    """An invariant that may need what ``landed``: only if ``recalls`` is true is it computed."""

    recalls: ClassVar[bool]


@runtime_checkable
class Referring(Protocol):
    """An invariant that asks ``elsewhere``; of these tables and of no other."""

    @property
    def others(self) -> frozenset[str]:
        """Their names."""
        ...


def known_invariants() -> tuple[str, ...]:
    """Names of all, sorted."""
    return plugins.list_keys(invariants, "INVARIANT")


def find_invariant(name: str) -> type[Invariant]:
    """The class of that name.

    Raises:
        ConfigError: the name is unknown.
    """
    return cast("type[Invariant]", plugins.find_class(invariants, "INVARIANT", name))


def number_values(values: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each row, from 0 on, the same where all values are; none of them is null."""
    numbers = np.zeros(len(values), np.int64)
    for column in values.columns:
        encoded = column.combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        _, numbers = np.unique(numbers * len(encoded.dictionary) + codes, return_inverse=True)
    return numbers
