"""The last key of a partition is told as the change log would tell it, or not at all."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Decoded, Schemas, build_batch
from pipeline.model import Op, PartitionEnd, Shard, Table, TopicPartition
from pipeline.readings import LogKey
from pipeline.transports.topics import KeyedTopics, LastRecord, end_keys
from tests.pipeline.formats.plain_format import PlainFormat

A, B = Shard("shop", "s_00.orders"), Shard("shop", "s_01.orders")
TABLE = Table("shop.orders", (A, B), ("id",), "id")
PATTERN = r"shop\.[^.]+\.[^.]+"
SHOP = KeyedTopics("shop", PATTERN, DebeziumJson())


@dataclass
class FakeTransport:
    """Topics with one last record in each partition that holds any."""

    last: Mapping[TopicPartition, LastRecord | None]
    asked: set[str] = field(default_factory=set)

    def topics(self, pattern: str) -> Mapping[str, str]:
        return {at.topic: "id" for at in self.last if re.fullmatch(pattern, at.topic)}

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        self.asked = set(topics)
        return {at: PartitionEnd(9) for at in self.last if at.topic in self.asked}

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        found = {at: self.last[at] for at in partitions}
        return {at: record for at, record in found.items() if record is not None}


def record(shard: str, key: int, offset: int = 8) -> LastRecord:
    database, _, table = shard.partition(".")
    source = {"db": database, "table": table, "file": "binlog.000001", "pos": 4, "row": 0}
    value = {"op": "c", "before": None, "after": {"id": key}, "source": source, "ts_ms": 1}
    return LastRecord(json.dumps({"id": key}).encode(), json.dumps(value).encode(), offset)


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def test_each_partition_tells_the_key_it_ends_with() -> None:
    transport = FakeTransport(
        {
            at("shop.s_01.orders"): record(B.name, 7, offset=3),
            at("shop.s_00.orders", 1): record(A.name, 5),
            at("shop.s_00.orders", 0): None,
            at("shop.s_00.users"): record("s_00.users", 1),
        }
    )

    assert end_keys(TABLE, [SHOP], transport) == (
        LogKey(A, '["shop","s_00.orders","5"]', at("shop.s_00.orders", 1), 8),
        LogKey(B, '["shop","s_01.orders","7"]', at("shop.s_01.orders"), 3),
    )
    assert transport.asked == {"shop.s_00.orders", "shop.s_01.orders"}


def test_keys_that_are_unique_across_shards_stand_alone() -> None:
    table = Table("shop.orders", (A,), ("id",), unique_across_shards=True)
    transport = FakeTransport({at("shop.s_00.orders"): record(A.name, 5)})

    assert [found.key for found in end_keys(table, [SHOP], transport)] == ['["5"]']


def test_a_folded_topic_is_searched_and_other_tables_rows_in_it_are_none_of_ours() -> None:
    transport = FakeTransport(
        {at("shop.all.rows", 0): record(A.name, 5), at("shop.all.rows", 1): record("x.users", 1)}
    )

    found = end_keys(TABLE, [SHOP], transport)

    assert [(key.shard, key.at.partition) for key in found] == [(A, 0)]


def test_a_tombstone_still_tells_its_key() -> None:
    deleted = LastRecord(b'{"id": 5}', None, 8)

    found = end_keys(TABLE, [SHOP], FakeTransport({at("shop.s_00.orders"): deleted}))

    assert [key.key for key in found] == ['["shop","s_00.orders","5"]']


@dataclass(frozen=True, slots=True)
class HeaderKeyed(PlainFormat):
    """A toy format whose key stands in a header, and counts only if the message has a time."""

    columns: tuple[str, ...] = ("headers", "timestamp")

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        told = batch.select(["topic", *self.columns]).to_pylist()
        return build_batch(
            (index, Decoded(Op.UPDATE, A.name, one["headers"][0]["value"].decode()))
            for index, one in enumerate(told)
            if one["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
        )


@pytest.mark.parametrize(
    ("time", "found"),
    [
        pytest.param(1_700_000_000_123, ['["shop","s_00.orders","5"]'], id="with its time"),
        pytest.param(-1, [], id="without a time"),
    ],
)
def test_a_format_is_given_the_columns_it_asks_for(time: int, found: list[str]) -> None:
    own = KeyedTopics("shop", PATTERN, HeaderKeyed())
    last = LastRecord(None, b"", 8, time, (("key", b'["5"]'),))

    keys = end_keys(TABLE, [own], FakeTransport({at("shop.s_00.orders"): last}))

    assert [key.key for key in keys] == found


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(LastRecord(b"{", b"{", 8), id="broken"),
        pytest.param(LastRecord(None, b'{"op": "c"}', 8), id="no key"),
    ],
)
def test_what_cannot_be_decoded_tells_nothing(last: LastRecord) -> None:
    assert end_keys(TABLE, [SHOP], FakeTransport({at("shop.s_00.orders"): last})) == ()


def test_a_source_that_holds_no_shard_of_the_table_is_not_asked() -> None:
    other = KeyedTopics("other", PATTERN, SHOP.format)
    transport = FakeTransport({at("shop.s_00.orders"): record(A.name, 5)})

    assert end_keys(TABLE, [other], transport) == ()
    assert transport.asked == set()
