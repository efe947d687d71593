"""Checks topic settings that drop changes, reads last records, and names the topics of tables.

`find_topic_hazards` finds the settings for which the running service withholds READY.
`checks.doctor` judges all settings. Both use the demands defined here. A short retention is no
hazard: what it deletes is found as a gap, by offsets.

A span is a pair `(first, until)` and excludes `until`. One consumer reads spans, for few records.
Offsets may be absent inside a span, even at its end, because of compaction and transaction markers.
A span is read once the consumer's position has reached `until`.

`end_keys` finds the row key that is last in each partition of a table's topics. Cannot detect:
changes that the collector never sent, because only what arrived in a topic is visible.

`spell_topic` writes the name of a shard as collectors do in a topic name. Two shards may get the
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
POLL = timedelta(milliseconds=20)  # if the last offsets of a span are absent, no record comes
WIDEST_STEP = 65_536

Spans = Mapping[tuple[str, int], tuple[int, int]]  # topic and partition: first, until


class Record(Protocol):
    """One message as a client returns it; a tombstone has no value."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Consumer(Protocol):
    """The used methods of a reading client; ``Any`` is its own type of a partition."""

    def assign(self, partitions: Sequence[Any]) -> None:
        """Read these partitions from now on, and no others."""
        ...

    def seek(self, partition: Any, offset: int) -> None:
        """Continue at *offset*."""
        ...

    def poll(self, timeout_ms: int) -> Mapping[Any, Sequence[Record]]:
        """Return the records at the positions, and move the positions past them."""
        ...

    def position(self, partition: Any) -> int:
        """Return the offset that is read next; it moves past absent offsets, too."""
        ...

    def pause(self, *partitions: Any) -> None:
        """Stop fetching these partitions."""
        ...


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The newest data record of a partition: the newest with a value, else the newest without.

    ``timestamp`` is in milliseconds, -1 if the record has none. Equality ignores ``timestamp`` and
    ``headers``.
    """

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int = field(default=-1, compare=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), compare=False)


def read_spans(
    consumer: Consumer, spans: Mapping[Any, tuple[int, int]], within: timedelta
) -> list[Record]:
    """Return every record in *spans*, ascending within a partition; empty spans cost nothing.

    Raises:
        UnreachableError: an end was not reached *within* that time, or records are too large.
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
    consumer.assign([])  # else it would continue to fetch them
    return kept


def read_last_records(
    read: Callable[[Spans], Iterable[Record]],
    spans: Spans,
) -> dict[tuple[str, int], LastRecord]:
    """Return the last record in each span by topic and partition.

    The search takes growing steps from the end. The first step reads one offset: in most logs the
    record before the end is the answer. A record with a value goes before a tombstone, which
    follows its delete and names no table.
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
    """The methods of a transport that are needed here."""

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Return topics whose whole name matches, with their ids."""
        ...

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Return the next offset of each partition."""
        ...

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        """Return the newest data record of each partition that has one."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedTopics:
    """The topics of a source's rows: the source, the pattern of their names, and their format.

    ``registry`` has the schemas that the format needs. Keys are written as ``standards`` define.
    """

    source: str
    pattern: str
    format: Format
    registry: SchemaRegistry | None = None
    standards: Standards = NO_STANDARDS


def end_keys(table: Table, origins: Sequence[KeyedTopics], transport: Ends) -> tuple[LogKey, ...]:
    """Return, per partition, the key of the last message if that is a row of *table*.

    A topic may hold rows of other tables, too. A partition that ends in such a row is absent. A
    partition whose last message cannot be decoded is absent, too; the message lands in quarantine.
    """
    found: list[LogKey] = []
    for origin in origins:
        names = own_topics(table, origin, transport.topics(origin.pattern))
        records = transport.last_records(transport.ends(names))
        keys = (_key(table, origin, at, record) for at, record in records.items())
        found += [one for one in keys if one is not None]
    return tuple(sorted(found, key=lambda one: (one.at.topic, one.at.partition)))


def own_topics(table: Table, origin: KeyedTopics, names: Iterable[str]) -> list[str]:
    """Return the topics named after the table's shards; all, unless each shard has its own."""
    shards = [shard.name for shard in table.shards if shard.source == origin.source]
    own = {shard: [name for name in names if name.endswith(f".{shard}")] for shard in shards}
    return [name for some in own.values() for name in some] if all(own.values()) else list(names)


def _key(
    table: Table, origin: KeyedTopics, at: TopicPartition, record: LastRecord
) -> LogKey | None:
    """Return the key of the last change in a message; None if it is no row of *table*."""
    changes = decode_changes(table, origin, _batch(origin.format, at, record)).to_pylist()
    message = changes[-1] if changes else {"error": "nothing"}
    if message["error"] is not None:
        return None
    found = find_log_key(table, origin.source, message["shard"], message["key_values"])
    return None if found is None else LogKey(*found, at, record.offset)


def decode_changes(table: Table, origin: KeyedTopics, raw: pa.RecordBatch) -> pa.RecordBatch:
    """Decode messages, and apply the standards of *table* to its changes."""
    decoded = decode_with_registry(origin.format, origin.registry, raw)
    own = {shard.name for shard in table.shards if shard.source == origin.source}
    whose = [table.name if name in own else None for name in decoded["shard"].to_pylist()]
    return standardise_batch(decoded, pa.array(whose, pa.string()), origin.standards)


