"""Who writes a mirror?  Sluice itself by deletion vectors, or Spark's MERGE where it cannot.

The table's own protocol decides, each time it is looked at.  One turn at a time: a pass commits
what it wrote itself first, then lets Spark merge one mirror after the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Protocol

import structlog

from pipeline.apply.floors import highest
from pipeline.apply.mirror_job import MirrorJob, by_vectors
from pipeline.apply.mirrors import following, told_floors, told_life
from pipeline.apply.reshape import Shape, followed
from pipeline.apply.turn import Counts, TurnTask, Written
from pipeline.changelog.table import app
from pipeline.lake.alterations import with_properties
from pipeline.lake.commit import commit
from pipeline.lake.log import Snapshot
from pipeline.lake.protocol import VECTORS, unwritable, writes_vectors
from pipeline.lake.store import Store

log = structlog.get_logger(__name__)


class MirrorWriter(Protocol):
    """Takes a mirror from one version to a later one."""

    def followed(
        self, store: Store, snapshot: Snapshot, shape: Shape, clock: datetime, lane: str
    ) -> Snapshot:
        """The mirror with the columns of today; see :func:`pipeline.apply.reshape.followed`."""
        ...

    def turn(self, task: TurnTask) -> Written:
        """Work a turn out; see :func:`pipeline.apply.turn.turn`."""
        ...

    def commit(
        self,
        store: Store,
        job: MirrorJob,
        written: Written,
        *,
        clock: datetime,
        lane: str,
        life: int | None,
    ) -> Snapshot:
        """Make what a turn came to the next version; see :func:`pipeline.lake.commit.commit`."""
        ...


class ByVectors:
    """Our own writer: new rows in a file, those that went in deletion vectors."""

    def followed(
        self, store: Store, snapshot: Snapshot, shape: Shape, clock: datetime, lane: str
    ) -> Snapshot:
        """In one commit, with the files whose rows change."""
        return followed(store, snapshot, shape, clock, lane)

    def turn(self, task: TurnTask) -> Written:
        """Leaves files; may run anywhere."""
        return by_vectors(task)

    def commit(
        self,
        store: Store,
        job: MirrorJob,
        written: Written,
        *,
        clock: datetime,
        lane: str,
        life: int | None,
    ) -> Snapshot:
        """Put if absent; the applied batch, its life and the floors go with it."""
        snapshot, until = job.snapshot, job.wanted.until
        remembered = highest(written.floors)
        told = {**(told_floors(remembered) if remembered else {}), **told_life(life)}
        more = with_properties(snapshot, told) if told else ()
        return commit(
            store,
            snapshot,
            (*more, *written.actions),
            operation="MERGE",
            clock=clock,
            note=following(snapshot, until, lane, **told_turn(job, written)),
            txn=(app(lane), until),
            metrics=metrics(written.counts),
        )


def why_spark(snapshot: Snapshot) -> str | None:
    """What makes the table one that Sluice does not write itself; None if nothing does."""
    if (what := unwritable(snapshot)) is not None:
        return what
    if snapshot.metadata.partition_columns:
        return f"it is partitioned by {', '.join(snapshot.metadata.partition_columns)}"
    return None if writes_vectors(snapshot) else f"{VECTORS} is not on"


@dataclass(eq=False)
class Writers:
    """Chooses for each mirror; without Spark's, a mirror that is not ours to write is refused.

    ``why`` tells for what reason a table is left to Spark.
    """

    spark: MirrorWriter | None = None
    why: Callable[[Snapshot], str | None] = why_spark
    _ours: MirrorWriter = field(default_factory=ByVectors)
    _told: dict[str, str] = field(default_factory=dict)

    def of(self, table: str, snapshot: Snapshot) -> MirrorWriter:
        """Who writes *table*; that it is Spark is logged once, with the reason."""
        why = self.why(snapshot)
        if why is None or self.spark is None:
            return self._ours
        if self._told.get(table) != why:
            self._told[table] = why
            log.info("mirror_merged_by_spark", table=table, because=why)
        return self.spark

    def by_spark(self, table: str, snapshot: Snapshot) -> bool:
        """Whether that is Spark."""
        return self.of(table, snapshot) is self.spark


def told_turn(job: MirrorJob, written: Written) -> Mapping[str, object]:
    """What the commit of a turn says of itself, besides the version that it follows."""
    return {"since": job.wanted.after, "account": asdict(written.account)}


def metrics(counts: Counts) -> dict[str, int]:
    """The rows that a turn changes, under Delta's names."""
    return {
        "numTargetRowsInserted": counts.inserted,
        "numTargetRowsUpdated": counts.updated,
        "numTargetRowsDeleted": counts.deleted + counts.floored,
    }
