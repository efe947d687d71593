"""Runs one lane: its landing loop, and the mirrors that follow it.

Landing, merges, maintenance, backfills and image export may run at the same time, each in one
thread. Only a merge run and the maintenance of one mirror exclude each other. Tables of tier 0 have
a merge queue of their own, if there are any.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import InitVar, dataclass, field

from pyspark.sql import SparkSession

from pipeline.apply.catalog import Catalog
from pipeline.apply.image_export import ImageWriter, Manifest
from pipeline.apply.landed_state import HighestOrders
from pipeline.apply.landed_state import LandedState as Known
from pipeline.apply.maintenance import LakeMaintenance
from pipeline.apply.merge_run import MergeQueue, MergeRequest, MergeRunner, is_other_tier, is_tier0
from pipeline.backfill.dry_run import Previews
from pipeline.backfill.runner import BackfillRunner
from pipeline.backfill_state import BackfillRequest, BackfillState
from pipeline.checkpoint import Checkpoint, is_rolled_back
from pipeline.finding import Finding
from pipeline.landing.hazards import find_unrecorded_hazards
from pipeline.landing.loop import Landing
from pipeline.reports import LandingReport, MergeReport, SparkWork
from pipeline.resubmissions import Resubmission
from pipeline.spark.session import JobCounts


@dataclass(eq=False)
class Lane:
    """Lands and merges one lane; a table that fails is held and blocks no other.

    State kept here is a cache of the lake's state. Only landing's thread replaces ``known``, as a
    whole, when it contains all of a batch; a merge run reads it once. ``urgent`` merges the tables
    of tier 0; without it ``runner`` merges all.
    """

    landing: Landing
    runner: MergeRunner
    maintenance: LakeMaintenance
    backfill_runner: BackfillRunner
    catalog: InitVar[Catalog]
    session: SparkSession | None = None
    image_writer: ImageWriter | None = None
    urgent: MergeRunner | None = None
    previews: Previews | None = None
    jobs: JobCounts = field(default_factory=JobCounts)
    _queues: tuple[MergeQueue, ...] = field(init=False)

    def __post_init__(self, catalog: Catalog) -> None:
        """Start from what has landed."""
        self.known = Known(self.landing.checkpoint, catalog)
        self._queues = (MergeQueue("apply", self.runner),)
        if self.urgent is not None:
            others = MergeQueue("apply", self.runner, is_other_tier)
            self._queues = (others, MergeQueue("apply_urgent", self.urgent, is_tier0))

    def spark_work(self) -> Mapping[str, SparkWork]:
        """Spark jobs by kind of work since the last call."""
        return self.jobs.take()

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the newest landed batch."""
        return self.known.checkpoint

    def land(
        self, waived: frozenset[str], resubmissions: Sequence[Resubmission] = ()
    ) -> LandingReport:
        """Land one batch, with corrected messages, and add its schema changes to the catalog."""
        self.enter_pool("land")
        landed = self.landing.land(waived, resubmissions)
        checkpoint, known = self.landing.checkpoint, self.known
        if set_back := is_rolled_back(known.checkpoint, checkpoint):
            known = Known(Checkpoint(checkpoint.lane, -1), known.catalog.blank())
            for line in self._queues:
                line.runner.highs = HighestOrders()
        if set_back or checkpoint.batch > known.checkpoint.batch:
            for line in self._queues:
                line.runner.highs.note_landed(checkpoint.batch, checkpoint.high)
            self.known = Known(checkpoint, self._learnt(known, checkpoint, landed))
        return landed

    def unsaid_hazards(self) -> Mapping[str, tuple[Finding, ...]]:
        """Source -> hazards that are in no checkpoint yet; call it only after landing."""
        return find_unrecorded_hazards(self.landing.feeds, self.landing.checkpoint)

    def remind(
        self, hazards: Mapping[str, tuple[Finding, ...]], held: frozenset[str] = frozenset()
    ) -> None:
        """Restore the hazards and the ids of holds from before a restart, before landing."""
        self.landing.recall_holds(held)
        for feed in self.landing.feeds:
            feed.remind(hazards.get(feed.settings.name, ()))

    def apply(self, request: MergeRequest, *, urgent: bool = False) -> tuple[MergeReport, ...]:
        """Merge the mirrors with landed changes: *urgent* those of tier 0, else all others.

        Without a queue of their own, the mirrors of tier 0 are among the others. The cuts of the
        request are compared with the newest landed batch.

        Returns a report for each merged mirror, and for each one that is held; no reports if the
        maintenance of one mirror takes too long.
        """
        if urgent and self.urgent is None:
            return ()
        queue = self._queues[urgent]
        self.enter_pool(queue.name)
        return queue.run(self.known, request)

    def maintain(self, readers: Mapping[str, int], paused: frozenset[str] = frozenset()) -> None:
        """Compact and clean what is due; *readers*: table -> lowest version still needed.

        Mirrors that are *paused* are left alone. A merge waits for the maintenance of one mirror at
        most, and never for that of the change log.
        """
        checkpoint, applied = self.checkpoint, dict[str, int]()
        for line in self._queues:
            with line.lock():
                own = line.own(self.known).checkpoint.tables
                applied |= {name: line.runner.applied(name) for name in own}

        def held(table: str) -> bool:
            return table in paused or self._line(table).runner.held.is_held(table)

        def lock_of(table: str) -> AbstractContextManager[object]:
            return self._line(table).lock()

        self.maintenance.run(checkpoint, readers, applied, held, key=self._key, lock=lock_of)

    def run_backfills(self, wishes: Sequence[BackfillRequest]) -> tuple[BackfillState, ...]:
        """Continue the backfills and return their progress; waits for no other work."""
        self.enter_pool("reread")
        known = self.known
        dry = self.backfill_runner.tables(known, [one for one in wishes if one.dry])
        going = self.backfill_runner.run(known, [one for one in wishes if not one.dry])
        return (*going, *self.previews.run(known, dry)) if self.previews else going

    def publish(self) -> tuple[Manifest, ...]:
        """Export the images that are ready; waits for no other work."""
        return () if self.image_writer is None else self.image_writer.run(self.known)

    def close(self) -> None:
        """Close the connections of backfills, and stop Spark."""
        self.backfill_runner.close()
        if self.session is not None:
            self.session.stop()

    def _line(self, table: str) -> MergeQueue:
        tier = self.known.catalog.tier(table, self.checkpoint.shards)
        return next(line for line in self._queues if line.has_tier(tier))

    def _key(self, table: str) -> tuple[str, ...]:
        return self.known.catalog.table(table, self.checkpoint.shards).key

    def _learnt(self, known: Known, checkpoint: Checkpoint, landed: LandingReport) -> Catalog:
        """The schemas as of *checkpoint*; the log is read only if the batch has schema changes."""
        seen = landed.batch == checkpoint.batch == known.checkpoint.batch + 1
        if seen and not self.landing.facts.statements:
            return known.catalog
        return known.catalog.reading(self.landing.log.schema_changes(known.checkpoint.batch))

    def enter_pool(self, name: str) -> SparkSession | None:
        """Put this thread's jobs into the Spark pool *name*, and return the session.

        Pools share the cores fairly. In the default pool, jobs run in order of arrival.
        """
        if self.session is not None:
            self.session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        return self.session
