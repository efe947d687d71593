"""Finds records of some keys in the topics of a table that have not landed yet.

It reads from where landing stands to the end of each partition, but only the last records of a
long backlog; `WaitingRecords.skipped` counts those that were not looked at. Records that cannot be
decoded are counted, too: they will land in quarantine.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from pipeline.formats import json_text
from pipeline.formats.schema_registry import decode_with_registry
from pipeline.model import Op, PartitionEnd, Shard, Table, TopicPartition
from pipeline.standards.table_standards import standardise_batch
from pipeline.transports.topics import KeyedTopics, own_topics
from pipeline.transports.transport import OffsetRange, ReadBounds, Transport

MOST_RECORDS = 5_000
"""Of one partition: some megabytes."""
BOUNDS = ReadBounds(patience=timedelta(seconds=3))
ROWS = frozenset({Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ})


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """A change of a key in a topic; ``key`` as the change log will have it.

    ``sent`` is the time of the source's clock, None without one.
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
    """Those of the asked keys, in the order of their partitions.

    ``read`` counts all records that were looked at, ``unreadable`` those that cannot be decoded,
    ``skipped`` offsets before them that were not looked at.
    """

    found: tuple[WaitingRecord, ...] = ()
    read: int = 0
    unreadable: int = 0
    skipped: int = 0

    def __add__(self, other: "WaitingRecords") -> "WaitingRecords":
        """Of both together."""
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
    """Records of *keys*, as the change log has them, at or after the offsets that *landed*.

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
    decoded = decode_with_registry(origin.format, origin.registry, raw)
    own = {shard.name for shard in table.shards if shard.source == origin.source}
    whose = [table.name if name in own else None for name in decoded["shard"].to_pylist()]
    changes = standardise_batch(decoded, pa.array(whose, pa.string()), origin.standards)
    wanted = ("message", "op", "shard", "key_values", "at", "error")
    rows = changes.select(list(wanted)).to_pylist()
    places = raw.select(["topic", "partition", "offset"]).to_pylist()
    found = tuple(_matching(table, origin.source, rows, places, keys))
    unreadable = sum(row["error"] is not None for row in rows)
    return WaitingRecords(found, len(raw), unreadable)


def _matching(
    table: Table,
    source: str,
    rows: list[dict[str, object]],
    places: list[dict[str, object]],
    keys: Collection[str],
) -> Iterator[WaitingRecord]:
    for row in rows:
        shard = Shard(source, str(row["shard"]))
        if row["op"] not in ROWS or row["key_values"] is None or shard not in table.shards:
            continue
        values = json_text.parse_key(str(row["key_values"]))
        unique = table.unique_across_shards
        key = json_text.canonical_key(values, source, shard.name, unique=unique)
        if key in keys:
            place = places[int(str(row["message"]))]
            at = TopicPartition(str(place["topic"]), int(str(place["partition"])))
            sent = row["at"] if isinstance(row["at"], datetime) else None
            op, offset = Op(str(row["op"])), int(str(place["offset"]))
            yield WaitingRecord(shard, key, op, at, offset, sent)
