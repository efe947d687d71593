"""Clients of everything outside: built here once, closed together.

`Lineage` traces columns between sources and mirrors, by the landed schema events.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from checks.ordering import SourceOrdering
from monitor.config.model import Config
from monitor.quarantine import ErrorTable, SourceFormat
from pipeline.apply.catalog import Catalog
from pipeline.apply.lineage import ColumnLink, columns_of_before, find_links, links_of_tables
from pipeline.build import (
    every_topic,
    message_text,
    open_format,
    open_registry,
    open_source,
    open_table_format,
    open_transport,
    schema_readings,
)
from pipeline.changelog.reader import LogReader
from pipeline.changelog.transactions import FindIncarnation, LogMemory, unknown_incarnation
from pipeline.errors import SluiceError, UnknownNameError
from pipeline.model import Shard, Table
from pipeline.readings import LogKey
from pipeline.schema.history import SchemaReader
from pipeline.schema.model import TableSchema
from pipeline.settings import Router, SourceSettings, TableRule
from pipeline.sources.budget import BudgetedQueries, SourceBudget
from pipeline.sources.replica import ReplicaChoice
from pipeline.sources.row_reader import read_replica
from pipeline.sources.source import Source, SourceDescription, read_limits
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from pipeline.tables.lake import Lake
from pipeline.transports.topics import KeyedTopics, end_keys
from pipeline.transports.transport import Transport


@dataclass(eq=False)
class Servers:
    """One connection per source for each worker of probes, to where its heartbeats go now.

    A source with the option ``read_from`` has another one, to that replica.  Connections are
    opened when they are first used.  All workers share the budget of a source.
    """

    followed: Mapping[str, Callable[[], SourceSettings]]
    budgets: dict[str, SourceBudget] = field(default_factory=dict)
    _open: "OpenServers" = field(default_factory=dict)
    _replicas: "OpenServers" = field(default_factory=dict)

    def all(self, worker: int = 0) -> dict[str, Source]:
        """Every source, reconnected if its address has changed."""
        return {
            name: _open_once(self._open, (name, worker), read_settings())
            for name, read_settings in self.followed.items()
        }

    def queries(self, worker: int = 0) -> dict[str, BudgetedQueries]:
        """Who answers the questions of probes about each source: its replica where it has one.

        Nothing else reads rows of a source for a check, so its budget is kept here.
        """
        known = self.all(worker).items()
        return {name: self._queries(name, server, worker) for name, server in known}

    def admit(self, names: Iterable[str]) -> None:
        """Wait until checks of the sources *names* owe nothing: before a check is timed."""
        for name in names:
            if (budget := self.budgets.get(name)) is not None:
                budget.admit()

    def workers(self, names: Iterable[str]) -> int:
        """How many connections each of the sources *names* has for checks: the fewest."""
        return min(read_limits(self.followed[name]().options).connections for name in names)

    def close(self) -> None:
        """Hang up."""
        for _, server in (*self._open.values(), *self._replicas.values()):
            server.close()

    def _queries(self, name: str, server: Source, worker: int) -> BudgetedQueries:
        settings = self.followed[name]()
        limits = read_limits(settings.options)
        budget = self.budgets.setdefault(name, SourceBudget(name, limits))
        if (there := read_replica(settings)) is None:
            return BudgetedQueries(server, lambda: server, budget)
        replica = _open_once(self._replicas, (name, worker), there)
        choice = ReplicaChoice(server, replica, f"{there.host}:{there.port}", limits.statement)
        return BudgetedQueries(server, choice.choose, budget)


OpenServers = dict[tuple[str, int], tuple[SourceSettings, Source]]
"""By the name of the source and the number of the worker."""


def _open_once(known: OpenServers, key: tuple[str, int], settings: SourceSettings) -> Source:
    """Return the source *key* among *known*, opened again if its *settings* have changed."""
    found = known.get(key)
    if found is not None and found[0] == settings:
        return found[1]
    if found is not None:
        found[1].close()
    known[key] = settings, open_source(settings)
    return known[key][1]


@dataclass(eq=False)
class LandedSchemas:
    """The newest landed schemas, for one worker of probes; reads each schema change once."""

    readings: Mapping[str, SchemaReader]
    _catalog: Catalog = field(init=False)
    _until: int = -1

    def __post_init__(self) -> None:
        """Know nothing yet."""
        self._catalog = Catalog(Router(), self.readings)

    def newest(self, shard: Shard, log: LogReader) -> TableSchema | None:
        """The shard's columns, as of *log* or later; None if none has landed, or a DROP has."""
        if log.batch < self._until:  # another log, or an older one put back
            self._catalog, self._until = Catalog(Router(), self.readings), -1
        if log.batch > self._until:
            self._catalog.add(log.schema_changes(self._until))
            self._until = log.batch
        return self._catalog.newest(shard.source, shard.name)


