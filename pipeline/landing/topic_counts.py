"""Counts what landing reads from topics and what becomes of it, by partition.

Two comparisons follow each other, so that a loss counts once. The first is of messages: the
consumer counts each record that it returns, and landing those for which the format has an answer.
The second is of rows: landing counts those that the format made, and those that it writes, or
leaves out by a rule. Each side counts its own, in the batch that it holds anyway.

Column descriptions do not count: they come with the rows of a message, and land only if they are
new. Rows that Sluice reads itself come from no topic, so they are in no count here.

Cannot detect: records that the consumer does not return, or a wrong number of rows that a format
makes of a message if it makes at least one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.landing.batch_stats import RunStats, describes_columns
from pipeline.minute_counts import add_named, count_groups
from pipeline.model import Op, TopicPartition
from pipeline.reports import TopicCounts
from pipeline.transports.transport import RangeRead

MESSAGES, ROWS = "messages", "rows"
EMPTY_TRANSACTION = "empty_transaction"
"""Term for markers of transactions that changed no captured table."""
_TERMS: Mapping[str, str] = {Op.ERROR: "quarantined", Op.DDL: "schema_change"}
_OF_NO_TABLE = frozenset({Op.HEARTBEAT, Op.BEGIN, Op.END, Op.DDL, Op.ERROR})
OTHER_TABLE, NO_TABLE = "other_table", "no_table"
"""Terms for rows of another table of the topic, and of a table that the rules ignore."""


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """Records of a partition that were ``returned`` and ``decoded``, and ``rows`` made of them.

    ``left_out``: term -> rows that a rule keeps from landing.
    """

    returned: int = 0
    decoded: int = 0
    rows: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "PartitionCounts") -> "PartitionCounts":
        """Add up both."""
        return PartitionCounts(
            self.returned + other.returned,
            self.decoded + other.decoded,
            self.rows + other.rows,
            add_named(self.left_out, other.left_out),
        )


@dataclass(eq=False)
class DecodeCounter:
    """Counts what a task decodes and leaves out; ``found`` has no ``returned`` records."""

    found: dict[TopicPartition, PartitionCounts] = field(default_factory=dict)

    def add_decoded(self, decoded: pa.RecordBatch, raw: pa.RecordBatch) -> None:
        """Count ``DECODED`` rows, and the messages of *raw* that have any."""
        numbers = decoded["message"].to_numpy()
        counts = pc.invert(describes_columns(decoded))
        rows = numbers[counts.to_numpy(zero_copy_only=False)]
        if np.array_equal(rows, np.arange(len(raw))):  # true for nearly all batches
            for at, count in _count_places(raw):
                self._add(at, PartitionCounts(decoded=count, rows=count))
            return
        for at, count in _count_places(raw, np.unique(numbers)):
            self._add(at, PartitionCounts(decoded=count))
        for at, count in _count_places(raw, rows):
            self._add(at, PartitionCounts(rows=count))

    def add_left_out(self, term: str, left_out: pa.RecordBatch, raw: pa.RecordBatch) -> None:
        """Count ``DECODED`` rows that do not land, under the *term* that says why."""
        if len(left_out):
            for at, count in _count_places(raw, left_out["message"].to_numpy()):
                self._add(at, PartitionCounts(left_out={term: count}))

    def with_returned(self, read: Iterable[RangeRead]) -> dict[TopicPartition, PartitionCounts]:
        """Return all counts, with the number of records that the consumer returned."""
        returned = (
            {TopicPartition(one.asked.topic, one.asked.partition): PartitionCounts(one.count)}
            for one in read
        )
        return add_partitions([self.found, *returned])

    def _add(self, at: TopicPartition, counts: PartitionCounts) -> None:
        self.found[at] = self.found.get(at, PartitionCounts()) + counts


def add_partitions(
    parts: Iterable[Mapping[TopicPartition, PartitionCounts]],
) -> dict[TopicPartition, PartitionCounts]:
    """Add up counts by partition."""
    found: dict[TopicPartition, PartitionCounts] = {}
    for one in parts:
        for at, counts in one.items():
            found[at] = found[at] + counts if at in found else counts
    return found


def _count_places(
    raw: pa.RecordBatch, numbers: npt.NDArray[np.int32] | None = None
) -> Iterator[tuple[TopicPartition, int]]:
    """Count the messages with these *numbers* (default: all) by partition."""
    places = raw.select(["topic", "partition"])
    places = places if numbers is None else places.take(pa.array(numbers))
    for topic, partition, count in count_groups(*places.columns):
        yield TopicPartition(topic, partition), count


@dataclass(frozen=True, slots=True)
class _Topics:
    """Counts of one or more topics: ``landed`` is by table (empty: none) and op."""

    partitions: dict[TopicPartition, PartitionCounts] = field(default_factory=dict)
    landed: dict[TopicPartition, Counter[tuple[str, str]]] = field(default_factory=dict)

    @property
    def tables(self) -> set[str]:
        return {table for own in self.landed.values() for table, _ in own if table}

    @property
    def unread(self) -> bool:
        """Return whether rows of an unknown table cannot be decoded."""
        return any(("", Op.ERROR) in own for own in self.landed.values())

    def add(self, other: "_Topics") -> None:
        """Add counts of other topics."""
        self.partitions.update(other.partitions)
        self.landed.update(other.landed)

    def compare(self, batch: int) -> tuple[dict[str, int], dict[str, int]]:
        """Return what went in and came out; a partition that does not balance gets its own name."""
        went_in, came_out = {MESSAGES: 0, ROWS: 0}, {MESSAGES: 0, ROWS: 0}
        for at in sorted({*self.partitions, *self.landed}):
            one = self.partitions.get(at, PartitionCounts())
            landed = sum(self.landed.get(at, {}).values()) + sum(one.left_out.values())
            both = ((MESSAGES, one.returned, one.decoded), (ROWS, one.rows, landed))
            for unit, before, after in both:
                name = unit if before == after else f"{unit} of {at} in batch {batch}"
                went_in[name] = went_in.get(name, 0) + before
                came_out[name] = came_out.get(name, 0) + after
        return went_in, came_out

    def settle(self, batch: int, tables: Iterable[str]) -> Iterator[tuple[str, TopicCounts]]:
        """Yield each of *tables* with all counts; the terms of rows are from the table's view."""
        went_in, came_out = self.compare(batch)
        by_table: dict[str, Counter[str]] = {}
        for (table, op), rows in (one for own in self.landed.values() for one in own.items()):
            by_table.setdefault(table, Counter())[_term(table, op)] += rows
        left_out = [one.left_out for one in self.partitions.values()]
        shared = add_named(by_table.pop("", Counter()), *left_out)
        every = sum(own.total() for own in by_table.values())
        for table in tables:
            own = by_table.get(table, Counter())
            others = every - own.total()
            apart = {OTHER_TABLE: others} if others else {}
            yield table, TopicCounts(went_in, came_out, add_named(shared, own, apart))