def find_log_key(
    table: Table, source: str, relation: str | None, key_values: str | None
) -> tuple[Shard, str] | None:
    """Return shard and key of a decoded change as in the change log; None if not of *table*."""
    if relation is None or key_values is None:
        return None
    shard = Shard(source, relation)
    if shard not in table.shards:
        return None
    own = key.parse_key(key_values)
    unique = table.unique_across_shards
    return shard, key.canonical_key(own, source, relation, unique=unique)


def _batch(format_: Format, at: TopicPartition, record: LastRecord) -> pa.RecordBatch:
    """Return the record as the format receives it when it lands."""
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
WHERE = "Kafka"  # ``where`` of all findings about topics
REMEDY = "kafka-configs --alter --topic {topic} --add-config {{name}}={{value}}"
OF_BROKERS = "kafka-configs --alter --entity-type brokers --entity-default --add-config {entry}"
BROKERS_SAY = {COMPACTED.name: "log.cleanup.policy"}  # other names of a setting on brokers
OWN = "DYNAMIC_TOPIC_CONFIG"  # ``config_source`` of a setting that was set for the topic


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic with its replica count (``copies``) and its settings, including the broker's.

    ``inherited`` names the settings that come from the broker. ``is_described`` is False if Kafka
    refused to describe the topic; then its settings are unknown.
    """

    name: str
    copies: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    inherited: frozenset[str] = frozenset()
    is_described: bool = True

    def meets(self, demand: Demand) -> bool:
        """Return whether the setting is known and meets *demand*."""
        return self.is_described and demand.met(self.settings.get(demand.name, str(demand.default)))


def find_topic_hazards(
    topics: Iterable[TopicFacts], prefix: str, others: frozenset[str], *, routed: bool
) -> Iterator[Finding]:
    """Yield the settings of a source's *topics* that drop changes, with the tables they concern.

    A default of the brokers is one finding, with one alternative of ``shards`` for each topic. The
    rest of a finding does not depend on which other topics exist. The topic of statements is called
    *prefix*, and concerns all tables. If rows are *routed*, each topic concerns all tables. Topics
    named in *others* hold no row of a table. Topics without settings are left out, see
    `undescribed_parts`.
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

    The result is empty for hazards that `find_topic_hazards` did not make, now or earlier.
    """
    if hazard.where != WHERE or not undescribed:
        return frozenset()
    parts = split_alternatives(hazard.shards)
    own = re.match(r"topic (\S+): ", hazard.identity)
    if own is not None:
        return parts if own[1] in undescribed else frozenset()
    return parts & split_alternatives(_concerned(undescribed, prefix, routed=routed))


def undescribed_text(names: Iterable[str]) -> str:
    """Return the text of unknown settings of the topics *names*; it lists the first three."""
    first = sorted(names)
    more = f" and {len(first) - 3} more" if len(first) > 3 else ""
    return f"settings of {', '.join(first[:3])}{more} are unknown; grant DescribeConfigs"


def require_described(topics: Iterable[TopicFacts]) -> None:
    """Return if the settings of all *topics* are known.

    Raises:
        UnreachableError: names the topics whose settings are unknown.
    """
    if names := [topic.name for topic in topics if not topic.is_described]:
        raise UnreachableError(undescribed_text(names))


def _concerned(topics: Collection[str], prefix: str, *, routed: bool) -> str:
    """Return the tables whose rows are sent into *topics*, in the form of ``Finding.shards``."""
    if routed:
        return ""
    own = {EVERY if name == prefix else _shards(name.removeprefix(f"{prefix}.")) for name in topics}
    return join_alternatives(own)


def _shards(name: str) -> str:
    """Return a pattern of tables that are spelled *name* in a topic; quotes are optional."""
    parts = (re.escape(part).replace("_", r"[^A-Za-z0-9.-]") for part in name.split("."))
    return '"?' + r'"?\."?'.join(parts) + '"?'


def topic_facts(
    cluster: Mapping[str, Any], pattern: str, timeout: timedelta = timedelta(seconds=10)
) -> tuple[TopicFacts, ...]:
    """Describe the topics whose whole name matches *pattern*, sorted; empty if there are none.

    *cluster* are kafka-python's connection arguments. A topic has ``is_described`` False if the
    user may not ``DescribeConfigs`` on it.

    Raises:
        UnreachableError: Kafka does not answer.
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
        undescribed &= _listed(admin, pattern).keys()  # without topics that were deleted meanwhile
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
    """Make `TopicFacts`; a topic in creation has no partitions yet, a null setting is omitted."""
    with_value = {key: entry for key, entry in entries.items() if entry["value"] is not None}
    return TopicFacts(
        name,
        min((len(part["replica_nodes"]) for part in topic["partitions"]), default=1),
        {key: str(entry["value"]) for key, entry in with_value.items()},
        frozenset(key for key, entry in with_value.items() if entry["config_source"] != OWN),
    )


def spell_topic(shard: str) -> str:
    """Return *shard* (``database.table``, or one name alone) as collectors spell it in topics.

    Collectors write ``_`` for characters that a topic name may not hold. The spelling omits the
    quotes that Sluice's names have around a name with a dot.

    Two shards may be spelled alike, and then share a topic.
    """
    own = ShardId.read(shard)
    text = f"{own.database}.{own.relation}" if own.relation else own.database
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)


def topic_endings(topic: str) -> Iterator[str]:
    """Return the candidates for the shard in a topic name: the text after each of its dots."""
    parts = topic.split(".")
    return (".".join(parts[start:]) for start in range(1, len(parts)))
