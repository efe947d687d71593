"""Finds records of some keys in the topics of a table that have not landed yet.

It reads from the landed offset to the end of each partition, but only the last records of a long
backlog. `WaitingRecords.skipped` counts the others. Records that cannot be decoded are counted,
too: they will land in quarantine.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from pipeline.model import Op, PartitionEnd, Shard, Table, TopicPartition
from pipeline.transports.topics import KeyedTopics, decode_changes, find_log_key, own_topics
from pipeline.transports.transport import OffsetRange, ReadBounds, Transport

MOST_RECORDS = 5_000
"""Most records read per partition: some megabytes."""
BOUNDS = ReadBounds(patience=timedelta(seconds=3))
ROWS = frozenset({Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ})


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """A change of a key in a topic; ``key`` as the change log will store it.

    ``sent`` is the change's time by the source's clock; None without one.
    """

    shard: Shard
    key: str
    op: Op
    at: TopicPartition
    offset: int
    sent: datetime | None

    def __str__(self) -> str:
        """Render as ``topic:partition:offset``."""
        return f"{self.at}:{self.offset}"


@dataclass(frozen=True, slots=True)
class WaitingRecords:
    """Waiting records of the requested keys, in the order of their partitions.

    ``read`` counts all records that were looked at, ``unreadable`` those that cannot be decoded,
    ``skipped`` the offsets before them that were not looked at.
    """

    found: tuple[WaitingRecord, ...] = ()
    read: int = 0
    unreadable: int = 0
    skipped: int = 0

    def __add__(self, other: "WaitingRecords") -> "WaitingRecords":
        """Add up both."""
        return WaitingRecords(
            self.found + other.found,
            self.read + other.read,
            self.unreadable + other.unreadable,
            self.skipped + other.skipped,
        )


def find_waiting(
    table: Table,
    origin: KeyedTopics,
    transport: Transport,
    landed: Mapping[TopicPartition, PartitionEnd],
    keys: Collection[str],
) -> WaitingRecords:
    """Find records of *keys* (spelled as in the change log) at or after the *landed* offsets.

    Raises:
        UnreachableError: the topics do not answer.
    """
    names = own_topics(table, origin, transport.topics(origin.pattern))
    ends, begins = transport.ends(names), transport.beginnings(names)
    ranges, skipped = list[OffsetRange](), 0
    for at, end in ends.items():
        first = max(landed[at].offset if at in landed else 0, _offset(begins, at))
        start = max(first, end.offset - MOST_RECORDS)
        skipped += max(start - first, 0)
        if start < end.offset:
            ranges.append(OffsetRange(at.topic, at.partition, start, end.offset))
    found = WaitingRecords(skipped=skipped)
    if not ranges:
        return found
    read = transport.reader(ranges).consume(ranges, bounds=BOUNDS, columns=origin.format.columns)
    for batch in read:
        found += _search(table, origin, batch, keys)
    return found


def _offset(ends: Mapping[TopicPartition, PartitionEnd], at: TopicPartition) -> int:
    return ends[at].offset if at in ends else 0


def _search(
    table: Table, origin: KeyedTopics, raw: pa.RecordBatch, keys: Collection[str]
) -> WaitingRecords:
    wanted = ["message", "op", "shard", "key_values", "at", "error"]
    rows = decode_changes(table, origin, raw).select(wanted).to_pylist()
    places = raw.select(["topic", "partition", "offset"]).to_pylist()
    found = tuple(_matching(table, origin.source, rows, places, keys))
    unreadable = sum(row["error"] is not None for row in rows)
    return WaitingRecords(found, len(raw), unreadable)


def _matching(
    table: Table,
    source: str,
    rows: list[dict[str, Any]],
    places: list[dict[str, Any]],
    keys: Collection[str],
) -> Iterator[WaitingRecord]:
    for row in rows:
        if row["op"] not in ROWS:
            continue
        found = find_log_key(table, source, row["shard"], row["key_values"])
        if found is not None and found[1] in keys:
            place = places[row["message"]]
            at = TopicPartition(place["topic"], place["partition"])
            yield WaitingRecord(*found, Op(row["op"]), at, place["offset"], row["at"])
