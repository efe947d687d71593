"""Topics by name, their records, their settings, and the key that each partition ends with."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaAdminClient
from kafka.admin._configs import ConfigAdminMixin
from kafka.errors import TopicAuthorizationFailedError
from kafka.protocol.admin import DescribeConfigsResponse

from pipeline.errors import UnreachableError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Decoded, Schemas, build_batch
from pipeline.model import Op, PartitionEnd, Shard, ShardId, Table, TopicPartition
from pipeline.readings import LogKey
from pipeline.transports import topics
from pipeline.transports.topics import (
    DEMANDS,
    KeyedTopics,
    LastRecord,
    Spans,
    TopicFacts,
    describe_topics,
    end_keys,
    find_topic_hazards,
    read_last_records,
    read_spans,
    require_described,
    spell_topic,
)
from tests.pipeline.formats.plain_format import PlainFormat


@pytest.mark.parametrize(
    ("shard", "name"),
    [
        pytest.param("shop.orders_1", "shop.orders_1", id="as it is"),
        pytest.param("shop.Order-Lines", "shop.Order-Lines", id="capitals and a dash stay"),
        pytest.param('shop.we"ird/../<b>', "shop.we_ird_..__b_", id="one for each odd letter"),
        pytest.param("shop.größe", "shop.gr__e", id="no letter beyond ASCII"),
    ],
)
def test_what_a_topic_may_not_hold_is_an_underscore(shard: str, name: str) -> None:
    assert spell_topic(shard) == name


@pytest.mark.parametrize(
    ("database", "relation", "topic"),
    [
        pytest.param("shop", "orders", "shop.orders", id="plain"),
        pytest.param("shop", "a.b", "shop.a.b", id="a dot in the table"),
        pytest.param("odd.names", "t", "odd.names.t", id="a dot in the database"),
        pytest.param("shop", "../a'b/c", "shop..._a_b_c", id="a path"),
        pytest.param("shop", 'say "x"', "shop.say__x_", id="quotes"),
    ],
)
def test_f115_a_shard_has_both_its_names_whatever_they_hold(
    database: str, relation: str, topic: str
) -> None:
    shard = Shard("shop", str(ShardId(database, relation)))

    assert (shard.database, shard.relation) == (database, relation)
    assert spell_topic(shard.name) == topic
    assert ShardId.read(shard.name) == shard.id


def test_f115_a_text_that_is_not_canonical_is_parted_at_its_first_dot() -> None:
    assert ShardId.read("shop.a.b") == ShardId("shop", "a.b")


def test_a_name_alone_is_written_without_a_dot() -> None:
    assert spell_topic("heart beat") == "heart_beat"


SOON = timedelta(seconds=5)
ONE = ("t", 0)
Place = tuple[str, int]


@dataclass
class Message:
    topic: str
    partition: int
    offset: int
    timestamp: int = 1_700_000_000_123
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass
class FakeConsumer:
    """Partitions as sets of offsets up to an end; a poll gives a few records of each."""

    kept: Mapping[Place, set[int]]
    end: int
    at: dict[Place, int] = field(default_factory=dict)
    paused: set[Place] = field(default_factory=set)

    def assign(self, partitions: Sequence[Place]) -> None:
        self.at = dict.fromkeys(partitions, 0)
        self.paused = set()

    def seek(self, partition: Place, offset: int) -> None:
        self.at[partition] = offset

    def position(self, partition: Place) -> int:
        return self.at[partition]

    def pause(self, *partitions: Place) -> None:
        self.paused |= set(partitions)

    def poll(self, timeout_ms: int) -> Mapping[Place, Sequence[Message]]:
        assert timeout_ms > 0
        return {p: self._take(p) for p in self.at if p not in self.paused}

    def _take(self, partition: Place) -> list[Message]:
        start = self.at[partition]
        self.at[partition] = min(start + 3, self.end)
        span = range(start, self.at[partition])
        return [Message(*partition, n) for n in span if n in self.kept[partition]]


places = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1))
logs = st.dictionaries(places, st.sets(st.integers(0, 39)), min_size=1)
edges = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair), max(pair)))


@given(logs, st.data())
def test_every_kept_record_of_a_span_comes_once_and_no_other(
    log: dict[Place, set[int]], data: st.DataObject
) -> None:
    consumer = FakeConsumer(log, 40)
    spans = {p: data.draw(edges) for p in log}

    found = read_spans(consumer, spans, SOON)

    wanted = [(*p, n) for p, (low, high) in spans.items() for n in log[p] if low <= n < high]
    assert sorted((r.topic, r.partition, r.offset) for r in found) == sorted(wanted)
    assert consumer.at == {}


@given(logs, st.data())
def test_the_newest_record_is_found_behind_any_hole(
    log: dict[Place, set[int]], data: st.DataObject
) -> None:
    consumer = FakeConsumer(log, 40)
    spans = {p: data.draw(edges) for p in log}

    found = read_last_records(lambda steps: read_spans(consumer, steps, SOON), spans)

    inside = {p: [n for n in log[p] if low <= n < high] for p, (low, high) in spans.items()}
    wanted = {p: LastRecord(b"k", b"v", max(some)) for p, some in inside.items() if some}
    assert found == wanted


@pytest.mark.parametrize("until", range(1, 90))
def test_a_lone_first_record_is_the_newest_however_far_the_end_is(until: int) -> None:
    consumer = FakeConsumer({ONE: {0}}, 100)

    assert set(
        read_last_records(lambda steps: read_spans(consumer, steps, SOON), {ONE: (0, until)})
    ) == {ONE}


def test_a_span_that_is_never_reached_ends_at_the_deadline() -> None:
    stuck = FakeConsumer({ONE: {0, 1}}, 2)

    with pytest.raises(UnreachableError, match="1 partitions not read"):
        read_spans(stuck, {ONE: (0, 3)}, timedelta(milliseconds=50))


def test_more_bytes_than_one_process_should_hold_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "MOST", 10)
    consumer = FakeConsumer({ONE: set(range(40))}, 40)

    with pytest.raises(UnreachableError, match="more than 10 bytes"):
        read_spans(consumer, {ONE: (0, 40)}, SOON)


@pytest.mark.parametrize(
    ("values", "offset"),
    [
        pytest.param([b"v", b"v"], 1, id="a row"),
        pytest.param([b"v", b"v", None], 1, id="the delete before its tombstone"),
        pytest.param([b"v", *[None] * 30], 0, id="however many tombstones follow"),
        pytest.param([None, None], 1, id="nothing but tombstones"),
    ],
)
def test_a_tombstone_is_the_last_record_only_where_there_is_no_other(
    values: list[bytes | None], offset: int
) -> None:
    log = [Message("t", 0, number, value=value) for number, value in enumerate(values)]

    def read(steps: Spans) -> list[Message]:
        ((first, until),) = steps.values()
        return log[first:until]

    assert read_last_records(read, {ONE: (0, len(log))})[ONE].offset == offset


def test_the_last_record_brings_its_time_and_its_headers() -> None:
    message = Message("t", 0, 4, headers=[("a", b"1"), ("a", None)])

    found = read_last_records(lambda _: [message], {("t", 0): (0, 5)})

    last = found["t", 0]
    assert (last.timestamp, last.headers) == (1_700_000_000_123, (("a", b"1"), ("a", None)))


RESULT = DescribeConfigsResponse.DescribeConfigsResult
ENTRY = RESULT.DescribeConfigsResourceResult
TOPIC_KIND, OWN, DEFAULT = 2, 1, 5  # a kind of resource; where a setting comes from
ORDERS = "shop.shop.orders"


def config_entry(name: str, value: str | None, source: int = DEFAULT) -> Any:
    fields = {"read_only": False, "is_sensitive": False, "synonyms": [], "config_type": 2}
    more = {"documentation": None, "config_source": source}
    return ENTRY(name=name, value=value, **fields, **more)


@dataclass
class Admin:
    """Topics as the client makes them of what a broker answers."""

    results: Sequence[Any]
    partitions: Sequence[Mapping[str, Any]] = ({"replica_nodes": [1, 2, 3]},)
    names: Sequence[str] = (ORDERS,)
    asked: list[str] = field(default_factory=list)
    later: Sequence[str] | None = None  # names once settings were asked for

    def describe_topics(self) -> list[dict[str, Any]]:
        names = self.later if self.asked and self.later is not None else self.names
        return [{"name": one, "partitions": list(self.partitions)} for one in names]

    def describe_configs(self, asked: Sequence[Any], config_filter: str) -> Mapping[str, Any]:
        self.asked = [one.name for one in asked]
        told = DescribeConfigsResponse(throttle_time_ms=0, results=list(self.results))
        made = ConfigAdminMixin._describe_configs_process_responses([told], config_filter)
        return cast(Mapping[str, Any], made)

    def described(self) -> tuple[TopicFacts, ...]:
        return describe_topics(cast(KafkaAdminClient, self), ".*")


def result(name: str, *entries: Any, error: int = 0) -> Any:
    return RESULT(
        *(error, None if not error else "Topic authorization failed.", TOPIC_KIND, name, [*entries])
    )


GOOD = config_entry("cleanup.policy", "delete")


@pytest.mark.parametrize(
    "results",
    [
        pytest.param(
            [result(ORDERS, error=TopicAuthorizationFailedError.errno)], id="it is refused"
        ),
        pytest.param([], id="nothing is said of it"),
        pytest.param([result("shop.shop.other", GOOD)], id="another is told"),
    ],
)
def test_f102_a_topic_whose_settings_are_not_told_is_unknown(results: list[Any]) -> None:
    (found,) = described = Admin(results).described()

    assert found == TopicFacts(ORDERS, 3, is_described=False)
    assert not any(found.meets(demand) for demand in DEMANDS), "nothing of it looks harmless"
    assert list(find_topic_hazards(described, "shop", frozenset(), routed=False)) == []
    with pytest.raises(UnreachableError, match=f"settings of {ORDERS} are unknown; grant Desc"):
        require_described(described)


def test_f102_many_topics_whose_settings_are_not_told_are_named_in_part() -> None:
    with pytest.raises(UnreachableError, match="settings of a, b, c and 2 more are unknown"):
        require_described(Admin([], names="abcde").described())


def test_f102_a_topic_that_is_not_told_hides_no_other() -> None:
    compact = result("p.db.t", config_entry("cleanup.policy", "compact", OWN))

    told, untold = Admin([compact], names=("p.db.t", "p.db.u")).described()

    assert told == TopicFacts("p.db.t", 3, {"cleanup.policy": "compact"})
    assert untold == TopicFacts("p.db.u", 3, is_described=False)


def test_f102_a_topic_that_was_deleted_before_its_settings_were_asked_for_is_absent() -> None:
    admin = Admin([result("kept", GOOD)], names=("gone", "kept"), later=("kept",))

    assert [one.name for one in admin.described()] == ["kept"]


def test_f102_a_topic_without_partitions_has_settings_all_the_same() -> None:
    (found,) = Admin([result(ORDERS, config_entry("cleanup.policy", "compact"))], ()).described()

    assert found == TopicFacts(
        ORDERS, 1, {"cleanup.policy": "compact"}, frozenset({"cleanup.policy"})
    )


def test_f102_whose_a_setting_is_and_one_without_a_value() -> None:
    compact, nothing = config_entry("cleanup.policy", "compact", OWN), config_entry("unclean", None)

    (found,) = Admin([result(ORDERS, compact, nothing, config_entry("x", "1"))]).described()

    assert found == TopicFacts(ORDERS, 3, {"cleanup.policy": "compact", "x": "1"}, frozenset({"x"}))


def test_no_topics_no_question() -> None:
    asked = Admin([], names=())

    assert asked.described() == ()
    assert asked.asked == []


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


def partition_of(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def test_each_partition_tells_the_key_it_ends_with() -> None:
    transport = FakeTransport(
        {
            partition_of("shop.s_01.orders"): record(B.name, 7, offset=3),
            partition_of("shop.s_00.orders", 1): record(A.name, 5),
            partition_of("shop.s_00.orders", 0): None,
            partition_of("shop.s_00.users"): record("s_00.users", 1),
        }
    )

    assert end_keys(TABLE, [SHOP], transport) == (
        LogKey(A, '["shop","s_00.orders","5"]', partition_of("shop.s_00.orders", 1), 8),
        LogKey(B, '["shop","s_01.orders","7"]', partition_of("shop.s_01.orders"), 3),
    )
    assert transport.asked == {"shop.s_00.orders", "shop.s_01.orders"}


def test_keys_that_are_unique_across_shards_stand_alone() -> None:
    table = Table("shop.orders", (A,), ("id",), unique_across_shards=True)
    transport = FakeTransport({partition_of("shop.s_00.orders"): record(A.name, 5)})

    assert [found.key for found in end_keys(table, [SHOP], transport)] == ['["5"]']


def test_a_folded_topic_is_searched_and_other_tables_rows_in_it_are_none_of_ours() -> None:
    transport = FakeTransport(
        {
            partition_of("shop.all.rows", 0): record(A.name, 5),
            partition_of("shop.all.rows", 1): record("x.users", 1),
        }
    )

    found = end_keys(TABLE, [SHOP], transport)

    assert [(key.shard, key.at.partition) for key in found] == [(A, 0)]


def test_a_tombstone_still_tells_its_key() -> None:
    deleted = LastRecord(b'{"id": 5}', None, 8)

    found = end_keys(TABLE, [SHOP], FakeTransport({partition_of("shop.s_00.orders"): deleted}))

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

    keys = end_keys(TABLE, [own], FakeTransport({partition_of("shop.s_00.orders"): last}))

    assert [key.key for key in keys] == found


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(LastRecord(b"{", b"{", 8), id="broken"),
        pytest.param(LastRecord(None, b'{"op": "c"}', 8), id="no key"),
    ],
)
def test_what_cannot_be_decoded_tells_nothing(last: LastRecord) -> None:
    assert end_keys(TABLE, [SHOP], FakeTransport({partition_of("shop.s_00.orders"): last})) == ()


def test_a_source_that_holds_no_shard_of_the_table_is_not_asked() -> None:
    other = KeyedTopics("other", PATTERN, SHOP.format)
    transport = FakeTransport({partition_of("shop.s_00.orders"): record(A.name, 5)})

    assert end_keys(TABLE, [other], transport) == ()
    assert transport.asked == set()
