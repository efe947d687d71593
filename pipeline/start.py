"""Builds one lane from its settings: the session, the clients, and its checkpoint."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from pipeline.apply.catalog import Catalog
from pipeline.apply.image_export import ImageWriter
from pipeline.apply.maintenance import LakeMaintenance
from pipeline.apply.merge_job import JobGroup, MergeOutcome, run_group
from pipeline.apply.merge_run import MergeRunner
from pipeline.apply.mirror import MirrorSide
from pipeline.apply.table_format import Mirrors
from pipeline.backfill.dry_run import MirrorIds, Previews
from pipeline.backfill.runner import BackfillRunner
from pipeline.backfill.task import BackfillFailure, BackfillResult, BackfillTask, try_task
from pipeline.build import open_feed, open_rows, open_table_format, open_transport, schema_readings
from pipeline.changelog.change_log import ChangeLog, require_rows_with_a_checkpoint
from pipeline.checkpoint import Checkpoint
from pipeline.delta.log import LOG_FOLDER
from pipeline.delta.store import open_store
from pipeline.landing.loop import Landing
from pipeline.landing.task import LandingTask, TaskResult, run_task
from pipeline.lane import Lane
from pipeline.model import Ordering, Table
from pipeline.parallel import spark_map
from pipeline.settings import PipelineSettings, Router, TableRule
from pipeline.spark import jars
from pipeline.spark.session import JobCounts, describe_jobs, open_session, require_same_environment
from pipeline.standards.table_standards import Standards

T = TypeVar("T")
NEWS_EVERY = 1_000  # schema changes, about 1 ms each
Progress = Callable[[str], object]
"""Called with the progress of opening a lane."""


def open_lane(
    settings: PipelineSettings, clock: Callable[[], datetime], progress: Progress = lambda _: None
) -> Lane:
    """Start Spark, and resume the lane from its newest checkpoint.

    All schema changes that ever landed are read; *progress* is called repeatedly meanwhile.

    Raises:
        ConfigError: Sluice cannot write this kind of lake.
        HeldError: the change log exists, but none of its rows has a checkpoint.
    """
    store = open_store(settings.changes)
    store.prove(LOG_FOLDER)
    logs = [ChangeLog(store, settings.lane) for _ in range(5)]  # one for each thread
    logs[0].opened(clock())
    require_rows_with_a_checkpoint(logs[0])
    checkpoint = logs[0].checkpoint() or Checkpoint(settings.lane, -1)
    router = build_router(settings)
    catalog = Catalog(router, schema_readings(settings.sources), Standards(settings.standards))
    catalog.add(with_progress(logs[0].schema_changes(-1), progress))
    transport = open_transport(settings)
    feeds = tuple(open_feed(one, settings, transport.settings) for one in settings.sources)
    worker = open_table_format(settings).worker()
    standards = [one for rule in settings.standards for _, one in rule.standards]
    carried = [transport.reader(()), worker, *(feed.format for feed in feeds), *standards]
    session = open_session(settings, jars.spark_jars(), [one.__module__ for one in carried])
    require_same_environment(session, settings.master)
    jobs = JobCounts()
    backfill_runner, previews = _backfill_runner(settings, logs[3], session, clock)
    landing = Landing(
        settings=settings,
        feeds=feeds,
        router=router,
        transport=transport,
        log=logs[0],
        work=Workers(session, settings.small_batch_rows, jobs),
        clock=clock,
        checkpoint=checkpoint,
        backfills=backfill_runner.offer.news,
    )
    table_format = open_table_format(settings, session)
    passes = MergeRunner(
        settings, logs[1], partial(_merge_groups, session, jobs), clock, table_format
    )
    logless = (one for one in feeds if one.format.ordering is not Ordering.LOG)
    passes.images.unplaced = frozenset(one.settings.name for one in logless)
    maintenance = LakeMaintenance(settings, logs[2], passes.mirrors, clock)
    others = Mirrors(settings, open_table_format(settings))
    writing = ImageWriter(settings, others, clock, passes.jobs.archive_of)
    urgent = _beside(passes, logs[4]) if settings.divided else None
    own = (
        landing,
        passes,
        maintenance,
        backfill_runner,
        catalog,
        session,
        writing,
        urgent,
        previews,
    )
    return Lane(*own, jobs=jobs)


def with_progress(changes: Sequence[T], progress: Progress) -> Iterator[T]:
    """Yield *changes*; report the number read each thousand, and the end."""
    for number, change in enumerate(changes):
        if number % NEWS_EVERY == 0:
            progress(f"{number:,} of {len(changes):,} schema changes are read")
        yield change
    progress(f"all {len(changes):,} schema changes are read")


def _beside(others: MergeRunner, log: ChangeLog) -> MergeRunner:
    """A merge runner for tables of tier 0; *log* is used by it alone."""
    given = (others.settings, log, others.spread, others.clock, others.table_format)
    made = MergeRunner(*given, shared=others.mirrors)
    made.images.unplaced = others.images.unplaced
    return made


def _merge_groups(
    session: SparkSession, jobs: JobCounts, groups: Sequence[JobGroup]
) -> list[Mapping[str, MergeOutcome]]:
    """Merge groups of mirrors in parallel."""
    names = [job.name for group in groups for job in group.jobs]
    rows = sum(part.rows for part in {part for group in groups for part in group.files})
    what = f"slice of {names[0]}" if len(names) == 1 else f"slices of {len(names)} mirrors"
    with jobs.counted(session, "merge", what, tasks=len(groups), rows=rows):
        return spark_map(session, run_group, groups)


def build_router(settings: PipelineSettings) -> Router:
    """Build the router of the rules; Sluice's own heartbeat tables are ignored first."""
    heartbeats = {source.heartbeat for source in settings.sources}
    own = tuple(TableRule(re.escape(name), name, ignore=True) for name in sorted(heartbeats))
    return Router((*own, *settings.rules))


