"""Checks topic settings that drop changes, reads last records, and names the topics of tables.

`hazards` finds the settings for which the running service withholds READY. `checks.doctor`
judges all settings. Both use the demands defined here. A short retention is no hazard: what it
deletes is found as a gap, by offsets.

A span is a pair `(first, until)` and excludes `until`. One consumer reads spans, for few
records. Offsets may be absent inside a span, even at its end, because of compaction and
transaction markers. A span is read once the consumer's position has reached `until`.

`end_keys` finds the row key that is last in each partition of a table's topics. Cannot detect:
changes that the collector never sent, because only what arrived in a topic is visible.

`spelled` writes the name of a shard as collectors do in a topic name. Two shards may get the
same spelling, and then share a topic.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

import pyarrow as pa
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from pipeline.errors import UnreachableError, class_and_text
from pipeline.finding import (
    EVERY,
    Demand,
    Effect,
    Finding,
    find_unmet,
    join_alternatives,
    split_alternatives,
)
from pipeline.formats import json_text as key
from pipeline.formats.format import OPTIONAL, RAW, Format
from pipeline.formats.schema_registry import SchemaRegistry, decode_with_registry
from pipeline.model import PartitionEnd, Shard, ShardId, Table, TopicPartition
from pipeline.readings import LogKey
from pipeline.standards.table_standards import NO_STANDARDS, Standards, standardise_batch

MOST = 256 * 2**20  # bytes of keys and values in one read
POLL = timedelta(milliseconds=20)  # a span that ends in a hole has no record to wake up for
WIDEST_STEP = 65_536

Spans = Mapping[tuple[str, int], tuple[int, int]]  # topic and partition: first, until


class Record(Protocol):
    """One message as a client hands it over; a tombstone has no value."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Consumer(Protocol):
    """What is asked of a client that reads; ``Any`` is the client's own word for a partition."""

    def assign(self, partitions: Sequence[Any]) -> None:
        """Read these from now on, and no others."""
        ...

    def seek(self, partition: Any, offset: int) -> None:
        """Go on at *offset*."""
        ...

    def poll(self, timeout_ms: int) -> Mapping[Any, Sequence[Record]]:
        """Records at the positions, which move past them."""
        ...

    def position(self, partition: Any) -> int:
        """Offset that is read next; it moves past holes, too."""
        ...

    def pause(self, *partitions: Any) -> None:
        """Fetch no more of these."""
        ...


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The newest data record of a partition with a value, or without one where none has any.

    ``timestamp`` in milliseconds; -1 where none was written.  Neither it nor the headers tell one
    record from another.
    """

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int = field(default=-1, compare=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), compare=False)


def read_spans(
    consumer: Consumer, spans: Mapping[Any, tuple[int, int]], within: timedelta
) -> list[Record]:
    """Every record in *spans*, ascending within a partition; empty spans cost nothing.

    Raises:
        UnreachableError: if they were not read to their ends *within* that time, or hold too much.
    """
    deadline = time.monotonic() + within.total_seconds()
    left = {at: span for at, span in spans.items() if span[0] < span[1]}
    _aim(consumer, left)
    kept: list[Record] = []
    size = 0
    while left:
        if time.monotonic() > deadline:
            msg = f"{len(left)} partitions not read within {within}, for example {next(iter(left))}"
            raise UnreachableError(msg)
        for at, records in consumer.poll(timeout_ms=POLL // timedelta(milliseconds=1)).items():
            taken = [r for r in records if at in left and r.offset < left[at][1]]
            size += sum(len(r.key or b"") + len(r.value or b"") for r in taken)
            kept += taken
        if size > MOST:
            msg = f"more than {MOST} bytes in {len(spans)} partitions"
            raise UnreachableError(msg)
        done = [at for at, (_, until) in left.items() if consumer.position(at) >= until]
        consumer.pause(*done)
        left = {at: span for at, span in left.items() if at not in done}
    consumer.assign([])  # or it would go on fetching what nobody has asked for
    return kept


def read_last_records(
    read: Callable[[Spans], Iterable[Record]],
    spans: Spans,
) -> dict[tuple[str, int], LastRecord]:
    """Last record in each span by topic and partition, found in growing steps from the end.

    A step starts at one offset: in most logs the record before the end is the answer.  A tombstone
    follows its delete and does not tell whose it is, so one with a value goes before it.
    """
    found: dict[tuple[str, int], LastRecord] = {}
    first = {at: low for at, (low, _) in spans.items()}
    open_ends = {at: until for at, (low, until) in spans.items() if low < until}
    step = 1
    while open_ends:
        steps = {at: (max(first[at], end - step), end) for at, end in open_ends.items()}
        records = list(read(steps))  # ascending: the last one stays
        seen = {(r.topic, r.partition): _last(r) for r in records if r.value is not None}
        dead = {(r.topic, r.partition): _last(r) for r in records if r.value is None}
        found = {**dead, **found, **seen}
        open_ends = {
            at: low for at, (low, _) in steps.items() if low > first[at] and at not in seen
        }
        step = min(step * 8, WIDEST_STEP)
    return found


def _last(record: Record) -> LastRecord:
    headers = tuple(record.headers)
    return LastRecord(record.key, record.value, record.offset, record.timestamp, headers)


def _aim(consumer: Consumer, spans: Mapping[Any, tuple[int, int]]) -> None:
    consumer.assign(list(spans))
    for at, (first, _) in spans.items():
        consumer.seek(at, first)


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

    ``registry`` has the schemas that the format needs; keys are as ``standards`` write them.
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
        names = own_topics(table, origin, transport.topics(origin.pattern))
        records = transport.last_records(transport.ends(names))
        keys = (_key(table, origin, at, record) for at, record in records.items())
        found += [one for one in keys if one is not None]
    return tuple(sorted(found, key=lambda one: (one.at.topic, one.at.partition)))


def own_topics(table: Table, origin: KeyedTopics, names: Iterable[str]) -> list[str]:
    """Topics named for the table's shards; all of them, unless every shard has one of its own."""
    shards = [shard.name for shard in table.shards if shard.source == origin.source]
    own = {shard: [name for name in names if name.endswith(f".{shard}")] for shard in shards}
    return [name for some in own.values() for name in some] if all(own.values()) else list(names)