_FEW = 3  # statements that are shown


@dataclass(eq=False)
class Lineage:
    """Learns schema changes as they are asked about; each is read once."""

    lake: Lake
    readings: Mapping[str, SchemaReader]
    rules: tuple[TableRule, ...]
    standards: Standards
    _catalog: Catalog | None = None
    _until: int = -1
    _lock: Lock = field(default_factory=Lock)

    def of(self, name: str) -> tuple[ColumnLink, ...]:
        """What `links` finds of *name*, as of what has landed.

        Raises:
            UnknownNameError: nothing that has landed has the name.
            UnreachableError: the lake did not answer.
        """
        checkpoint = self.lake.checkpoint()
        found = (
            () if checkpoint is None else find_links(self.learn_schemas(), checkpoint.shards, name)
        )
        if not found:
            gone = (
                ()
                if checkpoint is None
                else columns_of_before(self.learn_schemas(), checkpoint.shards, name)
            )
            if gone:
                msg = "; ".join(map(str, gone[-_FEW:]))
                raise UnknownNameError(
                    f"{msg}; ask for the column by the name that it has now, if any"
                )
            msg = f"no table, shard or column {name!r} has landed"
            raise UnknownNameError(f"{msg}; write database.table or database.table.column")
        return found

    def of_tables(self, names: Collection[str]) -> Mapping[str, tuple[ColumnLink, ...]]:
        """By mirror, the columns that its rows come from, as of what has landed; one look for all.

        Raises:
            UnreachableError: the lake did not answer.
        """
        checkpoint = self.lake.checkpoint()
        return (
            {}
            if checkpoint is None
            else links_of_tables(self.learn_schemas(), checkpoint.shards, names)
        )

    def learn_schemas(self) -> Catalog:
        """All schema changes that have landed, with rules and standards.

        Raises:
            UnreachableError: the lake did not answer.
        """
        with self._lock:
            log = self.lake.changes()
            if self._catalog is None or log.batch < self._until:  # or another log was put there
                self._catalog = Catalog(Router(self.rules), self.readings, self.standards)
                self._until = -1
            if log.batch > self._until:
                self._catalog = self._catalog.reading(log.schema_changes(self._until))
                self._until = log.batch
            return self._catalog


