"""Which settings have a source's topics, and which of them drop changes?

`checks.doctor` rules on all of them; ``hazards`` is what the running service withholds READY for.
Both go through ``DEMANDS``.  A retention is no hazard: what it removes is a gap, by offsets.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from pipeline.errors import UnreachableError, class_and_text
from pipeline.finding import Demand, Effect, Finding, unmet

COMPACTED = Demand(
    "cleanup.policy",
    "compaction drops all but the newest record of a key: of a delete only its tombstone is left,"
    " and of the statements of a database the last",
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
REMEDY = "kafka-configs --alter --topic {topic} --add-config {{name}}={{value}}"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic: how many copies each partition has, and its settings, the broker's included."""

    name: str
    copies: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)

    def meets(self, demand: Demand) -> bool:
        """Whether its setting will do."""
        return demand.met(self.settings.get(demand.name, str(demand.default)))


def hazards(
    topics: Iterable[TopicFacts], prefix: str, others: frozenset[str], *, routed: bool
) -> Iterator[Finding]:
    """What in the settings of a source's *topics* drops changes, each of the topic's own table.

    What all of them have, as by a default of the broker, is told once.  The topic of statements is
    called *prefix*, and concerns all tables; where rows are *routed*, each does.  *others* hold no
    row of a table.
    """
    own = [topic for topic in topics if topic.name not in others]
    told = [
        (topic.name, one)
        for topic in own
        for one in unmet(DEMANDS, topic.settings, "Kafka", remedy=REMEDY.format(topic=topic.name))
    ]
    counts = Counter(one.what for _, one in told)
    shared = {one.what: one for _, one in told if counts[one.what] == len(own)}
    for one in shared.values():
        yield replace(one, what=f"every topic of {prefix}: {one.what}")
    for name, one in told:
        if one.what not in shared:
            every = routed or name == prefix
            shards = "" if every else _shards(name.removeprefix(f"{prefix}."))
            yield replace(one, what=f"topic {name}: {one.what}", shards=shards)


def _shards(name: str) -> str:
    """Names of tables that are spelled *name* in a topic, with quotes where they need some."""
    parts = (re.escape(part).replace("_", r"[^A-Za-z0-9.-]") for part in name.split("."))
    return '"?' + r'"?\."?'.join(parts) + '"?'


def topic_facts(
    cluster: Mapping[str, Any], pattern: str, timeout: timedelta = timedelta(seconds=10)
) -> tuple[TopicFacts, ...]:
    """Describe the topics whose whole name matches *pattern*, sorted; empty if there are none.

    *cluster* are kafka-python's arguments for it.

    Raises:
        UnreachableError: if Kafka does not answer, or may not be asked for settings.
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
            return _described(admin, pattern)
        finally:
            admin.close()
    except (KafkaError, OSError) as error:
        msg = f"Kafka at {','.join(cluster['bootstrap_servers'])}: {class_and_text(error)}"
        raise UnreachableError(msg) from error


def _described(admin: KafkaAdminClient, pattern: str) -> tuple[TopicFacts, ...]:
    topics = {
        topic["name"]: topic
        for topic in admin.describe_topics()
        if re.fullmatch(pattern, topic["name"])
    }
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(topics)]
    found = admin.describe_configs(asked, config_filter="all")["topic"] if asked else {}
    return tuple(
        TopicFacts(
            name,
            min(len(part["replica_nodes"]) for part in topics[name]["partitions"]),
            {key: str(entry["value"]) for key, entry in found[name].items()},
        )
        for name in sorted(found)
    )
