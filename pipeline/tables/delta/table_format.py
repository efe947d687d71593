"""Implements mirrors as Delta tables, written with deletion vectors or by Spark's MERGE.

Spark writes a mirror that is partitioned, has deletion vectors off, or has a protocol that
Sluice does not write. The table's own protocol decides that each time it is read, so the writer
of a mirror can change. Without a Spark session such a mirror is refused.

The applied batch is the table's transaction number for the lane, and Sluice's properties are
the table's properties. Maintenance removes nothing that a reader still needs. Spark cleans and
checkpoints the log of its own mirrors.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import structlog

from pipeline.apply.merge import MergeFunction, MergePlan, MergeResult
from pipeline.apply.merge_job import MergeJob, describe_commit
from pipeline.apply.mirror import Commit, CommitStamp, RowChanges, RowPart, following_note
from pipeline.apply.row_metadata import SLUICE
from pipeline.apply.schema_evolution import TargetSchema
from pipeline.apply.table_format import MaintenanceWork, TableFormat
from pipeline.changelog.table import build_app_id
from pipeline.delta import maintenance
from pipeline.delta.actions import with_properties
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import (
    LOG_FOLDER,
    Action,
    ActiveFile,
    Snapshot,
    entry_digest,
    entry_name,
    load_snapshot,
    load_version,
)
from pipeline.delta.protocol import VECTORS, require_writable, why_unwritable, writes_vectors
from pipeline.delta.store import Store, open_store
from pipeline.errors import UnreachableError
from pipeline.model import Table
from pipeline.tables.delta import merge as commits
from pipeline.tables.delta import rewrite as growth
from pipeline.tables.delta.clone import Correct, clone_version
from pipeline.tables.delta.files import Footers, Layout, MirrorFiles
from pipeline.tables.delta.history import MirrorRows
from pipeline.tables.delta.merge import Target, commit_metrics, run_merge
from pipeline.tables.delta.reader import MirrorReader
from pipeline.tables.delta.rewrite import LARGE, files_to_compact, rewrite_files

COMPACTS = "OPTIMIZE"
_KEPT = "delta.deletedFileRetentionDuration"
_HISTORY = timedelta(days=30)  # Delta's own default for its log


@dataclass(eq=False)
class MirrorMaintenance:
    """Compacts, checkpoints and cleans mirrors that Sluice writes itself, by their addresses."""

    _checkpointed: dict[str, int] = field(default_factory=dict)
    _whole: dict[str, int] = field(default_factory=dict)  # rows from which files are large

    def worn(self, snapshot: Snapshot) -> tuple[ActiveFile, ...]:
        """The files to be compacted; empty if the mirror's read cost is acceptable."""
        return files_to_compact(snapshot.files.values(), self._whole.get(snapshot.uri, LARGE))

    def overdue(self, snapshot: Snapshot) -> bool:
        """Whether its log needs a checkpoint."""
        return maintenance.is_checkpoint_due(snapshot, self._checkpointed.get(snapshot.uri, -1))

    def kept(self, store: Store, snapshot: Snapshot, work: MaintenanceWork) -> Snapshot:
        """Do the maintenance that is due.

        Raises:
            LostRaceError: another writer has committed meanwhile.
            HeldError: ``protocol``, Sluice does not write this protocol; or a file cannot be read.
        """
        require_writable(snapshot)
        if files := self.worn(snapshot):
            snapshot = self._compacted(store, snapshot, files, work)
        if self.overdue(snapshot):
            maintenance.write_checkpoint(store)
            self._checkpointed[snapshot.uri] = snapshot.version
        if work.keep is not None:
            snapshot = _remembering(store, snapshot, work.keep, work.stamp)
            since = work.stamp.at - work.keep
            maintenance.vacuum_files(store, work.keep)
            maintenance.sweep_vectors(store, snapshot, since)
            maintenance.sweep_files(store, since)
            maintenance.clean_log(store)
        return snapshot

    def _compacted(
        self,
        store: Store,
        snapshot: Snapshot,
        files: tuple[ActiveFile, ...],
        work: MaintenanceWork,
    ) -> Snapshot:
        mirror = MirrorFiles(store=store, files=files, layout=Layout.of(snapshot.metadata))
        stamp = work.stamp
        target = Target(store, snapshot.metadata, work.key, stamp.at, compression="zstd")
        made = rewrite_files(mirror, target, data_change=False)
        if len(made.files) > 1:  # all but the last are as large as the memory allows
            self._whole[snapshot.uri] = min(made.files[:-1]) // 2
        return commit_actions(
            store,
            snapshot,
            made.actions,
            operation=COMPACTS,
            clock=stamp.at,
            note=following_note(snapshot, -1, stamp.lane),
        )


