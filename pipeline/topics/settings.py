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
from pipeline.finding import EVERY, Demand, Effect, Finding, alternatives, joined, unmet

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

    ``inherited`` names the settings that are the broker's.  Kafka refuses to describe a topic that
    is not ``told``: it has no settings here, which says nothing about them.
    """

    name: str
    copies: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    inherited: frozenset[str] = frozenset()
    told: bool = True

    def meets(self, demand: Demand) -> bool:
        """Whether its setting is known, and will do."""
        return self.told and demand.met(self.settings.get(demand.name, str(demand.default)))


def hazards(
    topics: Iterable[TopicFacts], prefix: str, others: frozenset[str], *, routed: bool
) -> Iterator[Finding]:
    """What in the settings of a source's *topics* drops changes, each of the topic's own table.

    What they have by a default of the brokers is told once, with one alternative of ``shards`` for
    each topic; what else a finding says does not depend on which other topics there are.  The topic
    of statements is called *prefix*, and concerns all tables; where rows are *routed*, each does.
    *others* hold no row of a table.  Topics that are not told are left out, see `untold_parts`.
    """
    own = [topic for topic in topics if topic.told and topic.name not in others]
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
            shards=_concerned(told, prefix, routed=routed),
        )


def untold_parts(
    hazard: Finding, untold: Collection[str], prefix: str, *, routed: bool
) -> frozenset[str]:
    """Return the alternatives of *hazard*'s ``shards`` that are of topics named in *untold*.

    *hazard* is one that ``hazards`` made, now or earlier; of others there are none.
    """
    if hazard.where != WHERE or not untold:
        return frozenset()
    parts = alternatives(hazard.shards)
    own = re.match(r"topic (\S+): ", hazard.what)
    if own is not None:
        return parts if own[1] in untold else frozenset()
    return parts & alternatives(_concerned(untold, prefix, routed=routed))


def untold_text(names: Iterable[str]) -> str:
    """Say that the settings of the topics *names* are not told: the first three by name."""
    first = sorted(names)
    more = f" and {len(first) - 3} more" if len(first) > 3 else ""
    return f"settings of {', '.join(first[:3])}{more} are not told; grant DescribeConfigs"


def require_told(topics: Iterable[TopicFacts]) -> None:
    """Return if all of *topics* are told.

    Raises:
        UnreachableError: names those that are not.
    """
    if names := [topic.name for topic in topics if not topic.told]:
        raise UnreachableError(untold_text(names))


def _concerned(topics: Collection[str], prefix: str, *, routed: bool) -> str:
    """Tables whose rows are sent into *topics*, as a finding says it."""
    if routed:
        return ""
    own = {EVERY if name == prefix else _shards(name.removeprefix(f"{prefix}.")) for name in topics}
    return joined(own)


def _shards(name: str) -> str:
    """Names of tables that are spelled *name* in a topic, with quotes where they need some."""
    parts = (re.escape(part).replace("_", r"[^A-Za-z0-9.-]") for part in name.split("."))
    return '"?' + r'"?\."?'.join(parts) + '"?'


def topic_facts(
    cluster: Mapping[str, Any], pattern: str, timeout: timedelta = timedelta(seconds=10)
) -> tuple[TopicFacts, ...]:
    """Describe the topics whose whole name matches *pattern*, sorted; empty if there are none.

    *cluster* are kafka-python's arguments for it.  A topic that Kafka does not describe is not
    ``told``: the user has no right to ``DescribeConfigs`` on it.

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
            return _described(admin, pattern)
        finally:
            admin.close()
    except (KafkaError, OSError) as error:
        msg = f"Kafka at {','.join(cluster['bootstrap_servers'])}: {class_and_text(error)}"
        raise UnreachableError(msg) from error


def _described(admin: KafkaAdminClient, pattern: str) -> tuple[TopicFacts, ...]:
    topics = _listed(admin, pattern)
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(topics)]
    found = admin.describe_configs(asked, config_filter="all").get("topic", {}) if asked else {}
    untold = {name for name in topics if not found.get(name)}
    if untold:  # the client drops the error of a topic; one that is told has dozens of settings
        untold &= _listed(admin, pattern).keys()  # others were deleted meanwhile
    return tuple(
        _facts(name, topics[name], found[name]) if found.get(name) else _untold(name, topics[name])
        for name in sorted(topics)
        if found.get(name) or name in untold
    )


def _listed(admin: KafkaAdminClient, pattern: str) -> dict[str, Mapping[str, Any]]:
    return {
        topic["name"]: topic
        for topic in admin.describe_topics()
        if re.fullmatch(pattern, topic["name"])
    }


def _untold(name: str, topic: Mapping[str, Any]) -> TopicFacts:
    return replace(_facts(name, topic, {}), told=False)


def _facts(name: str, topic: Mapping[str, Any], entries: Mapping[str, Any]) -> TopicFacts:
    """A topic that is being made has no partitions yet; a setting without a value says nothing."""
    told = {key: entry for key, entry in entries.items() if entry["value"] is not None}
    return TopicFacts(
        name,
        min((len(part["replica_nodes"]) for part in topic["partitions"]), default=1),
        {key: str(entry["value"]) for key, entry in told.items()},
        frozenset(key for key, entry in told.items() if entry["config_source"] != OWN),
    )
