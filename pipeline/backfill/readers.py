"""Opens one row reader per source, and asks sources about tables that have not landed yet.

The readers belong to the thread that drives backfills; tasks open their own.

The module also checks whether a backfill may begin. It refuses rows that cannot be ordered among
the changes of the source, and columns that the collector alters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from pipeline.apply.catalog import Catalog
from pipeline.backfill_state import BackfillRequest
from pipeline.checkpoint import Checkpoint, shard_exists
from pipeline.clocks import has_passed
from pipeline.errors import ConfigError, ProofError, SluiceError
from pipeline.landing.listing import LandingSource
from pipeline.model import Missing, Order, Ordering, Origin, Shard
from pipeline.schema.model import TableDescription, TableSchema
from pipeline.settings import Router, SourceSettings
from pipeline.sources.positions import explain_reset, locate_position
from pipeline.sources.row_reader import OpenRows, ReadFence, RowReader

AGAIN = timedelta(seconds=30)  # between two lookups of a table without landed changes
BELOW = (
    "the newest heartbeat has a lower version than landed changes, so the backfill waits for a"
    " higher one; make all senders use one version sequence"
)
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class RowReaders:
    """One reader for each source of *feeds*, connected to its current server."""

    feeds: tuple[LandingSource, ...]
    open_rows: OpenRows
    clock: Callable[[], datetime]
    _known: dict[str, tuple[SourceSettings, RowReader]] = field(default_factory=dict)
    _listed: tuple[datetime, tuple[Shard, ...]] | None = None
    _described: dict[Shard, TableDescription | None] = field(default_factory=dict)

    def settings(self, source: str) -> SourceSettings:
        """The settings of the server that the collector is connected to now."""
        return self._feed(source).connected()

    def of(self, source: str) -> RowReader:
        """The reader of a source; a reader of a former server is closed."""
        settings = self.settings(source)
        known = self._known.get(source)
        if known is None or known[0] != settings:
            if known is not None:
                known[1].close()
            self._known[source] = (settings, self.open_rows(settings))
        return self._known[source][1]

    def close(self) -> None:
        """Close all connections."""
        for _, reader in self._known.values():
            reader.close()

    def fence(
        self, source: str, checkpoint: Checkpoint, identity: str, before: ReadFence | None = None
    ) -> ReadFence:
        """Return a fence at the end of the log, which must continue all positions seen before.

        Raises:
            ProofError: the server has another log, or its log was reset.
        """
        at_least = checkpoint.heartbeats.get(source, -1) + 1
        fence = self.of(source).fence(at_least, self.clock())
        epoch = checkpoint.epochs.get(source)
        seen = [*([epoch.position] if epoch else ()), *([before.head.position] if before else ())]
        whys = [why for one in seen if (why := explain_reset(one, fence.head.position)) is not None]
        if fence.head.identity != identity or whys:
            detail = "".join(f": {why}" for why in whys[:1])
            raise ProofError(f"source:{source}: the server has changed{detail}; a new epoch begins")
        return fence

    def describe(self, shard: Shard) -> None:
        """Check that the log contains each later write to *shard*, and keep its description.

        Raises:
            ProofError: the log does not; names the reason and the fix.
        """
        self._described[shard] = self.of(shard.source).describe(shard)

    def require_comparable(self, shard: Shard, origin: Origin, checkpoint: Checkpoint) -> None:
        """Refuse a shard whose backfilled rows cannot be ordered among its changes.

        If changes have no position in the log, only a whole table can be backfilled: its rows begin
        at a heartbeat.

        Raises:
            ConfigError: changes have no position in the log, or the collector writes values in
                another notation.
        """
        feed, msg = self._feed(shard.source), f"source:{shard.source}: rows read again"
        ordering = feed.format.ordering
        if ordering is not Ordering.LOG and origin is not Origin.SNAPSHOT:
            why = f"{msg} one by one cannot be ordered among changes that are ordered by {ordering}"
            raise ConfigError(f"{why}; run `sluice bootstrap TABLE --reason ...`")
        names = (at.topic for at in checkpoint.offsets)
        if ordering is Ordering.OFFSET and sum(map(feed.claims, names)) > 1:
            raise ConfigError(f"{msg} cannot be ordered among changes of several partitions")
        if feed.format.notation not in self.of(shard.source).notations:
            raise ConfigError(f"{msg} would have other texts than those of its collector")

    def begins_at(self, shard: Shard, checkpoint: Checkpoint, fence: ReadFence) -> Order:
        """Return the order of rows read behind *fence*: they contain all changes below it.

        If changes have no position in the log, this is the order of the newest landed heartbeat. It
        was committed long before the fence, and is above all changes that were logged before it.

        Raises:
            ProofError: no heartbeat has landed yet, or its order is below that of earlier changes.
        """
        number = checkpoint.epochs[shard.source].number
        if self._feed(shard.source).format.ordering is Ordering.LOG:
            return Order(number, *locate_position(fence.head.position))
        trail = checkpoint.heartbeat_histories.get(shard.source)
        if trail is None or trail.order.epoch != number:
            raise ProofError(f"source:{shard.source}: no heartbeat of its log has landed yet")
        if trail.resending or trail.divided:
            raise ProofError(f"source:{shard.source}: its log is being sent again; it waits")
        if not trail.clear:
            raise ProofError(f"source:{shard.source}: {BELOW}")
        return trail.order

    def has_landed(self, shard: Shard, order: Order, checkpoint: Checkpoint) -> bool:
        """Whether all below *order*, at which backfilled rows begin, has landed."""
        by_log = self._feed(shard.source).format.ordering is Ordering.LOG
        return checkpoint.passed(shard.source, order) if by_log else True

    def require_sent_as_it_is(self, shard: Shard) -> None:
        """Reject a shard whose rows the collector sends differently from the source's rows.

        Raises:
            ConfigError: the collector leaves a column out, or changes its values.
            ProofError: whether the collector changes columns is unknown.
        """
        feed = self._feed(shard.source)
        lists = feed.captures()
        if isinstance(lists, Missing):
            msg = f"source:{shard.source}: whether the collector alters columns is not known"
            raise ProofError(f"{msg}: {lists.why}")
        if lists.alters is None:
            return
        for column in feed.server().columns(shard):
            if by := lists.alters(f"{shard.name}.{column.name}"):
                msg = f"the collector omits or changes {shard.name}.{column.name} ({by})"
                fix = "request a snapshot from the collector (execute-snapshot)"
                raise ConfigError(f"{msg}, and a backfill would write its original values; {fix}")

    def schema(self, shard: Shard, catalog: Catalog, checkpoint: Checkpoint) -> TableSchema | None:
        """Return columns and key from landed schema changes, else as the source describes them.

        None if there is no description.
        """
        declared = catalog.newest(shard.source, shard.name)
        if declared is not None:
            return declared
        if shard not in self._described:
            self.describe(shard)
        described, known = self._described[shard], checkpoint.backfills.get(shard)
        if described is None or known is None:
            return None
        dialect = self._feed(shard.source).dialect
        columns = tuple(dialect.column(one, "") for one in described.columns)
        return TableSchema(shard.name, known.order, columns, described.key)

    def folding(
        self, wishes: Sequence[BackfillRequest], checkpoint: Checkpoint, router: Router
    ) -> dict[Shard, str | None]:
        """Return the table of each known shard, with or without rows.

        Sources are asked at intervals, and only if nothing that has landed describes a requested
        table. In a Postgres log only rows describe a table.
        """
        ids = {one.id for one in wishes}
        begun = {shard for shard, one in checkpoint.backfills.items() if one.id in ids}
        known = {*checkpoint.shards, *checkpoint.existing, *begun}
        found = {
            shard: router.table(shard.name) for shard in known if shard_exists(checkpoint, shard)
        }
        missing = {one.table for one in wishes} - set(found.values())
        if missing:
            every = {shard: router.table(shard.name) for shard in self._there()}
            found |= {shard: table for shard, table in every.items() if table in missing}
        return found

    def _there(self) -> tuple[Shard, ...]:
        """Return the tables of all sources that answer: any of them may have the requested one."""
        now = self.clock()
        if self._listed is None or has_passed(self._listed[0], AGAIN, now):
            found = [one for feed in self.feeds for one in self._shards(feed.settings.name)]
            self._listed = now, tuple(found)
        return self._listed[1]

    def _shards(self, source: str) -> tuple[Shard, ...]:
        try:
            return self.of(source).shards()
        except SluiceError as error:
            log.info("source was not asked for shards", source=source, why=str(error))
            return ()

    def _feed(self, source: str) -> LandingSource:
        for feed in self.feeds:
            if feed.settings.name == source:
                return feed
        msg = f"source:{source} is no longer in the config, so nothing of it can be read again"
        raise ConfigError(msg)
