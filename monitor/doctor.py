"""Examines the lake and all servers that a config names, and collects findings.

It needs no running service. A part that does not answer is listed as unreachable, with what to
check first. A missing answer never counts as healthy.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from shlex import quote

from checks.doctor import check_order, check_topics, name_date_columns
from checks.probes.day_counts import NAME as DAY_COUNTS
from monitor.clients import source_orderings
from monitor.config.model import Config
from monitor.config.plans import CopyPlan
from monitor.config.sections import has_placeholder_address
from pipeline.build import (
    collection_scope,
    every_topic,
    open_collector,
    open_registry,
    open_source,
    open_transport,
)
from pipeline.collectors.collector import (
    USUAL,
    Collector,
    CollectorExamination,
    Registration,
    SettingDifference,
)
from pipeline.delta.log import LOG_FOLDER
from pipeline.delta.store import Store, open_store
from pipeline.errors import SluiceError, UnreachableError
from pipeline.finding import NOTE, REFUSE, WARN, Finding
from pipeline.model import Ordering, ShardId
from pipeline.settings import PipelineSettings, Router, SourceSettings
from pipeline.sources.replica import ReplicaChoice
from pipeline.sources.row_reader import read_replica
from pipeline.sources.source import ExaminationScope, FoldedTable, Source, read_limits
from pipeline.spark import jars
from pipeline.transports.topics import TopicFacts, require_described
from pipeline.transports.transport import Transport


@dataclass(frozen=True, slots=True)
class ExaminedPart:
    """An examined part: ``where`` is its name in findings, ``then`` what to check if it fails."""

    where: str
    then: str


@dataclass(frozen=True, slots=True)
class UnreachablePart:
    """A part that did not answer, and the error of the attempt."""

    where: str
    why: str
    then: str


def lake_part() -> ExaminedPart:
    """Return the lake, where tables are written."""
    return ExaminedPart(
        "lake",
        "is the bucket reached from here, at the endpoint, in the region and with the keys that the"
        " environment names (AWS_...)",
    )


def server_part(source: SourceSettings) -> ExaminedPart:
    """Return the database of *source*, at its address."""
    name, address = source.name, f"{source.host}:{source.port}"
    if has_placeholder_address(source):
        there = f"do all paths under `collector` of {name} exist, and can this machine read them"
        return ExaminedPart(f"source:{name}", there)
    followed = (
        f" ({address}; with follow_collector it may be the address in the collector's config)"
        if source.follow_collector
        else ""
    )
    return ExaminedPart(
        f"source:{name}",
        f"does the server run, is it reached from here under host and port of {name}{followed},"
        " and does its user get in with that password",
    )


def replica_part(source: SourceSettings, address: str) -> ExaminedPart:
    """Return the replica at *address*, which answers probes and backfills of the source."""
    name = source.name
    return ExaminedPart(
        f"source:{name}",
        f"does the replica {address} run, is the address in options.read_from of {name}"
        f" reachable from here, and can the user of {name} log in there with that password",
    )


def collector_part(source: SourceSettings) -> ExaminedPart:
    """Return the collector of *source*."""
    name, there = source.name, "does a Connect worker run, and is it reached from here at"
    if source.collector.kind in ("", USUAL):
        return ExaminedPart(f"collector:{name}", f"{there} collector.url of {name}")
    then = f"are all its servers reachable from here: see `collector` and `kind` of {name}"
    return ExaminedPart(f"collector:{name}", then)


def schema_registry_part(source: SourceSettings) -> ExaminedPart:
    """Return the registry with the schemas of the source's messages."""
    return ExaminedPart(
        f"registry:{source.name}",
        "does the schema registry run, and may this user read it",
    )


def copy_part(plan: CopyPlan) -> ExaminedPart:
    """Return the store of a copy."""
    return ExaminedPart(
        f"copy:{plan.name}",
        f"does the store run, is it reached from here at {plan.copy.place}, and does its user get"
        " in with that password",
    )


def brokers_part(source: SourceSettings) -> ExaminedPart:
    """Return the brokers of the source's topics."""
    if source.transport:
        then = f"are its servers reachable from here: see `transport` of {source.name}"
        return ExaminedPart(f"kafka:{source.name}", then)
    return ExaminedPart(
        f"kafka:{source.name}",
        "do brokers run, and are they reached from here under all the names they advertise",
    )


