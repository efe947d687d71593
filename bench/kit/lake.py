"""Keeps a lake of mirrors and their change log, written and updated by Sluice's own code.

Only Kafka is left out: changes are written to the change log as landing would have left them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.kit.table import AT, BORN, SOURCE, Workload
from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.apply.maintenance import LakeMaintenance
from pipeline.apply.merge_job import JobGroup, MergeOutcome, Run, run_group
from pipeline.apply.merge_run import MergeRequest, MergeRunner
from pipeline.apply.mirror import CommitStamp, commit_note
from pipeline.apply.row_metadata import META, SLUICE
from pipeline.apply.schema_evolution import TargetSchema
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.data_file import SortedFile, WrittenFile
from pipeline.changelog.table import Stamp, build_app_id, checkpoint_row
from pipeline.checkpoint import Checkpoint
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import ActiveFile
from pipeline.delta.store import open_store
from pipeline.model import Op, Order, Origin, Shard, SourcePartition, TopicPartition
from pipeline.reports import MergeReport
from pipeline.schema.history import SchemaChange
from pipeline.settings import PipelineSettings, Router
from pipeline.tables.delta.merge import Target, write_rows
from pipeline.tables.delta.rewrite import create_mirror
from pipeline.tables.delta.table_format import DeltaMirrors

LANE = "main"
AT_ONCE = 1_000_000  # rows per file of a mirror
RUN_ROWS = 50_000  # rows that landing would sort together


def here(groups: Sequence[JobGroup]) -> list[dict[str, MergeOutcome]]:
    """Run groups in this process."""
    return [run_group(group) for group in groups]


@dataclass(eq=False)
class Lake:
    """Mirrors of *works* in *home*; ``spread`` runs what a merge run does not run in this process.

    With a ``mark`` (landing checkpoint) the lake exists already; else it is new.
    """

    home: Path
    works: Sequence[Workload]
    spread: Run
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(LANE, -1))
    settings: PipelineSettings = field(init=False)
    runner: MergeRunner = field(init=False)

    def __post_init__(self) -> None:
        """Open the change log."""
        self.settings = PipelineSettings(str(self.home), "", (), lane=LANE)
        shards = {Shard(SOURCE, work.shard): work.shard for work in self.works}
        self.checkpoint = replace(self.checkpoint, shards=shards)
        self.catalog = Catalog(Router())
        self.catalog.learn(
            (SOURCE, SchemaChange("create", work.shard, BORN, work.schema, ""))
            for work in self.works
        )
        self.log, reader, third = (
            ChangeLog(open_store(self.settings.changes), LANE) for _ in range(3)
        )
        self.log.opened(AT)
        self.runner = MergeRunner(self.settings, reader, self.spread, _now, DeltaMirrors(None))
        self.maintenance = LakeMaintenance(self.settings, third, self.runner.mirrors, _now)

    def fill(self, *statements: pa.RecordBatch) -> None:
        """Create every mirror as a base would have left it, applied through batch 0.

        *statements* are rows of ``CHANGES`` that describe columns; few readers need them.
        """
        self.land(*statements)
        for work in self.works:
            self._fill(work)

    def land(self, *changes: pa.RecordBatch, **facts: Any) -> None:
        """Commit rows of ``CHANGES`` as the next batch, a table per group, with its checkpoint.

        *facts* are other fields of the checkpoint.
        """
        batch, high, tables = (
            self.checkpoint.batch + 1,
            dict(self.checkpoint.high),
            dict(self.checkpoint.tables),
        )
        for rows in changes:
            first = rows.slice(0, 1).to_pylist()[0]
            last = rows.slice(len(rows) - 1).to_pylist()[0]
            at = TopicPartition(first["topic"], 0)
            high[SourcePartition(SOURCE, at)] = Order(**last["order"])
            tables[first["table"]] = batch
        if batch == 0:
            tables = {work.shard: 0 for work in self.works}
        before, self.checkpoint = (
            self.checkpoint,
            replace(self.checkpoint, batch=batch, high=high, tables=tables, **facts),
        )
        stamp = Stamp(LANE, batch, AT)
        written = [self._written([checkpoint_row(self.checkpoint.changes_since(before), stamp)])]
        if changes:
            written.append(self._written(changes))
        snapshot = self.log.look() or self.log.snapshot
        actions, txn = [file.added(AT) for file in written], (build_app_id(LANE), batch)
        made = commit_actions(
            self.log.store, snapshot, actions, operation="WRITE", clock=_now(), txn=txn
        )
        self.log.know(made)
        self.runner.highs.note_landed(batch, high)

    def apply(self, waived: frozenset[str] = frozenset()) -> tuple[MergeReport, ...]:
        """Merge all mirrors up to the newest batch; return the reports, which must balance."""
        found: list[MergeReport] = []
        request = MergeRequest(waived)
        while True:
            turns = self.runner.run(LandedState(self.checkpoint, self.catalog), request)
            odd = [turn for turn in turns if turn.hold is not None or turn.account.residual]
            if odd:
                raise AssertionError(f"not applied: {odd[0]}")
            if not turns:
                return tuple(found)
            found += turns

    def upkeep(self) -> None:
        """Compact what is due, as the service does between merge runs."""
        applied = {name: self.runner.mirrors.applied(name) for name in self.checkpoint.tables}
        keys = {work.shard: ("id",) for work in self.works}
        held = self.runner.held.is_held
        self.maintenance.run(self.checkpoint, {}, applied, held, key=keys.__getitem__)

    def files(self, work: Workload) -> Mapping[str, ActiveFile]:
        """Return the files of a table's mirror, by path."""
        snapshot = self.runner.mirrors.look(work.shard)
        return {} if snapshot is None else snapshot.files

    def mirror(self, work: Workload) -> str:
        """Return the address of a table's mirror."""
        return self.settings.mirror(work.shard)

    def _fill(self, work: Workload) -> None:
        store = open_store(self.mirror(work))
        name = f"{SOURCE}/{work.shard}"
        table = self.catalog.table(work.shard, {Shard(SOURCE, work.shard): work.shard})
        shape = TargetSchema(table, work.schema, {name: work.schema}, self.catalog.at, {})
        made = create_mirror(store, shape, CommitStamp(LANE, AT))
        target = Target(store, made.metadata, table.key, AT)
        adds = [write_rows(_provided(rows, work), target) for rows in work.image(AT_ONCE)]
        commit_actions(
            store,
            made,
            adds,
            operation="MERGE",
            clock=AT,
            note=commit_note(made.version, 0, LANE),
            txn=(build_app_id(LANE), 0),
        )
        self.runner.highs.note_applied(work.shard, 0, frozenset({work.topic}))

    def _written(self, groups: Sequence[pa.RecordBatch]) -> WrittenFile:
        """Write rows as one file of the change log, run by run, as one landing task does."""
        name = f"part-{self.checkpoint.batch:06}-{groups[0]['op'][0]}.parquet"
        with SortedFile(self.log.store, self.log.snapshot.metadata, name, AT) as file:
            run_: list[pa.RecordBatch] = []
            for rows in groups:
                for first in range(0, len(rows), RUN_ROWS):
                    run_.append(rows.slice(first, RUN_ROWS))
                    if sum(map(len, run_)) >= RUN_ROWS:
                        file.add(run_)
                        run_ = []
            if run_:
                file.add(run_)
        if file.written is None:
            raise AssertionError("a batch without rows")
        return file.written


def _provided(rows: pa.Table, work: Workload) -> pa.Table:
    """Return rows of a base, with their origin."""
    count = len(rows)
    parts = {
        "source": pa.repeat(SOURCE, count),
        "shard": pa.repeat(work.shard, count),
        "order": rows["order"].combine_chunks(),
        "op": pa.repeat(str(Op.READ), count),
        "origin": pa.repeat(pa.scalar(int(Origin.SNAPSHOT), pa.int32()), count),
        "at": pa.repeat(pa.scalar(AT, pa.timestamp("us", "UTC")), count),
        "batch": pa.repeat(0, count),
    }
    meta = pa.StructArray.from_arrays([parts[f.name] for f in META], fields=list(META))
    return rows.select(work.names).append_column(SLUICE, meta)


def _now() -> datetime:
    return datetime.now(UTC)