def _key(
    table: Table, origin: KeyedTopics, at: TopicPartition, record: LastRecord
) -> LogKey | None:
    """Key of the last change in a message; None if it holds none of *table*."""
    changes = decode_changes(table, origin, _batch(origin.format, at, record)).to_pylist()
    message = changes[-1] if changes else {"error": "nothing"}
    if message["error"] is not None:
        return None
    found = find_log_key(table, origin.source, message["shard"], message["key_values"])
    return None if found is None else LogKey(*found, at, record.offset)


def decode_changes(table: Table, origin: KeyedTopics, raw: pa.RecordBatch) -> pa.RecordBatch:
    """Decode messages, and write the changes of *table* among them as its standards do."""
    decoded = decode_with_registry(origin.format, origin.registry, raw)
    own = {shard.name for shard in table.shards if shard.source == origin.source}
    whose = [table.name if name in own else None for name in decoded["shard"].to_pylist()]
    return standardise_batch(decoded, pa.array(whose, pa.string()), origin.standards)


def find_log_key(
    table: Table, source: str, relation: str | None, key_values: str | None
) -> tuple[Shard, str] | None:
    """Shard and key of a decoded change as the change log has them; None if not of *table*."""
    if relation is None or key_values is None:
        return None
    shard = Shard(source, relation)
    if shard not in table.shards:
        return None
    own = key.parse_key(key_values)
    unique = table.unique_across_shards
    return shard, key.canonical_key(own, source, relation, unique=unique)


def _batch(format_: Format, at: TopicPartition, record: LastRecord) -> pa.RecordBatch:
    """The record as the format is given it when it lands."""
    values = {
        "key": record.key,
        "value": record.value,
        "topic": at.topic,
        "partition": at.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp < 0 else record.timestamp * 1_000,
        "headers": [{"name": name, "value": value} for name, value in record.headers] or None,
    }
    asked = [*RAW, *(pa.field(name, OPTIONAL[name]) for name in format_.columns)]
    arrays = [pa.array([values[field.name]], field.type) for field in asked]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(asked))


