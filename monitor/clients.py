"""Builds the clients of all external servers once, and closes them together.

`Lineage` traces columns between sources and mirrors, by the landed schema events.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from checks.mirror_state import MirrorTrail
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
    """One connection per source and probe worker, to the server that receives the heartbeats.

    A source with the option ``read_from`` has a second connection, to that replica.  Connections
    are opened when they are first used.  All workers share the budget of a source.
    """

    followed: Mapping[str, Callable[[], SourceSettings]]
    budgets: dict[str, SourceBudget] = field(default_factory=dict)
    _open: "OpenServers" = field(default_factory=dict)
    _replicas: "OpenServers" = field(default_factory=dict)

    def all(self, worker: int = 0) -> dict[str, Source]:
        """Return all sources by name, reconnected if their addresses have changed."""
        return {
            name: _open_once(self._open, (name, worker), read_settings())
            for name, read_settings in self.followed.items()
        }

    def queries(self, worker: int = 0) -> dict[str, BudgetedQueries]:
        """Return the queries of probes for each source, which go to its replica if it has one.

        Checks read rows of a source only through these queries, so they enforce its budget.
        """
        known = self.all(worker).items()
        return {name: self._queries(name, server, worker) for name, server in known}

    def admit(self, names: Iterable[str]) -> None:
        """Wait until the budgets of the sources *names* have no debt, before a check is timed."""
        for name in names:
            if (budget := self.budgets.get(name)) is not None:
                budget.admit()

    def workers(self, names: Iterable[str]) -> int:
        """Return the lowest number of connections for checks among the sources *names*."""
        return min(read_limits(self.followed[name]().options).connections for name in names)

    def close(self) -> None:
        """Close all connections."""
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
"""Connections by source name and worker number."""


def _open_once(known: OpenServers, key: tuple[str, int], settings: SourceSettings) -> Source:
    """Return the source *key* of *known*, reopened if its *settings* have changed."""
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
        """Start without schemas."""
        self._catalog = Catalog(Router(), self.readings)

    def newest(self, shard: Shard, log: LogReader) -> TableSchema | None:
        """Return the shard's schema, as of *log* or later; None if not landed, or dropped."""
        if log.batch < self._until:  # a new log, or one that was set back
            self._catalog, self._until = Catalog(Router(), self.readings), -1
        if log.batch > self._until:
            self._catalog.add(log.schema_changes(self._until))
            self._until = log.batch
        return self._catalog.newest(shard.source, shard.name)


_FEW = 3  # most statements that are shown


@dataclass(eq=False)
class Lineage:
    """Finds column links from the landed schema changes; each change is read once."""

    lake: Lake
    readings: Mapping[str, SchemaReader]
    rules: tuple[TableRule, ...]
    standards: Standards
    _catalog: Catalog | None = None
    _until: int = -1
    _lock: Lock = field(default_factory=Lock)

    def of(self, name: str) -> tuple[ColumnLink, ...]:
        """Return the links of the column or table *name*, as of everything landed.

        Raises:
            UnknownNameError: nothing with this name has landed.
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
        """Return, by mirror, the source columns of its rows, as of one checkpoint for all.

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
        """Return all landed schema changes, with rules and standards.

        Raises:
            UnreachableError: the lake did not answer.
        """
        with self._lock:
            log = self.lake.changes()
            if self._catalog is None or log.batch < self._until:  # the log was set back
                self._catalog = Catalog(Router(self.rules), self.readings, self.standards)
                self._until = -1
            if log.batch > self._until:
                self._catalog = self._catalog.reading(log.schema_changes(self._until))
                self._until = log.batch
            return self._catalog


@dataclass(eq=False)
class LakeClient:
    """Clients of lake and topics, for each group of sources (``names``) and probe worker.

    Each worker has its own memory, because workers may pin different versions of the log.
    ``links`` maps columns, by ``rules`` and ``standards``. ``trails`` is what probes have read of
    mirrors' logs, by table.
    """

    lake: Lake
    connect: Callable[[], Transport]
    origins: Mapping[str, KeyedTopics]
    readings: Mapping[str, SchemaReader]
    rules: tuple[TableRule, ...] = ()
    standards: Standards = NO_STANDARDS
    links: Lineage = field(init=False)
    trails: dict[str, MirrorTrail] = field(default_factory=dict)
    _transports: dict[object, Transport] = field(default_factory=dict)
    _schemas: dict[tuple[tuple[str, ...], int], LandedSchemas] = field(default_factory=dict)
    _memories: dict[tuple[tuple[str, ...], int], LogMemory] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> "LakeClient":
        """Return the clients for *config*; they connect on first use."""
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
        """Create ``links``, without reading anything yet."""
        self.links = Lineage(self.lake, self.readings, self.rules, self.standards)

    def changes(
        self,
        names: tuple[str, ...],
        worker: int = 0,
        incarnation: FindIncarnation = unknown_incarnation,
    ) -> LogReader:
        """Return the change log, pinned now; *incarnation* reveals that it was set back."""
        memory = self._memories.setdefault((names, worker), LogMemory(names))
        return self.lake.changes(memory, incarnation)

    def schemas(self, names: tuple[str, ...], worker: int = 0) -> LandedSchemas:
        """Return the landed schemas of the sources *names*."""
        if (names, worker) not in self._schemas:
            own = {name: one for name, one in self.readings.items() if name in names}
            self._schemas[names, worker] = LandedSchemas(own)
        return self._schemas[names, worker]

    def end_keys(self, names: tuple[str, ...], table: Table, worker: int = 0) -> tuple[LogKey, ...]:
        """Return the row key of the last data message of each partition of the table's topics."""
        transport = self.transport((names, worker))
        return end_keys(table, [self.origins[name] for name in names], transport)

    def transport(self, whose: object) -> Transport:
        """Return the client of the caller *whose*; calls of one client wait for each other."""
        if whose not in self._transports:
            self._transports[whose] = self.connect()
        return self._transports[whose]

    def close(self) -> None:
        """Close all clients."""
        for transport in self._transports.values():
            with suppress(SluiceError):
                transport.close()


def _keyed(one: SourceSettings, standards: Standards) -> KeyedTopics:
    return KeyedTopics(one.name, one.topic_pattern, open_format(one), open_registry(one), standards)


def open_error_table(config: Config, lake: LakeClient) -> ErrorTable:
    """Return the quarantined messages of all sources of *config*."""
    formats = {
        one.name: SourceFormat(open_format(one), open_registry(one), message_text(one))
        for one in config.sources
    }
    return ErrorTable(lake.lake, formats, partial(lake.transport, ErrorTable))


def describe_source(settings: SourceSettings, shards: Collection[str]) -> SourceDescription:
    """Return the source's description of itself and *shards*, over a separate connection.

    Raises:
        UnreachableError: it did not answer every query.
        ConfigError: its user may not log in.
    """
    with closing(open_source(settings)) as source:
        return source.describe(shards)


def mirror_columns(config: Config) -> dict[str, tuple[str, ...]]:
    """Return the columns of each mirror by table, without mirrors that cannot be read."""
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
    """Return the highest landed heartbeat number of *source*; -1 without any.

    New numbers must be above it.
    """
    checkpoint = lake.checkpoint()
    return checkpoint.heartbeats.get(source, -1) if checkpoint else -1


def source_orderings(
    sources: Iterable[SourceSettings], rests_on: Mapping[str, str]
) -> Mapping[str, SourceOrdering]:
    """Return, by source, the ordering that its format gives, and the weakest that is accepted.

    *rests_on*: assumptions about collectors that cannot be queried, by source.
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
