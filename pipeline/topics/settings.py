"""Which settings have a source's topics, and which of them drop changes?

`checks.doctor` rules on all of them; ``hazards`` is what the running service withholds READY for.
Both go through ``DEMANDS``.  A retention is no hazard: what it removes is a gap, by offsets.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
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
WHERE = "Kafka"  # all hazards of topics say so
REMEDY = "kafka-configs --alter --topic {topic} --add-config {{name}}={{value}}"
OF_BROKERS = "kafka-configs --alter --entity-type brokers --entity-default --add-config {entry}"
BROKERS_SAY = {COMPACTED.name: "log.cleanup.policy"}  # where they call it otherwise
OWN = "DYNAMIC_TOPIC_CONFIG"  # where a setting comes from that is the topic's own


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic: how many copies each partition has, and its settings, the broker's included.

    ``inherited`` names the settings that are the broker's.
    """

    name: str
    copies: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    inherited: frozenset[str] = frozenset()

    def meets(self, demand: Demand) -> bool:
        """Whether its setting will do."""
        return demand.met(self.settings.get(demand.name, str(demand.default)))


def hazards(
    topics: Iterable[TopicFacts], prefix: str, others: frozenset[str], *, routed: bool
) -> Iterator[Finding]:
    """What in the settings of a source's *topics* drops changes, each of the topic's own table.

    What they have by a default of the brokers is told once; what a finding says does not depend on
    which other topics there are.  The topic of statements is called *prefix*, and concerns all
    tables; where rows are *routed*, each does.  *others* hold no row of a table.
    """
    own = [topic for topic in topics if topic.name not in others]
    inherited = defaultdict[str, dict[str, Finding]](dict)
    for topic in own:
        name = topic.name
        for one in unmet(DEMANDS, topic.settings, WHERE, remedy=REMEDY.format(topic=name)):
            if one.code in topic.inherited:
                inherited[one.what][name] = one
            else:
                shards = _concerned([name], prefix, routed=routed)
                yield replace(one, what=f"topic {name}: {one.what}", shards=shards)
    for what, told in inherited.items():
        one = next(iter(told.values()))
        wanted = next(demand.good[0] for demand in DEMANDS if demand.name == one.code)
        yield replace(
            one,
            what=f"default for topics of {prefix}: {what}",
            fix=OF_BROKERS.format(entry=f"{BROKERS_SAY.get(one.code, one.code)}={wanted}"),
            shards="" if len(told) == len(own) else _concerned(told, prefix, routed=routed),
        )


def _concerned(topics: Collection[str], prefix: str, *, routed: bool) -> str:
    """Tables whose rows are sent into *topics*, as a finding says it."""
    if routed or prefix in topics:
        return ""
    return "|".join(sorted(_shards(name.removeprefix(f"{prefix}.")) for name in topics))


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
    found = admin.describe_configs(asked, config_filter="all").get("topic", {}) if asked else {}
    refused = [name for name in sorted(topics) if not found.get(name)]
    if refused:  # the client drops the error of a topic; one that is told has dozens of settings
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        msg = f"settings of {', '.join(refused[:3])}{more} are not told; grant DescribeConfigs"
        raise UnreachableError(msg)
    return tuple(_facts(name, topics[name], found[name]) for name in sorted(topics))


def _facts(name: str, topic: Mapping[str, Any], entries: Mapping[str, Any]) -> TopicFacts:
    """A topic that is being made has no partitions yet; a setting without a value says nothing."""
    told = {key: entry for key, entry in entries.items() if entry["value"] is not None}
    return TopicFacts(
        name,
        min((len(part["replica_nodes"]) for part in topic["partitions"]), default=1),
        {key: str(entry["value"]) for key, entry in told.items()},
        frozenset(key for key, entry in told.items() if entry["config_source"] != OWN),
    )