def _term(table: str, op: str) -> str:
    return _TERMS.get(op, op) if table or op in _OF_NO_TABLE else NO_TABLE


def _group_topics(
    counts: Mapping[TopicPartition, PartitionCounts], tallies: Iterable[RunStats]
) -> dict[str, _Topics]:
    found: dict[str, _Topics] = {}
    for at, one in counts.items():
        found.setdefault(at.topic, _Topics()).partitions[at] = one
    for at, rows in (each for tally in tallies for each in tally.landed.items()):
        found.setdefault(at.topic, _Topics()).landed.setdefault(at, Counter()).update(rows)
    return found


def compare_topics(
    counts: Mapping[TopicPartition, PartitionCounts],
    tallies: Iterable[RunStats],
    batch: int,
    tables_of: Callable[[str], Iterable[str]],
) -> dict[str, TopicCounts]:
    """Return table -> what its topics brought in *batch*, and what became of it.

    A topic counts for each table that has rows in it. *tables_of* returns the tables that a topic
    may carry. If the topic does not balance or has rows that cannot be decoded, it counts for
    these, too. Topics that may carry the same tables are added up once.
    """
    parts: list[tuple[Iterable[str], _Topics]] = []
    shared: dict[frozenset[str], _Topics] = {}
    for topic, its in sorted(_group_topics(counts, tallies).items()):
        went_in, came_out = its.compare(batch)
        others: frozenset[str] = frozenset()
        if went_in != came_out or its.unread:
            others = frozenset(tables_of(topic))
            shared.setdefault(others, _Topics()).add(its)
        parts.append((its.tables - others, its))
    found: dict[str, TopicCounts] = {}
    for tables, its in (*parts, *shared.items()):
        for table, more in its.settle(batch, tables):
            found[table] = found[table] + more if table in found else more
    return found