COMPACTED = Demand(
    "cleanup.policy",
    "compaction drops all but the newest record of a key: only the tombstone of a delete is left,"
    " and only the last statement of a database",
    good=("delete",),
    default="delete",
    effect=Effect.DROPS,
)
UNCLEAN = Demand(
    "unclean.leader.election.enable",
    "a broker that lags may take over and drop changes",
    good=("false",),
    default="false",
    effect=Effect.DROPS,
)
DEMANDS = (COMPACTED, UNCLEAN)
WHERE = "Kafka"  # all hazards of topics say so
REMEDY = "kafka-configs --alter --topic {topic} --add-config {{name}}={{value}}"
OF_BROKERS = "kafka-configs --alter --entity-type brokers --entity-default --add-config {entry}"
BROKERS_SAY = {COMPACTED.name: "log.cleanup.policy"}  # where they call it otherwise
OWN = "DYNAMIC_TOPIC_CONFIG"  # where a setting comes from that is the topic's own


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic: how many copies each partition has, and its settings, the broker's included.

    ``inherited`` names the settings that are the broker's.  Kafka refuses to describe a topic that
    is not `told`: its settings are unknown.
    """

    name: str
    copies: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    inherited: frozenset[str] = frozenset()
    is_described: bool = True

    def meets(self, demand: Demand) -> bool:
        """Whether its setting is known, and will do."""
        return self.is_described and demand.met(self.settings.get(demand.name, str(demand.default)))


def find_topic_hazards(
    topics: Iterable[TopicFacts], prefix: str, others: frozenset[str], *, routed: bool
) -> Iterator[Finding]:
    """What in the settings of a source's *topics* drops changes, each of the topic's own table.

    A default of the brokers is one finding, with one alternative of ``shards`` for
    each topic; what else a finding says does not depend on which other topics there are.  The topic
    of statements is called *prefix*, and concerns all tables; where rows are *routed*, each does.
    *others* hold no row of a table.  Topics without settings are left out, see `untold_parts`.
    """
    own = [topic for topic in topics if topic.is_described and topic.name not in others]
    inherited = defaultdict[str, dict[str, Finding]](dict)
    for topic in own:
        name = topic.name
        for one in find_unmet(DEMANDS, topic.settings, WHERE, remedy=REMEDY.format(topic=name)):
            if one.code in topic.inherited:
                inherited[one.what][name] = one
            else:
                yield replace(
                    one,
                    what=f"topic {name}: {one.what}",
                    shards=_concerned([name], prefix, routed=routed),
                    setting=f"topic {name}: {one.setting}",
                )
    for what, of_topics in inherited.items():
        one = next(iter(of_topics.values()))
        wanted = next(demand.good[0] for demand in DEMANDS if demand.name == one.code)
        yield replace(
            one,
            what=f"default for topics of {prefix}: {what}",
            fix=OF_BROKERS.format(entry=f"{BROKERS_SAY.get(one.code, one.code)}={wanted}"),
            shards=_concerned(of_topics, prefix, routed=routed),
            setting=f"default for topics of {prefix}: {one.setting}",
        )


def undescribed_parts(
    hazard: Finding, undescribed: Collection[str], prefix: str, *, routed: bool
) -> frozenset[str]:
    """Return the alternatives of *hazard*'s ``shards`` that are of topics named in *undescribed*.

    *hazard* is one that ``hazards`` made, now or earlier; of others there are none.
    """
    if hazard.where != WHERE or not undescribed:
        return frozenset()
    parts = split_alternatives(hazard.shards)
    own = re.match(r"topic (\S+): ", hazard.identity)
    if own is not None:
        return parts if own[1] in undescribed else frozenset()
    return parts & split_alternatives(_concerned(undescribed, prefix, routed=routed))


def undescribed_text(names: Iterable[str]) -> str:
    """Say that the settings of the topics *names* are unknown: the first three by name."""
    first = sorted(names)
    more = f" and {len(first) - 3} more" if len(first) > 3 else ""
    return f"settings of {', '.join(first[:3])}{more} are unknown; grant DescribeConfigs"


def require_described(topics: Iterable[TopicFacts]) -> None:
    """Return if the settings of all *topics* are known.

    Raises:
        UnreachableError: names those that are not.
    """
    if names := [topic.name for topic in topics if not topic.is_described]:
        raise UnreachableError(undescribed_text(names))


def _concerned(topics: Collection[str], prefix: str, *, routed: bool) -> str:
    """Tables whose rows are sent into *topics*, as a finding says it."""
    if routed:
        return ""
    own = {EVERY if name == prefix else _shards(name.removeprefix(f"{prefix}.")) for name in topics}
    return join_alternatives(own)


def _shards(name: str) -> str:
    """Names of tables that are spelled *name* in a topic, with quotes where they need some."""
    parts = (re.escape(part).replace("_", r"[^A-Za-z0-9.-]") for part in name.split("."))
    return '"?' + r'"?\."?'.join(parts) + '"?'


def topic_facts(
    cluster: Mapping[str, Any], pattern: str, timeout: timedelta = timedelta(seconds=10)
) -> tuple[TopicFacts, ...]:
    """Describe the topics whose whole name matches *pattern*, sorted; empty if there are none.

    *cluster* are kafka-python's arguments for it.  A topic that Kafka does not describe is not
    `told`: the user has no right to ``DescribeConfigs`` on it.

    Raises:
        UnreachableError: if Kafka does not answer.
    """
    wait = max(1, timeout // timedelta(milliseconds=1))
    try:
        admin = KafkaAdminClient(
            **cluster,
            client_id="sluice",
            request_timeout_ms=wait,
            bootstrap_timeout_ms=wait,
        )
        try:
            return describe_topics(admin, pattern)
        finally:
            admin.close()
    except (KafkaError, OSError) as error:
        msg = f"Kafka at {','.join(cluster['bootstrap_servers'])}: {class_and_text(error)}"
        raise UnreachableError(msg) from error


def describe_topics(admin: KafkaAdminClient, pattern: str) -> tuple[TopicFacts, ...]:
    """Return partitions and settings of the topics that match *pattern*."""
    topics = _listed(admin, pattern)
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(topics)]
    found = admin.describe_configs(asked, config_filter="all").get("topic", {}) if asked else {}
    undescribed = {name for name in topics if not found.get(name)}
    # the client drops the error of a topic; a topic that is described has dozens of settings
    if undescribed:
        undescribed &= _listed(admin, pattern).keys()  # others were deleted meanwhile
    return tuple(
        _facts(name, topics[name], found[name])
        if found.get(name)
        else _undescribed_topic(name, topics[name])
        for name in sorted(topics)
        if found.get(name) or name in undescribed
    )


def _listed(admin: KafkaAdminClient, pattern: str) -> dict[str, Mapping[str, Any]]:
    return {
        topic["name"]: topic
        for topic in admin.describe_topics()
        if re.fullmatch(pattern, topic["name"])
    }


def _undescribed_topic(name: str, topic: Mapping[str, Any]) -> TopicFacts:
    return replace(_facts(name, topic, {}), is_described=False)


def _facts(name: str, topic: Mapping[str, Any], entries: Mapping[str, Any]) -> TopicFacts:
    """A topic that is being made has no partitions yet; a setting without a value says nothing."""
    with_value = {key: entry for key, entry in entries.items() if entry["value"] is not None}
    return TopicFacts(
        name,
        min((len(part["replica_nodes"]) for part in topic["partitions"]), default=1),
        {key: str(entry["value"]) for key, entry in with_value.items()},
        frozenset(key for key, entry in with_value.items() if entry["config_source"] != OWN),
    )


def spell_topic(shard: str) -> str:
    """*shard* (``database.table``, or one name alone) as collectors write it in a topic's name.

    They put ``_`` for what a topic's name may not hold.  The names themselves count, without the
    quotes that ours have where a name holds a dot.

    Two shards may be spelled alike, and then share a topic.
    """
    own = ShardId.read(shard)
    text = f"{own.database}.{own.relation}" if own.relation else own.database
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)


def topic_endings(topic: str) -> Iterator[str]:
    """What may be the shard in a topic's name: all that follows one of its dots."""
    parts = topic.split(".")
    return (".".join(parts[start:]) for start in range(1, len(parts)))
