"""Which settings have a source's topics?  Facts only; `checks.doctor` rules."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from pipeline.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic: how many copies each partition has, and its settings, the broker's included."""

    name: str
    copies: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)


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
        msg = f"Kafka at {','.join(cluster['bootstrap_servers'])}: {type(error).__name__}: {error}"
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
