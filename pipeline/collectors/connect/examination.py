"""What is to be put right at a connector of Debezium, and what does it tell of the rest?  Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.collectors.collector import CollectorExamination, CollectorState
from pipeline.collectors.connect.capture_findings import heartbeat_findings
from pipeline.collectors.connect.connected import connected
from pipeline.collectors.connect.connector_findings import connector_findings
from pipeline.collectors.connect.producer_findings import (
    largest_record,
    producer_findings,
)
from pipeline.collectors.connect.versions import version_findings
from pipeline.finding import WARN, Finding
from pipeline.settings import SourceSettings

HISTORY = "schema.history.internal.kafka.topic"


def examination(
    settings: SourceSettings,
    state: CollectorState,
    config: Mapping[str, str],
    worker: Mapping[str, str] | None,
    plugins: Sequence[Any] = (),
) -> CollectorExamination:
    """Rule on its state, settings, producer and version, and whether it sends the heartbeat.

    *plugins* are those that its worker lists.
    """
    where = f"collector:{settings.name}"
    return CollectorExamination(
        (
            *_state(state, settings.collector.connector, where),
            *connector_findings(config, where, source=settings, worker=worker),
            *producer_findings(config, where, worker),
            *heartbeat_findings(config, settings.heartbeat, where),
            *version_findings(connected(settings.kind).least, config, plugins, where),
        ),
        kept_topic=config.get(HISTORY, ""),
        own_keys="message.key.columns" in config,
        largest=largest_record(config, worker),
    )


def _state(state: CollectorState, connector: str, where: str) -> list[Finding]:
    if state.running:
        return []
    what = f"connector {connector} is {state.state}: {state.detail}".rstrip(": ")
    fix = f"POST /connectors/{connector}/restart?includeTasks=true"
    return [Finding(WARN, "state", where, what, fix)]