@dataclass(frozen=True, slots=True)
class CollectedSource:
    """A source at the address that the service would use, and the answers of its collector.

    A collector that does not answer is assumed to send every table.
    """

    server: SourceSettings
    examined: CollectorExamination = field(default_factory=CollectorExamination)
    captures: Callable[[ShardId], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Clients:
    """Functions that open the clients of an examination."""

    collector: Callable[[SourceSettings, PipelineSettings], Collector] = open_collector
    source: Callable[[SourceSettings], Source] = open_source
    transport: Callable[[PipelineSettings], Transport] = open_transport
    lake: Callable[[str], Store] = open_store
    machine: Callable[[], Sequence[str]] = jars.missing_jars


@dataclass(eq=False)
class Examination:
    """Findings so far, and ``unasked``: the parts that did not answer, each with the reason.

    ``worker`` are the settings of the Connect workers; None if unknown.
    """

    config: Config
    worker: Mapping[str, str] | None
    outage: timedelta
    doors: Clients = field(default_factory=Clients)
    findings: list[Finding] = field(default_factory=list)
    unasked: list[UnreachablePart] = field(default_factory=list)

    def run(self) -> None:
        """Examine machine and lake, each source, its collector and its topics, then each copy."""
        self._machine()
        with self._asking(lake_part()):
            self.doors.lake(self.config.settings.changes).prove(LOG_FOLDER)
        for source in self.config.sources:
            self._registry(source)
            collected = self._collector(source)
            topics, largest = self._topics(source, collected.examined.kept_topic)
            self._configured(source, collected.server)
            self._source(collected, topics, largest)
        for plan in self.config.copied:
            target = plan.copy.opened(self.config.settings.lake)
            with self._asking(copy_part(plan)), closing(target):
                target.positions()

    @property
    def refused(self) -> bool:
        """Whether something must be fixed before a mirror can be trusted."""
        return any(finding.severity is REFUSE for finding in self.findings)

    def _machine(self) -> None:
        """Report what Spark needs and this machine does not have."""
        for lack in self.doors.machine():
            what, _, fix = lack.rpartition("; ")
            self.findings.append(Finding(REFUSE, "spark", "this machine", what, fix))

    def _registry(self, source: SourceSettings) -> None:
        registry = open_registry(source)
        if registry is not None:
            with self._asking(schema_registry_part(source)):
                registry.examine()

    def _collector(self, source: SourceSettings) -> CollectedSource:
        collected, part = CollectedSource(source), collector_part(source)
        where = part.where
        with (
            self._asking(part),
            closing(self.doors.collector(source, self.config.settings)) as asked,
        ):
            registration = asked.registration(collection_scope(self.config.settings, source))
            differences = _differences(registration, where) if registration else ()
            if differences is None:
                self.findings.append(_unregistered(where))
                return collected
            examined = asked.examine(source, self.worker)
            codes = {finding.code for finding in examined.findings}
            self.findings += examined.findings
            self.findings += [one for one in differences if one.code not in codes]
            collected = CollectedSource(source, examined, asked.captures())
            if source.follow_collector:
                collected = replace(collected, server=source.at(*asked.address()))
        return collected

    def _configured(self, source: SourceSettings, asked: SourceSettings) -> None:
        """Report if the collector reads another server than the config names, and try both."""
        if (source.host, source.port) == (asked.host, asked.port):
            return
        part = server_part(source)
        theirs, ours = f"{asked.host}:{asked.port}", f"{source.host}:{source.port}"
        what = f"the collector reads {theirs}, the config names {ours}; {theirs} is examined"
        fix = "name the server that the collector reads as host and port, or sluice connector"
        found = Finding(WARN, "address", part.where, what, f"{fix} {source.name} --apply")
        self.findings.append(found)
        with self._asking(part), closing(self.doors.source(source)) as configured:
            configured.head()

    def _topics(self, source: SourceSettings, history: str) -> tuple[frozenset[str], int | None]:
        """Check the topics; return the tables in their names, and the largest record they take."""
        part, found = brokers_part(source), tuple[TopicFacts, ...]()
        prefix = re.escape(source.prefix)
        transport = self.doors.transport(self.config.settings)
        with self._asking(part), closing(transport):
            also = f"|{re.escape(history)}" if history else ""
            found = tuple(transport.settings(every_topic(source) + also))
            self.findings += check_topics(
                found, part.where, prefix=source.prefix, history=history, outage=self.outage
            )
            self._order(source, transport, [topic.name for topic in found])
            require_described(found)
        own = (re.fullmatch(rf"{prefix}\.([^.]+\.[^.]+)", topic.name) for topic in found)
        named = frozenset(match[1] for match in own if match)
        sizes = (one.settings.get("max.message.bytes", "") for one in found)
        return named, min((int(size) for size in sizes if size.isdigit()), default=None)

    def _order(self, source: SourceSettings, transport: Transport, topics: Sequence[str]) -> None:
        """Check the ordering of the source; counts partitions if it is ordered by offsets."""
        own = source_orderings([source], {})[source.name]
        count = len(transport.ends(topics)) if own.ordering is Ordering.OFFSET else 0
        self.findings += check_order(own, count, f"source:{source.name}")

    def _source(
        self, collected: CollectedSource, topics: frozenset[str], largest: int | None
    ) -> None:
        source = collected.server
        limits = [size for size in (largest, collected.examined.largest) if size is not None]
        with self._asking(server_part(source)), closing(self.doors.source(source)) as asked:
            self.findings += asked.examine(
                ExaminationScope(
                    fold=_folding(self.config, source.heartbeat),
                    outage=self.outage,
                    clock_skew=self.config.readiness.clock_skew,
                    captured=collected.captures,
                    named=topics,
                    own_keys=collected.examined.own_keys,
                    largest=min(limits, default=None),
                )
            )
            with suppress(SluiceError):  # it would only add notes
                self.findings += self._date_columns(asked, collected)
            self._replica(source, asked)

    def _replica(self, source: SourceSettings, primary: Source) -> None:
        """Compare the replica in ``read_from`` with its *primary*, as probes do."""
        there = read_replica(source)
        if there is None:
            return
        address, patience = f"{there.host}:{there.port}", read_limits(source.options).statement
        part = replica_part(source, address)
        with self._asking(part), closing(self.doors.source(there)) as replica:
            self.findings += ReplicaChoice(primary, replica, address, patience).examine()

    def _date_columns(self, asked: Source, collected: CollectedSource) -> list[Finding]:
        """Return notes on the date columns that `day_counts` chooses for tables of the source."""
        fold = _folding(self.config, collected.server.heartbeat)
        plans = [plan for plan in self.config.plans if plan.name == DAY_COUNTS]
        tables = defaultdict[str, list[str]](list)
        for shard in asked.shards(".*"):
            into = fold(shard.name)
            if into is not None and collected.captures(ShardId.read(shard.name)):
                probes = (plan.probe_for(into.table) for plan in plans)
                if any(one and one.choose_column and not one.columns for one in probes):
                    tables[into.table].append(shard.name)
        if not tables:
            return []
        dated = asked.describe({name for own in tables.values() for name in own}).dated
        return name_date_columns(
            {table: [dated.get(name, ()) for name in own] for table, own in tables.items()},
            f"source:{asked.name}",
        )

    @contextmanager
    def _asking(self, part: ExaminedPart) -> Iterator[None]:
        try:
            yield
        except UnreachableError as error:
            why = str(error).removeprefix(f"{part.where}: ")
            self.unasked.append(UnreachablePart(part.where, why, part.then))
        except SluiceError as error:
            what = str(error).removeprefix(f"{part.where}: ")
            fix = f"{part.then}? then ask again: sluice doctor"
            self.findings.append(Finding(REFUSE, "not_allowed", part.where, what, fix))


def _differences(registration: Registration, where: str) -> tuple[Finding, ...] | None:
    """Return each setting that `sluice connector` would change; None if nothing is registered."""
    now = registration.now()
    if now is None:
        return None
    return tuple(
        Finding(NOTE, one.name, where, _unlike(one), f"{_wanted(one)}, or {_apply(where)}")
        for one in registration.differences(now)
    )


def _wanted(one: SettingDifference) -> str:
    return f"remove {one.name}" if one.after is None else f"{one.name}={one.after}"


def _unlike(one: SettingDifference) -> str:
    is_ = "is not set" if one.before is None else f"is {one.before}"
    return f"{one.name} {is_}" + (f": {one.why}" if one.why else "")


def _unregistered(where: str) -> Finding:
    what = "no collector is registered: no change of this source arrives"
    return Finding(REFUSE, "unregistered", where, what, _apply(where))


def _apply(where: str) -> str:
    return f"sluice connector {quote(where.partition(':')[2])} --apply"


def _folding(config: Config, heartbeat: str) -> Callable[[str], FoldedTable | None]:
    router = Router(config.tables)

    def fold(shard: str) -> FoldedTable | None:
        table, rule = router.table(shard), router.rule(shard)
        if table is None or shard == heartbeat:
            return None
        return FoldedTable(table, rule.key if rule else ())

    return fold
