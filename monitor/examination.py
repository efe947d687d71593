"""What has the doctor to say about the servers that a config names?  Asks all, rules purely.

Needs no running service.  What cannot be asked is told as such: silence is no clean bill.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

from checks.doctor.capture import captured, heartbeat_findings
from checks.doctor.connector import connector_findings
from checks.doctor.producer import producer_findings
from checks.doctor.topics import topic_findings
from monitor.config.model import Config
from pipeline.build import open_collector, open_source, open_transport
from pipeline.collectors.collector import Collector
from pipeline.errors import SluiceError, UnreachableError
from pipeline.finding import REFUSE, WARN, Finding
from pipeline.route import Router
from pipeline.settings import PipelineSettings, SourceSettings
from pipeline.sources.scope import ExaminationScope, FoldedTable
from pipeline.sources.source import Source
from pipeline.topics.settings import TopicFacts
from pipeline.transports.transport import Transport

HISTORY = "schema.history.internal.kafka.topic"


@dataclass(frozen=True, slots=True)
class Doors:
    """Where facts come from."""

    collector: Callable[[SourceSettings], Collector] = open_collector
    source: Callable[[SourceSettings], Source] = open_source
    transport: Callable[[PipelineSettings], Transport] = open_transport


@dataclass(eq=False)
class Examination:
    """Findings so far, and what could not be asked, each with its reason.

    ``worker`` are the settings of Connect's workers, None where nobody told them.
    """

    config: Config
    worker: Mapping[str, str] | None
    outage: timedelta
    doors: Doors = field(default_factory=Doors)
    findings: list[Finding] = field(default_factory=list)
    unasked: list[tuple[str, str]] = field(default_factory=list)

    def run(self) -> None:
        """Examine each source, its collector and its topics."""
        for source in self.config.sources:
            connector, at = self._connector(source)
            topics = self._topics(source, connector)
            self._source(replace(source, host=at[0], port=at[1]), connector, topics)

    @property
    def refused(self) -> bool:
        """Whether something must be put right before a mirror can be believed."""
        return any(finding.severity is REFUSE for finding in self.findings)

    def _connector(self, source: SourceSettings) -> tuple[Mapping[str, str], tuple[str, int]]:
        """Its config, and the address of the server that the service would ask."""
        where, named = f"collector:{source.name}", (source.host, source.port)
        config: Mapping[str, str] = {}
        with self._asking(where), closing(self.doors.collector(source)) as collector:
            config, state = collector.config(), collector.state()
            if not state.running:
                what = f"connector {source.collector.connector} is {state.state}: {state.detail}"
                fix = f"POST /connectors/{source.collector.connector}/restart?includeTasks=true"
                self.findings.append(Finding(WARN, "state", where, what.rstrip(": "), fix))
            self.findings += connector_findings(
                config, where, prefix=source.collected_prefix, worker=self.worker
            )
            self.findings += producer_findings(config, where, self.worker)
            self.findings += heartbeat_findings(config, source.heartbeat, where)
            named = collector.address() if source.follow_collector else named
        return config, named

    def _topics(self, source: SourceSettings, connector: Mapping[str, str]) -> set[str]:
        """Rule on the topics; tables they are named for, ``database.table``."""
        where, found = f"kafka:{source.name}", tuple[TopicFacts, ...]()
        history, prefix = connector.get(HISTORY, ""), re.escape(source.prefix)
        names = (source.topic_pattern, prefix, rf"{prefix}\.transaction", re.escape(history))
        transport = self.doors.transport(self.config.settings)
        with self._asking(where), closing(transport):
            found = tuple(transport.settings("|".join(f"(?:{n})" for n in names if n)))
            self.findings += topic_findings(
                found, where, prefix=source.prefix, history=history, outage=self.outage
            )
        own = (re.fullmatch(rf"{prefix}\.([^.]+\.[^.]+)", topic.name) for topic in found)
        return {match[1] for match in own if match}

    def _source(
        self, source: SourceSettings, connector: Mapping[str, str], topics: set[str]
    ) -> None:
        with self._asking(f"source:{source.name}"), closing(self.doors.source(source)) as asked:
            scope = ExaminationScope(
                fold=_folding(self.config, source.heartbeat),
                outage=self.outage,
                captured=captured(connector),
                named=frozenset(topics),
                own_keys="message.key.columns" in connector,
            )
            self.findings += asked.examine(scope)

    @contextmanager
    def _asking(self, where: str) -> Iterator[None]:
        try:
            yield
        except UnreachableError as error:
            self.unasked.append((where, str(error)))
        except SluiceError as error:
            fix = "as it says; then ask again"
            self.findings.append(Finding(REFUSE, "not_allowed", where, str(error), fix))


def _folding(config: Config, heartbeat: str) -> Callable[[str], FoldedTable | None]:
    router = Router(config.tables)

    def fold(shard: str) -> FoldedTable | None:
        table, rule = router.table(shard), router.rule(shard)
        if table is None or shard == heartbeat:
            return None
        return FoldedTable(table, rule.key if rule else ())

    return fold
