"""One parsed slice of the change log for several merges, and what it holds for each table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.changelog.table import MIRROR_OPS
from pipeline.model import Op, Order

_OPS = (*MIRROR_OPS, Op.TOMBSTONE, Op.ERROR)
_VIEW = "sluice_slice"
_MEMORY_ROWS = 4_000_000  # the slice is cached; older batches first when more is waiting


@dataclass(frozen=True, slots=True)
class Share:
    """A table's part of a slice: counts by op, truncates and settles by shard, its topics."""

    ops: Mapping[str, int] = field(default_factory=dict)
    floors: Mapping[str, Order] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()

    @property
    def read(self) -> int:
        """All of the table's rows in the slice."""
        return sum(self.ops.values())

    def count(self, *ops: Op) -> int:
        """Rows with one of *ops*."""
        return sum(self.ops.get(op, 0) for op in ops)


@dataclass(eq=False)
class Slice:
    """Changes of several tables up to batch ``until``, cached until closed.

    ``after`` is each table's own applied batch: what it has read before is not read again, and not
    counted again.  A worker reads the slice in its own session through a global view: cached data
    is shared by all.
    """

    session: SparkSession
    log: str
    after: Mapping[str, int]
    until: int
    shares: Mapping[str, Share] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Cache the rows and count them: one job for all tables."""
        rows = self._rows().persist()
        rows.createOrReplaceGlobalTempView(_VIEW)
        self._cached = rows
        self.shares = _shares(rows)
        return self

    def __exit__(self, *_: object) -> None:
        """Let the rows go."""
        self._cached.unpersist()
        self.session.catalog.dropGlobalTempView(_VIEW)

    def _rows(self) -> DataFrame:
        batch, table, op = F.col("batch"), F.col("table"), F.col("op")
        # the lowest of all says again what *unread* says, in words that prune files
        wanted = (batch > min(self.after.values())) & (batch <= self.until)
        unread = F.lit(False)
        for after in sorted(set(self.after.values())):
            names = [name for name, own in self.after.items() if own == after]
            unread = unread | (table.isin(names) & (batch > after))
        log = self.session.read.format("delta").load(self.log)
        rows = log.where(wanted & unread & op.isin(list(_OPS)))
        return rows.select(
            "batch", "source", "shard", "table", "op", "key", "before", "after", "at",
            "order", "origin", "topic", "partition", "offset",
        )  # fmt: skip

    def of(self, session: SparkSession, table: str) -> DataFrame:
        """The rows of *table*, in *session*."""
        return session.table(f"global_temp.{_VIEW}").where(F.col("table") == table)


def last_batch(session: SparkSession, log: str, after: int, until: int) -> int:
    """The batch to stop at so that one slice stays within memory; at least one batch."""
    if until - after <= 1:
        return until
    rows = session.read.format("delta").load(log).where(F.col("batch").between(after + 1, until))
    total, stop = 0, after
    for row in rows.groupBy("batch").count().orderBy("batch").collect():
        total += row["count"]
        if total > _MEMORY_ROWS and stop > after:
            break
        stop = row["batch"]
    return int(stop)


def _shares(rows: DataFrame) -> dict[str, Share]:
    """Counts by table; bounded by tables x shards x ops."""
    groups = rows.groupBy("table", "source", "shard", "op", "topic").agg(
        F.count(F.lit(1)).alias("n"), F.max("order").alias("top")
    )
    found: dict[str, list[Mapping[str, object]]] = {}
    for row in groups.collect():
        found.setdefault(row["table"], []).append(row.asDict())
    return {table: _share(parts) for table, parts in found.items()}


def _share(parts: Iterable[Mapping[str, object]]) -> Share:
    ops: dict[str, int] = {}
    floors: dict[str, Order] = {}
    topics: set[str] = set()
    for part in parts:
        op = str(part["op"])
        ops[op] = ops.get(op, 0) + int(str(part["n"]))
        if part["topic"] is not None:
            topics.add(str(part["topic"]))
        if op in (Op.TRUNCATE, Op.SETTLE):
            top = Order(*part["top"])  # type: ignore[misc]
            name = f"{part['source']}/{part['shard']}"
            floors[name] = max(top, floors.get(name, top))
    return Share(ops, floors, frozenset(topics))
