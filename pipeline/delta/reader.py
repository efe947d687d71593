"""Reads one Delta table at one version with SQL, without Spark; never writes.

All rows are read by the query engine of `deltalake`. It applies deletion vectors, which
`DeltaTable.count()` ignores and `to_pyarrow_dataset()` rejects. It skips files by their
statistics, including those of struct fields.

The table is named `t` in every query. Names and values are quoted only by the functions here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from pipeline.errors import ProofError, UnreachableError


def quote_name(column: str) -> str:
    """*column* as a quoted SQL name, which is case-sensitive."""
    escaped = column.replace('"', '""')
    return f'"{escaped}"'


def quote_literal(value: str | int) -> str:
    """*value* as a SQL literal."""
    if isinstance(value, int):
        return str(int(value))
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


def among_sql(column: str, values: Iterable[str | int]) -> str:
    """Condition that *column*, an SQL expression, is one of *values*; ``false`` without values."""
    listed = ", ".join(quote_literal(value) for value in values)
    return f"{column} IN ({listed})" if listed else "false"


FLOAT_DIGITS = 15  # digits of a decimal that every 64-bit float keeps
CUT = (2**63 - 1, -(2**63))
"""What delta-rs makes of a whole number that does not fit into 64 bits with a sign."""
UNDECIDABLE = (
    "Schema error",
    "SQL error",
    "Error during planning",
    "This feature is not impl",
    "Cannot access field",
    "Unsupported table features",
)


@dataclass(eq=False)
class SnapshotReader:
    """One Delta table at one version; queries are SQL, in which the table is ``t``."""

    path: str
    table: DeltaTable
    _compared: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def version(self) -> int:
        """The pinned version."""
        return self.table.version()

    @property
    def id(self) -> str:
        """The table's id; a table that replaces it in its folder has another."""
        return str(self.table.metadata().id)

    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        with translate_errors(self.path):
            return {key: str(value) for key, value in self.table.metadata().configuration.items()}

    def transaction(self, app: str) -> int | None:
        """Newest transaction version of *app*; None if it never committed here."""
        with translate_errors(self.path):
            return self.table.transaction_version(app)

    def columns(self) -> Mapping[str, str]:
        """Top-level columns in order, with Delta's names of their types (``long``, ``struct``)."""
        return {field.name: str(field.type.type) for field in self.table.schema().fields}

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return pa.schema(self.table.schema().to_arrow())

    def select(self, query: str) -> list[dict[str, Any]]:
        """All rows of the result; the query must limit their number.

        Raises:
            ProofError: if the table does not have what the query names.
            UnreachableError: if a file could not be read, for example after a vacuum.
        """
        with translate_errors(self.path):
            answer = QueryBuilder().register("t", self.table).execute(query)
            rows: list[dict[str, Any]] = _arrow(answer).to_pylist()
        return rows

    def stream(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows, a few thousand at a time; memory holds the rows of a few files.

        Raises:
            UnreachableError: if a file could not be read.
        """
        return self.batches(f"SELECT {', '.join(map(quote_name, columns))} FROM t")  # noqa: S608

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The result of *query*, a few thousand rows at a time.

        Raises:
            ProofError: if the table does not have what the query names.
            UnreachableError: if a file could not be read.
        """
        with translate_errors(self.path):
            answer = QueryBuilder().register("t", self.table).execute(query)
            yield from pa.RecordBatchReader.from_stream(answer)

    def bounds(self, column: str) -> tuple[tuple[Any, Any], ...]:
        """Lower and upper bound of *column* (dotted in structs) in each file.

        With a deletion vector, perhaps no row has these values.  Empty if a file has no statistics.
        """
        found = self._all_bounds(column)
        return () if any(None in one for one in found) else tuple(found)

    def compared_sql(self, column: str) -> str:
        """The expression that a condition must use to compare *column*, a top-level one.

        `delta-rs` writes bounds of decimals as 64-bit floats, and limits whole numbers to 64 bits
        with a sign.  It skips files by them, and if both bounds are equal, reads each value of the
        column as that bound (measured on 1.6).  An expression has no bounds, so its result is
        correct, but no file is skipped.
        """
        if column not in self._compared:
            name = quote_name(column)
            decimal = self.columns().get(column, "").startswith("decimal(")
            rounded = decimal and any(_may_be_rounded(*one) for one in self._all_bounds(column))
            self._compared[column] = f"coalesce({name}, {name})" if rounded else name
        return self._compared[column]

    def _all_bounds(self, column: str) -> list[tuple[Any, Any]]:
        """Lower and upper bound of *column* in each file; None where unknown."""
        with translate_errors(self.path):
            files = _arrow(self.table.get_add_actions(flatten=True))
        names = (f"min.{column}", f"max.{column}")
        if not set(names) <= set(files.column_names):
            return []
        return list(zip(*(files[name].to_pylist() for name in names), strict=True))


def _may_be_rounded(low: Decimal | None, high: Decimal | None) -> bool:
    """Whether the writer may have rounded both bounds of one file to floats.

    A bound with at most `FLOAT_DIGITS` digits is the same either way, and proves nothing.
    """
    long = [one for one in (low, high) if one is not None and _is_long(one)]
    return bool(long) and all(map(_may_be_float, long))


def _is_long(value: Decimal) -> bool:
    return len(value.as_tuple().digits) > FLOAT_DIGITS


def _may_be_float(value: Decimal) -> bool:
    return bool(value.as_tuple().exponent) or value in CUT or int(float(value)) == value


def open_table(path: str, version: int | None = None) -> SnapshotReader | None:
    """Open the table at *path*, by default at its newest version; None if there is no table.

    Raises:
        UnreachableError: if the lake, or that version of the table, cannot be read.
    """
    with translate_errors(path):
        try:
            return SnapshotReader(path, DeltaTable(_uri(path), version=version))
        except TableNotFoundError:
            return None


def _arrow(answer: Any) -> pa.Table:
    # not pa.table(): it imports pandas, which takes two seconds
    return pa.RecordBatchReader.from_stream(answer).read_all()


def _uri(path: str) -> str:
    return path.replace("s3a://", "s3://", 1)  # only Hadoop supports its scheme s3a


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Translate the library's errors to UnreachableError, or ProofError if a query cannot run."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        said = f"{path}: {' '.join(str(error).split())[:500]}"
        if any(word in said for word in UNDECIDABLE):
            raise ProofError(said) from error
        raise UnreachableError(said) from error
