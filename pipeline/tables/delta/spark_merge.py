"""The same turn by Spark's MERGE, for mirrors of a protocol that Sluice does not write itself.

Spark looks up the keys and commits; what becomes of each change is decided by the same functions as
in our own turns.  The MERGE does what was decided row by row, and the log's own counts show whether
it did: see :func:`pipeline.apply.account.miscounted`.  It runs in a session of its own, for the
settings that number and name a commit would be taken by whoever shares it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.apply.adoption import SHARD, SOURCE, Adoption
from pipeline.apply.decide import Found, RowVerdict
from pipeline.apply.fills import Fill, filled
from pipeline.apply.mirror_job import MirrorJob
from pipeline.apply.mirror_snapshot import (
    LIFE,
    CommitStamp,
    following,
    life_of,
    told_floors,
    told_life,
)
from pipeline.apply.provenance import Owned
from pipeline.apply.reshape import Growth, Shape
from pipeline.apply.turn import (
    Decided,
    TurnTask,
    Written,
    account_of,
    counts_of,
    decided,
)
from pipeline.apply.turn_commit import floors_first, told_turn
from pipeline.changelog.table import app
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.lake import columns, protocol
from pipeline.lake.log import Snapshot, load
from pipeline.lake.store import Store, open_store
from pipeline.spark.session import described
from pipeline.tables.delta.growth import lacking
from pipeline.tables.delta.spark_look import KeyLookup, translated, view
from pipeline.tables.delta.spark_sql import (
    DELETE,
    INSERT,
    UPDATE,
    below,
    kind_of,
    merge,
    owner,
    quoted,
    table,
    text,
)
from pipeline.tables.delta.turn import keys_in, metrics

_ACTS = {
    RowVerdict.INSERT: INSERT,
    RowVerdict.UPDATE: UPDATE,
    RowVerdict.MOVE: UPDATE,
    RowVerdict.DELETE: DELETE,
}
_FILE_SIZES = {"minFileSize": str(64 << 20), "maxFileSize": str(256 << 20)}  # larger ones stay
_APP, _NUMBER = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_NOTE = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(eq=False)
class SparkMerge:
    """Writes mirrors with Spark, in the driver; one at a time."""

    session: SparkSession

    def followed(self, snapshot: Snapshot, shape: Shape, stamp: CommitStamp) -> Snapshot:
        """The mirror with the columns of today, by as many commits as Spark needs for it.

        Raises:
            HeldError: a change cannot be followed, or Spark refuses it.
            LostRaceError: somebody else committed meanwhile.
        """
        step = lacking(snapshot, shape)
        if step is None:
            return snapshot
        own = self._own(snapshot, stamp)
        snapshot = own.tell(snapshot, _features(snapshot, step.schema))
        if step.rewrites:
            snapshot = own.rewrite(snapshot, step, Adoption.of(shape.table))
        else:
            snapshot = own.widen(snapshot, step.schema)
        return own.tell(snapshot, step.remembered)

    def turn(self, task: TurnTask[Snapshot]) -> Written[Decided]:
        """Work a turn out; nothing is written before it is committed.

        Raises:
            HeldError: the table must stand still; the reason says why.
        """
        look = KeyLookup(self.session.newSession(), task.snapshot, task.adoption)
        with described(self.session, f"look up {task.table.name}"):
            made = decided(task, partial(_find, look))
            floored = look.below(made.raised)
        counts = counts_of(made.verdicts, floored)
        account = account_of(task, made, counts)
        return Written(task.snapshot.version, made, counts, account, made.floors)

    def commit(
        self, job: MirrorJob[Snapshot], written: Written[Decided], stamp: CommitStamp
    ) -> Snapshot:
        """MERGE what was decided, as one commit that bears the applied batch.

        Raises:
            LostRaceError: somebody else committed meanwhile; nothing was merged.
            UnreachableError: whether it was merged is not known; reading the log again tells.
            HeldError: Spark refuses to write the table or a row.
        """
        snapshot, until, made = job.snapshot, job.wanted.until, written.work
        own, life, numbered = self._own(snapshot, stamp), stamp.life, app(stamp.lane)
        if first := floors_first(job, written):
            snapshot = own.tell(snapshot, told_floors(first))
        if life_of(snapshot) not in (None, life):  # it speaks of the applied batch, old or new
            snapshot = own.forget(snapshot, LIFE)
        adoption = Adoption.of(job.table, job.adopted)
        with described(self.session, f"MERGE of {job.table.name} up to batch {until}"):
            statement = own.merge(snapshot, job, made, adoption)
            told = {**told_turn(job, written), "counts": metrics(written.counts)}
            own.session.conf.set(_APP, numbered)
            own.session.conf.set(_NUMBER, str(until))
            snapshot = own.run(snapshot, statement, batch=until, told=told)
        if snapshot.transactions.get(numbered) != until:
            raise UnreachableError(
                f"{snapshot.uri}: Spark's MERGE up to batch {until} left no commit"
            )
        floors = told_floors(written.floors) if written.floors else {}
        return own.tell(snapshot, {**floors, **told_life(life)})

    def compacted(self, snapshot: Snapshot, stamp: CommitStamp) -> Snapshot:
        """The mirror with its small and worn files joined; the same where Spark finds none.

        Raises:
            LostRaceError: somebody else committed meanwhile.
            HeldError: Spark refuses to write the table.
        """
        own = self._own(snapshot, stamp)
        for name, size in _FILE_SIZES.items():
            own.session.conf.set(f"spark.databricks.delta.optimize.{name}", size)
        with described(self.session, f"compact {snapshot.uri}"):
            return own.run(snapshot, f"OPTIMIZE {table(snapshot.uri)}")

    def _own(self, snapshot: Snapshot, stamp: CommitStamp) -> "_Own":
        return _Own(self.session.newSession(), open_store(snapshot.uri), stamp.lane)


@dataclass(frozen=True, slots=True, eq=False)
class _Own:
    """A session of its own, whose settings are those of the next commit; each follows the last."""

    session: SparkSession
    store: Store
    lane: str

    def tell(self, snapshot: Snapshot, properties: Mapping[str, str]) -> Snapshot:
        """Set the table's *properties*; none that it has."""
        known = snapshot.metadata.configuration
        new = {name: value for name, value in properties.items() if known.get(name) != value}
        if not new:
            return snapshot
        pairs = ", ".join(f"{text(name)} = {text(value)}" for name, value in new.items())
        return self.run(snapshot, f"ALTER TABLE {table(snapshot.uri)} SET TBLPROPERTIES ({pairs})")

    def forget(self, snapshot: Snapshot, name: str) -> Snapshot:
        """Take one property away."""
        return self.run(
            snapshot, f"ALTER TABLE {table(snapshot.uri)} UNSET TBLPROPERTIES ({text(name)})"
        )

    def widen(self, snapshot: Snapshot, schema: pa.Schema) -> Snapshot:
        """Add those columns of *schema* that the table lacks."""
        there = protocol.column_names(snapshot)
        new = [field for field in schema if field.name not in there]
        if not new:
            return snapshot
        told = ", ".join(f"{quoted(field.name)} {kind_of(field.type)}" for field in new)
        return self.run(snapshot, f"ALTER TABLE {table(snapshot.uri)} ADD COLUMNS ({told})")

    def rewrite(self, snapshot: Snapshot, step: Growth, adoption: Adoption) -> Snapshot:
        """Write all rows anew, with the columns and types of *step* and its defaults.

        Raises:
            HeldError: ``refused``, a value does not fit its column's new type.
        """
        self.session.conf.set("spark.sql.ansi.enabled", "true")  # or it would become NULL
        there = protocol.column_names(snapshot)
        kept = [quoted(name) for name in there if name not in step.schema.names]
        cast = [
            f"CAST({quoted(f.name) if f.name in there else 'NULL'} AS {kind_of(f.type)}) "
            f"AS {quoted(f.name)}"
            for f in step.schema
        ]
        with translated(snapshot.uri):
            reader = self.session.read.format("delta").option("versionAsOf", snapshot.version)
            rows = reader.load(snapshot.uri).selectExpr(*cast, *kept)
            if step.fills:
                rows = rows.mapInArrow(_filling(step.fills, adoption), rows.schema)
        self._name(snapshot, -1, {})
        with translated(snapshot.uri):
            writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
            writer.partitionBy(*snapshot.metadata.partition_columns).save(snapshot.uri)
        return self._after(snapshot)

    def merge(
        self, snapshot: Snapshot, job: MirrorJob[Snapshot], made: Decided, adoption: Adoption
    ) -> str:
        """The statement; its rows stand in the view ``changes``."""
        coded = np.full(len(RowVerdict), -1, np.int64)
        for verdict, act in _ACTS.items():
            coded[verdict] = act
        acts = coded[made.verdicts]
        rows = made.rows.filter(pa.array(acts >= 0))
        names = {name: f"c{i}" for i, name in enumerate(rows.column_names)}
        source = rows.rename_columns(list(names.values()))
        source = source.append_column("act", pa.array(acts[acts >= 0]))
        with translated(snapshot.uri):
            view(self.session, source, "changes")
        on = [f"t.{quoted(name)} = s.{names[name]}" for name in job.table.key]
        if not job.table.unique_across_shards:
            meta = names[SOURCE[0]]
            pairs = zip(owner(adoption), (SOURCE, SHARD), strict=True)
            on += [f"{ours} = s.{meta}.{path[-1]}" for ours, path in pairs]
        gone = below(made.raised, adoption) if made.raised else None
        return merge(table(snapshot.uri), names, on, gone)

    def run(
        self,
        snapshot: Snapshot,
        statement: str,
        *,
        batch: int = -1,
        told: Mapping[str, object] | None = None,
    ) -> Snapshot:
        """One commit, which says that it is ours and follows *snapshot*."""
        self._name(snapshot, batch, told or {})
        with translated(snapshot.uri):
            self.session.sql(statement)
        return self._after(snapshot)

    def _name(self, snapshot: Snapshot, batch: int, told: Mapping[str, object]) -> None:
        seen = load(self.store, snapshot)
        if seen is None or seen.version != snapshot.version:
            raise LostRaceError(f"{snapshot.uri}: another commit follows {snapshot.version}")
        said = following(snapshot, batch, self.lane, **told)
        self.session.conf.set(_NOTE, json.dumps(said, sort_keys=True))

    def _after(self, snapshot: Snapshot) -> Snapshot:
        for name in (_APP, _NUMBER, _NOTE):
            self.session.conf.unset(name)
        made = load(self.store, snapshot)
        if made is None:
            raise HeldError("table_replaced", f"{snapshot.uri} is gone; restore it")
        return made


def _find(look: KeyLookup, keys: pa.Table, owners: Owned | None) -> Found:
    return look.find(keys_in(look.snapshot, keys), owners)


def _features(snapshot: Snapshot, schema: pa.Schema) -> dict[str, str]:
    """Properties that switch on what the names and types of *schema* ask for."""
    mapped = columns.mapping_needed(schema)
    found = {columns.MODE: "name"} if mapped and columns.MODE not in _known(snapshot) else {}
    asked = protocol.ours(schema, {})["protocol"].get("readerFeatures", ())
    listed = snapshot.protocol.get("readerFeatures") or ()
    return found | {f"delta.feature.{name}": "supported" for name in asked if name not in listed}


def _known(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.metadata.configuration


def _filling(fills: Sequence[Fill], adoption: Adoption):  # type: ignore[no-untyped-def]
    """Fill defaults in, batch by batch."""

    def fill(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            yield from filled(rows, adoption.owners(rows), fills).to_batches()

    return fill
