"""Which row key stands last in each partition of a table's topics?

Only what arrived in the topic is seen: it says nothing about what the collector never sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from pipeline.formats import key
from pipeline.formats.format import OPTIONAL, RAW, Format
from pipeline.model import PartitionEnd, Shard, Table, TopicPartition
from pipeline.readings import LogKey
from pipeline.registry import SchemaRegistry, decoded
from pipeline.standards.batches import standardised
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from pipeline.topics.records import LastRecord


class Ends(Protocol):
    """The part of a transport that is needed here."""

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Topics whose whole name matches, with their ids."""
        ...

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Next offset of each partition."""
        ...

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        """Newest data record of each partition that holds one."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedTopics:
    """Where a source's rows arrive: its name, the pattern of their topics, and their format.

    ``registry`` tells the schemas that the format needs; keys are as ``standards`` write them.
    """

    source: str
    pattern: str
    format: Format
    registry: SchemaRegistry | None = None
    standards: Standards = NO_STANDARDS


def end_keys(table: Table, origins: Sequence[KeyedTopics], transport: Ends) -> tuple[LogKey, ...]:
    """Key of the last message of each partition that holds one of *table*'s rows, by partition.

    A topic may hold other tables' rows too, so a partition that ends in one of those is absent;
    so is one whose last message cannot be decoded, which is landed as quarantined.
    """
    found: list[LogKey] = []
    for origin in origins:
        names = _own(table, origin, transport.topics(origin.pattern))
        records = transport.last_records(transport.ends(names))
        keys = (_key(table, origin, at, record) for at, record in records.items())
        found += [one for one in keys if one is not None]
    return tuple(sorted(found, key=lambda one: (one.at.topic, one.at.partition)))


def _own(table: Table, origin: KeyedTopics, names: Iterable[str]) -> list[str]:
    """Topics named for the table's shards; all of them, unless every shard has one of its own."""
    shards = [shard.name for shard in table.shards if shard.source == origin.source]
    own = {shard: [name for name in names if name.endswith(f".{shard}")] for shard in shards}
    return [name for some in own.values() for name in some] if all(own.values()) else list(names)


def _key(
    table: Table, origin: KeyedTopics, at: TopicPartition, record: LastRecord
) -> LogKey | None:
    """Key of the last change in a message; None if it holds none of *table*."""
    batch = _batch(origin.format, at, record)
    told = decoded(origin.format, origin.registry, batch)
    whose = [
        table.name if name and Shard(origin.source, name) in table.shards else None
        for name in told["shard"].to_pylist()
    ]
    changes = standardised(told, pa.array(whose, pa.string()), origin.standards).to_pylist()
    message = changes[-1] if changes else {"error": "nothing"}
    if message["error"] is not None or None in (message["shard"], message["key_values"]):
        return None
    shard = Shard(origin.source, message["shard"])
    if shard not in table.shards:
        return None
    own = key.parse(message["key_values"])
    name = key.canonical(own, shard.source, shard.name, unique=table.unique_across_shards)
    return LogKey(shard, name, at, record.offset)


def _batch(format_: Format, at: TopicPartition, record: LastRecord) -> pa.RecordBatch:
    """The record as the format is given it when it lands."""
    told = {
        "key": record.key,
        "value": record.value,
        "topic": at.topic,
        "partition": at.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp < 0 else record.timestamp * 1_000,
        "headers": [{"name": name, "value": value} for name, value in record.headers] or None,
    }
    asked = [*RAW, *(pa.field(name, OPTIONAL[name]) for name in format_.columns)]
    arrays = [pa.array([told[field.name]], field.type) for field in asked]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(asked))