@dataclass(eq=False)
class LakeClient:
    """The lake and the topics, as a worker of the probes of the sources ``names`` reads them.

    What was read is remembered for each worker: two of them pin the log at other versions.
    ``links`` maps columns, by these rules and standards.
    """

    lake: Lake
    connect: Callable[[], Transport]
    origins: Mapping[str, KeyedTopics]
    readings: Mapping[str, SchemaReader]
    rules: tuple[TableRule, ...] = ()
    standards: Standards = NO_STANDARDS
    links: Lineage = field(init=False)
    _transports: dict[object, Transport] = field(default_factory=dict)
    _schemas: dict[tuple[tuple[str, ...], int], LandedSchemas] = field(default_factory=dict)
    _memories: dict[tuple[tuple[str, ...], int], LogMemory] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> "LakeClient":
        """Clients for *config*; nothing is asked yet."""
        standards = Standards(config.standards)
        return cls(
            Lake(config.settings, open_table_format(config.settings)),
            partial(open_transport, config.settings),
            {s.name: _keyed(s, standards) for s in config.sources},
            schema_readings(config.sources),
            config.tables,
            standards,
        )

    def __post_init__(self) -> None:
        """Read nothing yet."""
        self.links = Lineage(self.lake, self.readings, self.rules, self.standards)

    def changes(
        self,
        names: tuple[str, ...],
        worker: int = 0,
        incarnation: FindIncarnation = unknown_incarnation,
    ) -> LogReader:
        """The change log, pinned now; *incarnation* shows that it was put back and landed again."""
        memory = self._memories.setdefault((names, worker), LogMemory(names))
        return self.lake.changes(memory, incarnation)

    def schemas(self, names: tuple[str, ...], worker: int = 0) -> LandedSchemas:
        """What has landed of the schemas of the sources *names*."""
        if (names, worker) not in self._schemas:
            own = {name: one for name, one in self.readings.items() if name in names}
            self._schemas[names, worker] = LandedSchemas(own)
        return self._schemas[names, worker]

    def end_keys(self, names: tuple[str, ...], table: Table, worker: int = 0) -> tuple[LogKey, ...]:
        """The row key of the last data message of each partition of the table's topics."""
        transport = self.transport((names, worker))
        return end_keys(table, [self.origins[name] for name in names], transport)

    def transport(self, whose: object) -> Transport:
        """The client of those who ask as *whose*: calls of one client wait for each other."""
        if whose not in self._transports:
            self._transports[whose] = self.connect()
        return self._transports[whose]

    def close(self) -> None:
        """Hang up."""
        for transport in self._transports.values():
            with suppress(SluiceError):
                transport.close()


def _keyed(one: SourceSettings, standards: Standards) -> KeyedTopics:
    return KeyedTopics(one.name, one.topic_pattern, open_format(one), open_registry(one), standards)


def open_error_table(config: Config, lake: LakeClient) -> ErrorTable:
    """What could not be read, of all sources of *config*."""
    formats = {
        one.name: SourceFormat(open_format(one), open_registry(one), message_text(one))
        for one in config.sources
    }
    return ErrorTable(lake.lake, formats, partial(lake.transport, ErrorTable))


def describe_source(settings: SourceSettings, shards: Collection[str]) -> SourceDescription:
    """A source's own words on itself and *shards*, by a connection of its own.

    Raises:
        UnreachableError: it did not answer all of it.
        ConfigError: its user may not log in.
    """
    with closing(open_source(settings)) as source:
        return source.describe(shards)


def mirror_columns(config: Config) -> dict[str, tuple[str, ...]]:
    """Table -> columns of its mirror; none of those that are not there or cannot be read."""
    found: dict[str, tuple[str, ...]] = {}
    settings = config.settings
    try:
        lake = Lake(settings, open_table_format(settings))
        checkpoint = lake.checkpoint()
    except SluiceError:
        return found
    for name in checkpoint.tables if checkpoint else ():
        with suppress(SluiceError):
            found[name] = lake.mirror(Table(name, (), ())).columns
    return found


def highest_landed(lake: Lake, source: str) -> int:
    """The highest heartbeat number ever landed, -1 for none: numbers must not go back."""
    checkpoint = lake.checkpoint()
    return checkpoint.heartbeats.get(source, -1) if checkpoint else -1


def source_orderings(
    sources: Iterable[SourceSettings], rests_on: Mapping[str, str]
) -> Mapping[str, SourceOrdering]:
    """By source: what the order of its changes is by its format, and what the config accepts.

    *rests_on*: what the words of their collectors rest on.
    """
    return {
        one.name: SourceOrdering(
            open_format(one).ordering,
            one.weakest_order,
            every_topic(one),
            rests_on.get(one.name, ""),
        )
        for one in sources
    }
