"""What does a kind of source say of its tables' columns and statements?  One dialect a kind.

A dialect reads no clock and has no state: any of its objects is as good as another.  Pure.
"""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from pipeline.model import ShardId
from pipeline.schema.column import Column, TableSchema
from pipeline.schema.effect import Effect, KnownTables
from pipeline.schema.evolution import Compatible, Incompatible
from pipeline.schema.schema_change import ColumnTold, Told
from pipeline.schema.wire import SentAs


class Dialect(Protocol):
    """The types of one kind of source, its statements, and its own rule on changed columns."""

    def column(self, told: ColumnTold, statement: str) -> Column:
        """The column that a schema change describes beside its *statement*."""
        ...

    def renamed_from(self, statement: str, shard: ShardId) -> ShardId | None:
        """The name *shard* had before the statement; None if it is no rename of it."""
        ...

    def follow(
        self, told: Sequence[Told], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        """What becomes of rows, and which tables are there then; *told* in log order.

        At most one effect a shard and order.
        """
        ...

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        """Whether it makes a table that begins empty.

        *there*: whether there was one of its name, None if that is unknown.
        """
        ...

    def database_dropped(self, statement: str) -> str | None:
        """The database that a statement takes away, with all its tables; None if it does not."""
        ...

    def compare(self, old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
        """Say what changed from *old* to *new*, of one shard; the first obstacle, if any."""
        ...

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        """*new* with what only an earlier statement told of its columns."""
        ...

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        """One schema that rows of every shard fit into, with the first one's shard and order."""
        ...

    def lake_type(self, column: Column) -> str:
        """Spark type of *column* in a mirror."""
        ...

    def whole(self, column: Column) -> bool:
        """Whether it holds integers, which source and mirror order alike."""
        ...

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        """Every text as which a change may bring *number*, of a column that is `whole`."""
        ...

    def reads(self, column: Column, text: str) -> bool:
        """Whether the log of some collector may write a value of *column* as *text*."""
        ...

    def spelled_alike(self, column: Column) -> bool:
        """Whether equal values of *column* arrive as equal texts, as those of a key must."""
        ...

    def sent(self, column: Column) -> SentAs:
        """How the values of *column* arrive."""
        ...

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        """Values of *column*'s Arrow type, null where the *wire*'s does not fit.

        In: texts; where whole numbers are expected, int64 as well.
        """
        ...

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        """Which values of the lake's type a collector's snapshot may send for other ones, too.

        None where none can be.
        """
        ...

    def default(self, column: Column) -> pa.Scalar:
        """What the source put into old rows when it added the column; null for NULL."""
        ...

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        """What the *server*'s own columns, in order, say otherwise than the log."""
        ...