@dataclass(frozen=True, slots=True)
class Workers:
    """Runs landing tasks: small ones in the driver, without a Spark job, others in parallel."""

    session: SparkSession
    small: int
    jobs: JobCounts = field(default_factory=JobCounts)

    def __call__(self, tasks: Sequence[LandingTask]) -> Sequence[TaskResult]:
        """Run the tasks; results are in their order."""
        ranges = [one for task in tasks for intake in task.intakes for one in intake.ranges]
        rows = sum(one.until - one.first for one in ranges)
        if rows <= self.small:
            return [run_task(task) for task in tasks]
        stamp = tasks[0].stamp
        what = f"batch {stamp.batch} of lane {stamp.lane}"
        with self.jobs.counted(self.session, "land", what, tasks=len(tasks), rows=rows):
            return spark_map(self.session, run_task, tasks)


@dataclass(frozen=True, slots=True)
class BackfillWorkers:
    """Runs tasks of a backfill: a single one in the driver, several in parallel by Spark."""

    session: SparkSession

    def __call__(self, tasks: Sequence[BackfillTask]) -> Sequence[BackfillResult | BackfillFailure]:
        """Run the tasks; results are in their order."""
        if len(tasks) < 2:
            return [try_task(task) for task in tasks]
        with describe_jobs(self.session, f"read {tasks[0].table} again"):
            return spark_map(self.session, try_task, tasks)


def _backfill_runner(
    settings: PipelineSettings,
    log: ChangeLog,
    session: SparkSession,
    clock: Callable[[], datetime],
) -> tuple[BackfillRunner, Previews]:
    """Build the backfill runner with clients of its own, which belong to its thread."""
    feeds = tuple(open_feed(one, settings) for one in settings.sources)
    mirrors = open_table_format(settings)

    def mirror(table: Table) -> MirrorSide | None:
        return mirrors.reader(settings.mirror(table.name), table, settings.lane)

    work, ids = BackfillWorkers(session), MirrorIds(mirror)
    backfill_runner = BackfillRunner(settings, feeds, log, open_rows, work, clock, mirror_ids=ids)
    return backfill_runner, Previews(feeds, open_rows, mirror, clock)