def _remembering(store: Store, snapshot: Snapshot, kept: timedelta, stamp: CommitStamp) -> Snapshot:
    """Set how long the log remembers removed files; a checkpoint drops older ones."""
    files, entries = (
        f"interval {math.ceil(time / timedelta(hours=1))} hours"
        for time in (kept, max(kept, _HISTORY))
    )
    wanted = {_KEPT: files, "delta.logRetentionDuration": entries}
    actions = with_properties(snapshot, wanted)
    if not actions:
        return snapshot
    note = following_note(snapshot, -1, stamp.lane)
    return commit_actions(
        store, snapshot, actions, operation="SET TBLPROPERTIES", clock=stamp.at, note=note
    )


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.tables.delta.spark_merge import SparkMerge

Work = tuple[Action, ...] | MergePlan
log = structlog.get_logger(__name__)


def why_spark(snapshot: Snapshot) -> str | None:
    """Why Sluice does not write the table itself; None if it does."""
    if (what := why_unwritable(snapshot)) is not None:
        return what
    if snapshot.metadata.partition_columns:
        return f"it is partitioned by {', '.join(snapshot.metadata.partition_columns)}"
    return None if writes_vectors(snapshot) else f"{VECTORS} is not on"


@dataclass(eq=False)
class DeltaMirrors:
    """Reads and writes mirrors as Delta tables.

    Without a Spark ``session`` a mirror that Sluice does not write is refused. ``why`` returns the
    reason why a table is left to Spark.
    """

    session: "SparkSession | None"
    spark: "SparkMerge | None" = field(init=False)
    why: Callable[[Snapshot], str | None] = field(init=False)
    _maintenance: MirrorMaintenance = field(default_factory=MirrorMaintenance, init=False)
    _stores: dict[str, Store] = field(default_factory=dict, init=False)
    _described: dict[str, str] = field(default_factory=dict, init=False)
    _left: dict[str, int] = field(default_factory=dict, init=False)  # versions, by Spark

    def __post_init__(self) -> None:
        """Set up Spark's writer, if there is a session; nothing is read yet."""
        self.spark = None if self.session is None else _merging(self.session)
        self.why = why_spark  # set on the instance, because on the class it would be a method

    def look(self, uri: str, known: Snapshot | None) -> Snapshot | None:
        return load_snapshot(self.store(uri), known)

    def count(self, snapshot: Snapshot) -> int:
        """Count by the log, or by the footers of files without a count in the log."""
        if (rows := snapshot.rows) is not None:
            return rows
        store, footers, files = self.store(snapshot.uri), Footers(), snapshot.files.values()
        gone = sum(int(file.vector["cardinality"]) for file in files if file.vector)
        return sum(int(footers.of(store, file).metadata.num_rows) for file in files) - gone

    def commits(self, uri: str, until: int) -> Iterator[Commit]:
        """Read the log's entries, down to where it was cleaned."""
        store = self.store(uri)
        for version in range(until, -1, -1):
            try:
                content = store.read(entry_name(version))
            except FileNotFoundError:
                return
            lines = content.decode().splitlines()
            yield commits.read_commit(version, lines, entry=entry_digest(content))

    def reader(self, uri: str, table: Table, lane: str) -> MirrorReader | None:
        """Read with the query engine of `deltalake`."""
        from pipeline.delta.reader import open_table  # noqa: PLC0415 - its threads survive no fork

        found = open_table(uri)
        return None if found is None else MirrorReader(found, table, build_app_id(lane))

    def rows(self, uri: str, version: int) -> Iterator[pa.RecordBatch]:
        """Read with the query engine of `deltalake`, in types that every Parquet reader knows."""
        from pipeline.delta.reader import open_table  # noqa: PLC0415 - its threads survive no fork

        found = open_table(uri, version)
        if found is None:
            raise UnreachableError(f"{uri}: there is no version {version}")
        wanted = pa.schema([f for f in _plain(found.schema) if f.name != SLUICE])
        yield pa.RecordBatch.from_pylist([], schema=wanted)  # the columns of an empty table
        for batch in found.stream(wanted.names):
            yield batch.cast(wanted)

    def frame(self, uri: str, version: int) -> "DataFrame | None":
        """Read with Delta's own reader in Spark, which applies deletion vectors."""
        if self.session is None:
            return None
        return self.session.read.format("delta").option("versionAsOf", version).load(uri)

    def contents(self, uri: str, version: int) -> tuple[RowPart, ...]:
        """One part per file, by the log."""
        store = self.store(uri)
        return MirrorRows(store, load_version(store, version)).contents()

    def changes(self, snapshot: Snapshot, since: int, key: tuple[str, ...]) -> Iterator[RowChanges]:
        """Read the log; see :mod:`pipeline.tables.delta.history`."""
        return MirrorRows(self.store(snapshot.uri), snapshot).changes(since, key)

    def cloned(
        self, uri: str, version: int, where: str, at: datetime, correct: Correct | None = None
    ) -> int:
        """Write a log that names the mirror's files; see :mod:`pipeline.tables.delta.clone`."""
        store, into = self.store(uri), open_store(where)
        base = load_version(store, version)
        into.make_folder(LOG_FOLDER)
        return self.count(base) + clone_version(base, store, into, at, correct)

    def shaped(
        self, uri: str, known: Snapshot | None, shape: TargetSchema, stamp: CommitStamp
    ) -> Snapshot:
        """Commit once, with the files whose rows change; Spark may need several commits."""
        if known is None:
            return growth.create_mirror(self.store(uri), shape, stamp)
        if (spark := self._engine(known)) is not None:
            return spark.followed(known, shape, stamp)
        return growth.follow_schema(self.store(uri), known, shape, stamp)

    def worker(self) -> MergeFunction:
        """Sluice's own merge, which leaves files and caches footers between merges."""
        return run_merge

    def engine(self, snapshot: Snapshot) -> MergeFunction | None:
        """The merge by Spark's MERGE, if Spark must write the mirror."""
        spark = self._engine(snapshot)
        return None if spark is None else spark.plan_task

    def commit(
        self, job: MergeJob[Snapshot], written: MergeResult[Work], stamp: CommitStamp
    ) -> Snapshot:
        """Put the entry if absent, or commit by Spark, with batch, incarnation and floors."""
        if isinstance(written.work, MergePlan):
            if self.spark is None:
                raise ValueError("a merge that Spark has made is not committed here")
            return self.spark.commit(job, cast("MergeResult[MergePlan]", written), stamp)
        snapshot, described = job.task.snapshot, describe_commit(job, written, stamp)
        more = with_properties(snapshot, described.remembered) if described.remembered else ()
        return commit_actions(
            self.store(snapshot.uri),
            snapshot,
            (*more, *written.work),
            operation="MERGE",
            clock=stamp.at,
            note=described.note,
            txn=(described.application, described.batch),
            metrics=commit_metrics(written.counts),
        )

    def worn(self, snapshot: Snapshot) -> bool:
        """By the files' statistics, and the number of versions since a checkpoint."""
        if self._engine(snapshot) is None:
            return bool(self._maintenance.worn(snapshot)) or self._maintenance.overdue(snapshot)
        left = self._left.get(snapshot.uri) == snapshot.version  # Spark judges files differently
        return not left and bool(self._maintenance.worn(snapshot))

    def kept(self, snapshot: Snapshot, work: MaintenanceWork) -> Snapshot:
        """Maintain it here, or by OPTIMIZE; Spark cleans and checkpoints its tables itself."""
        if (spark := self._engine(snapshot)) is None:
            return self._maintenance.kept(self.store(snapshot.uri), snapshot, work)
        if self._maintenance.worn(snapshot):
            snapshot = spark.compacted(snapshot, work.stamp)
        self._left[snapshot.uri] = snapshot.version
        return snapshot

    def store(self, uri: str) -> Store:
        """The store of the mirror's folder, opened once."""
        if uri not in self._stores:
            self._stores[uri] = open_store(uri)
        return self._stores[uri]

    def _engine(self, snapshot: Snapshot) -> "SparkMerge | None":
        """Spark, if there is a session and it must write the mirror; the reason is logged once."""
        if self.spark is None or (why := self.why(snapshot)) is None:
            return None
        if self._described.get(snapshot.uri) != why:
            self._described[snapshot.uri] = why
            log.info("mirror_merged_by_spark", mirror=snapshot.uri, because=why)
        return self.spark


def _plain(schema: pa.Schema) -> pa.Schema:
    """*schema* without views, which not every Parquet writer accepts."""
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([f.with_type(views.get(f.type, f.type)).with_metadata({}) for f in schema])


def _merging(session: "SparkSession") -> "SparkMerge":
    from pipeline.tables.delta.spark_merge import SparkMerge  # noqa: PLC0415 - readers do without

    return SparkMerge(session)


TABLE_FORMAT: type[TableFormat[Snapshot, Work]] = DeltaMirrors
