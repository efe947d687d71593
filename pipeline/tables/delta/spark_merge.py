"""Merges a slice with Spark's MERGE, for mirrors that Sluice does not write itself.

Spark looks up the keys and commits. The same functions as for Sluice's own writer decide each
change, and MERGE does what was decided for each row. The counts in the Delta log show whether
it did; see `pipeline.apply.account.find_miscount`. Each merge has a Spark session of its own: the
settings that number and name a commit would be used by any commit in a shared session.

Spark refuses what cannot be matched exactly, as Sluice's own lookup does. A lookup collects at
most as many rows as keys, times the shards of the table. It reports that a row exists, not in
which file, so values of existing rows cannot be read for partial or archived rows.

In the SQL texts `t` is a row of the mirror. Its `_sluice` may be missing, as in an adopted
table.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from pipeline.apply.decide import Fill, Floors, Found, RowVerdict, fill_defaults
from pipeline.apply.merge import (
    MergePlan,
    MergeResult,
    MergeTask,
    account_for,
    count_rows,
    plan_merge,
)
from pipeline.apply.merge_job import MergeJob, describe_merge, early_floors
from pipeline.apply.mirror import (
    LIFE,
    CommitStamp,
    floors_property,
    following_note,
    incarnation_of,
    incarnation_property,
    table_property,
)
from pipeline.apply.row_metadata import RANK, SHARD, SOURCE, Adoption, RowOrigins, is_same
from pipeline.apply.schema_evolution import SchemaDelta, TargetSchema
from pipeline.changelog.table import build_app_id
from pipeline.delta import protocol
from pipeline.delta.log import Snapshot, load_snapshot
from pipeline.delta.store import Store, open_store
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.spark.session import describe_jobs
from pipeline.tables.delta.files import Path
from pipeline.tables.delta.find import prepare_keys
from pipeline.tables.delta.merge import cast_keys, commit_metrics
from pipeline.tables.delta.rewrite import find_schema_delta, note_rewrite

INSERT, UPDATE, DELETE = 0, 1, 2  # the action of a row of ``changes``


def merge_statement(
    target: str, names: Mapping[str, str], on: Sequence[str], gone: str | None
) -> str:
    """The MERGE of ``changes`` into *target*; *names*: table column -> column of ``changes``.

    The column ``act`` holds the action. *on* are conditions that find the row of a change. Rows of
    the mirror that meet *gone* are deleted. An insert never matches: a row with its key may be one
    that is deleted.
    """
    set_ = ", ".join(f"t.{quote_name(name)} = s.{own}" for name, own in names.items())
    values = ", ".join(f"s.{own}" for own in names.values())
    return f"""
        MERGE INTO {target} t USING changes s
        ON s.act <> {INSERT} AND {" AND ".join(on)}
        WHEN MATCHED AND s.act = {UPDATE} THEN UPDATE SET {set_}
        WHEN MATCHED AND s.act = {DELETE} THEN DELETE
        WHEN NOT MATCHED AND s.act = {INSERT} THEN
            INSERT ({", ".join(map(quote_name, names))}) VALUES ({values})
        {f"WHEN NOT MATCHED BY SOURCE AND {gone} THEN DELETE" if gone else ""}"""  # noqa: S608


def owner_sql(adoption: Adoption) -> tuple[str, str]:
    """Source and shard of a row of the mirror, in SQL."""
    source, shard = (f"t.{column_sql(path)}" for path in (SOURCE, SHARD))
    if (own := adoption.shard) is None:
        return source, shard
    return (
        f"coalesce({source}, {quote_text(own.source)})",
        f"coalesce({shard}, {quote_text(own.name)})",
    )


def below_sql(floors: Floors, adoption: Adoption) -> str:
    """Condition that a row is below the floor of its shard, in SQL; a row without an order is."""
    source, shard = owner_sql(adoption)
    order = [f"t.{column_sql(path)}" for path in RANK[:-1]]
    least = adoption.order
    parts = []
    for own, top in floors.items():
        place = ", ".join(f"{n}L" for n in top.parts)
        unknown = "true" if least is None or least < top else "false"
        older = f"coalesce(struct({', '.join(order)}) < struct({place}), {unknown})"
        missing = " OR ".join(f"{part} IS NULL" for part in order)
        parts.append(
            f"({source} = {quote_text(own.source)} AND {shard} = {quote_text(own.name)} "
            f"AND if({missing}, {unknown}, {older}))"
        )
    return f"({' OR '.join(parts)})"


def table_sql(uri: str) -> str:
    """The SQL name of the table in a folder."""
    return f"delta.{quote_name(uri)}"


def column_sql(path: Sequence[str]) -> str:
    """The SQL name of a column inside a struct."""
    return ".".join(quote_name(name) for name in path)


def quote_name(name: str) -> str:
    """Quote a name with any characters."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(value: str) -> str:
    """Quote a text literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sql_type(kind: pa.DataType) -> str:
    """The name of a type in Spark."""
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return "timestamp_ntz"
    return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())


_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+)[.\]]")
_NO_FILES = re.compile(r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.|No FileSystem for")
_RACES = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_TELLING = ("FEATURE", "PROTOCOL", "COLUMN_MAPPING")  # errors whose texts contain no value of a row


@dataclass(frozen=True, slots=True, eq=False)
class KeyLookup:
    """Looks up keys in a mirror, as of the version that a merge is planned from."""

    session: SparkSession
    snapshot: Snapshot
    adoption: Adoption

    def find(self, keys: pa.Table, owners: RowOrigins | None) -> Found:
        """Like ``find_rows`` in :mod:`pipeline.tables.delta.find`; file 0 means that a row exists.

        Collects at most as many rows as there are keys, times the table's shards.
        """
        sought: dict[Path, pa.Array] = {
            (name,): keys[name].combine_chunks() for name in keys.column_names
        }
        if owners is not None:
            sought |= {SOURCE: owners.source, SHARD: owners.shard}
        if len(keys):
            prepare_keys(sought, last=(SOURCE, SHARD))  # refuses what is not matched exactly
        numbered = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
        numbered = numbered.append_column("n", pa.array(range(len(keys)), pa.int64()))
        on = " AND ".join(
            f"t.{quote_name(name)} = s.k{i}" for i, name in enumerate(keys.column_names)
        )
        columns = ", ".join(
            f"t.{column_sql(path)} AS m{i}" for i, path in enumerate((SOURCE, SHARD, *RANK))
        )
        with translate_errors(self.snapshot.uri):
            self._view()
            create_view(self.session, numbered, "sought")
            query = f"SELECT s.n, {columns} FROM mirror t JOIN sought s ON {on}"  # noqa: S608
            hits = self.session.sql(query).toArrow()
        return self._found(hits, keys, owners)

    def below(self, floors: Floors) -> int:
        """The number of rows of the mirror below *floors*.

        Raises:
            HeldError: ``no_shard``, the floor of a row without ``_sluice`` is unknown.
        """
        if not floors:
            return 0
        with translate_errors(self.snapshot.uri):
            self._view()
            query = f"""SELECT count_if({below_sql(floors, self.adoption)}) AS gone,
                count_if({owner_sql(self.adoption)[1]} IS NULL) AS nobodys FROM mirror t"""  # noqa: S608
            found = self.session.sql(query).collect()[0]
        if found["nobodys"]:
            raise _no_shard(self.snapshot.uri)
        return int(found["gone"])

    def _view(self) -> None:
        reader = self.session.read.format("delta").option("versionAsOf", self.snapshot.version)
        reader.load(self.snapshot.uri).createOrReplaceTempView("mirror")

    def _found(self, hits: pa.Table, keys: pa.Table, owners: RowOrigins | None) -> Found:
        source, shard, *rank = (hits[f"m{i}"].combine_chunks() for i in range(len(RANK) + 2))
        at = hits["n"].to_numpy().astype(np.int64)
        theirs = self.adoption.owned(source, shard, rank, None)
        if owners is not None:
            if theirs.shard.null_count:
                raise _no_shard(self.snapshot.uri)
            ours = owners.take(at)
            own = np.flatnonzero(
                is_same(theirs.source, ours.source) & is_same(theirs.shard, ours.shard)
            )
            at, theirs = at[own], theirs.take(own)
        if len(twice := np.flatnonzero(np.bincount(at, minlength=len(keys)) > 1)):
            key = keys.slice(int(twice[0]), 1).to_pylist()[0]
            detail = f"the mirror has more than one row with the key {key}; rebuild it"
            raise HeldError("duplicate_key", detail)
        place = np.full(len(keys), -1, np.int64)
        place[at] = np.arange(len(at))
        there = place >= 0
        none = pa.array(place, mask=~there)
        rank_ = np.zeros((len(RANK), len(keys)), np.int64)
        rank_[:, there] = theirs.rank[:, place[there]]
        adopted = np.zeros(len(keys), np.bool_)
        adopted[there] = theirs.adopted[place[there]]
        parts = theirs.source.take(none), theirs.shard.take(none)
        owned = RowOrigins(*parts, rank_, adopted, np.zeros(len(keys), np.bool_))
        return Found(np.where(there, 0, -1).astype(np.int32), place, owned)


def create_view(session: SparkSession, rows: pa.Table, name: str) -> None:
    """Create a view of *rows*; PySpark cannot create one from an Arrow table without rows."""
    none = [pa.nulls(1, field.type) for field in rows.schema]
    frame = session.createDataFrame(
        rows if len(rows) else pa.Table.from_arrays(none, rows.column_names)
    )
    (frame if len(rows) else frame.where("false")).createOrReplaceTempView(name)


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Convert Spark's errors to ours, without a value of a row."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        found = _CONDITION.search(text)
        condition = found[1] if found else type(error).__name__
        if condition.startswith(_RACES):
            raise LostRaceError(f"{uri}: another commit came between ({condition})") from error
        if _NO_FILES.search(text):
            raise _no_files(uri) from error
        if found is None:
            raise UnreachableError(f"{uri}: Spark did not answer ({condition})") from error
        telling = any(word in condition for word in _TELLING)
        why = text[found.start() :].partition("\n")[0] if telling else condition
        reason = "protocol" if telling else "refused"
        raise HeldError(reason, f"{uri}: Spark rejects this table or a row of it: {why}") from error


def _no_files(uri: str) -> HeldError:
    return HeldError(
        "protocol",
        f"{uri}: this mirror is Spark's to merge, and Spark has no classes to read that address; "
        "rebuild the mirror, which Sluice then writes itself, or give Spark hadoop-aws "
        "(docs/guides/object-storage-s3.md)",
    )


def _no_shard(uri: str) -> HeldError:
    detail = f"{uri}: a row does not name its shard"
    return HeldError("no_shard", f"{detail}; rebuild the mirror, or give it one shard")


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

    def followed(self, snapshot: Snapshot, shape: TargetSchema, stamp: CommitStamp) -> Snapshot:
        """The mirror with the columns of *shape*, by as many commits as Spark needs.

        Raises:
            HeldError: a change cannot be followed, or Spark refuses it.
            LostRaceError: another writer has committed meanwhile.
        """
        step = find_schema_delta(snapshot, shape)
        if step is None:
            return snapshot
        own = self._own(snapshot, stamp)
        snapshot = own.tell(snapshot, _features(snapshot, step.schema))
        if step.rewrites:
            note_rewrite(shape.table, snapshot)
            snapshot = own.rewrite(snapshot, step, Adoption.of(shape.table))
        else:
            snapshot = own.widen(snapshot, step.schema)
        named = table_property(snapshot, shape.table.name)
        return own.tell(snapshot, {**step.remembered, **named})

    def plan_task(self, task: MergeTask[Snapshot]) -> MergeResult[MergePlan]:
        """Plan a merge; nothing is written before it is committed.

        Raises:
            HeldError: the table must be held; see its reason.
        """
        look = KeyLookup(self.session.newSession(), task.snapshot, task.adoption)
        with describe_jobs(self.session, f"look up {task.table.name}"):
            made = plan_merge(task, partial(_find, look))
            floored = look.below(made.raised)
        counts = count_rows(made.verdicts, floored)
        account = account_for(task, made, counts)
        return MergeResult(task.snapshot.version, made, counts, account, made.floors)

    def commit(
        self, job: MergeJob[Snapshot], written: MergeResult[MergePlan], stamp: CommitStamp
    ) -> Snapshot:
        """MERGE the planned rows, as one commit with the applied batch.

        Raises:
            LostRaceError: another writer has committed meanwhile; nothing was merged.
            UnreachableError: whether it was merged is unknown; read the log again to find out.
            HeldError: Spark refuses to write the table or a row.
        """
        snapshot, until, made = job.task.snapshot, job.wanted.until, written.work
        own, life, numbered = self._own(snapshot, stamp), stamp.life, build_app_id(stamp.lane)
        if first := early_floors(job, written):
            snapshot = own.tell(snapshot, floors_property(first))
        if incarnation_of(snapshot) not in (
            None,
            life,
        ):  # else it would describe the wrong batch meanwhile
            snapshot = own.forget(snapshot, LIFE)
        adoption = job.task.adoption
        with describe_jobs(self.session, f"MERGE of {job.name} up to batch {until}"):
            statement = own.merge(snapshot, job, made, adoption)
            note = {**describe_merge(job, written), "counts": commit_metrics(written.counts)}
            own.session.conf.set(_APP, numbered)
            own.session.conf.set(_NUMBER, str(until))
            snapshot = own.run(snapshot, statement, batch=until, note=note)
        if snapshot.transactions.get(numbered) != until:
            raise UnreachableError(
                f"{snapshot.uri}: Spark's MERGE up to batch {until} left no commit"
            )
        floors = floors_property(written.floors) if written.floors else {}
        named = table_property(snapshot, job.name)
        return own.tell(snapshot, {**floors, **incarnation_property(life), **named})

    def compacted(self, snapshot: Snapshot, stamp: CommitStamp) -> Snapshot:
        """The mirror with its small and worn files joined; the same if Spark finds none.

        Raises:
            LostRaceError: another writer has committed meanwhile.
            HeldError: Spark refuses to write the table.
        """
        own = self._own(snapshot, stamp)
        for name, size in _FILE_SIZES.items():
            own.session.conf.set(f"spark.databricks.delta.optimize.{name}", size)
        with describe_jobs(self.session, f"compact {snapshot.uri}"):
            return own.run(snapshot, f"OPTIMIZE {table_sql(snapshot.uri)}")

    def _own(self, snapshot: Snapshot, stamp: CommitStamp) -> "_Own":
        return _Own(self.session.newSession(), open_store(snapshot.uri), stamp.lane)


@dataclass(frozen=True, slots=True, eq=False)
class _Own:
    """A separate session for one series of commits; its settings describe the next commit."""

    session: SparkSession
    store: Store
    lane: str

    def tell(self, snapshot: Snapshot, properties: Mapping[str, str]) -> Snapshot:
        """Set the table's *properties* that differ."""
        known = snapshot.metadata.configuration
        new = {name: value for name, value in properties.items() if known.get(name) != value}
        if not new:
            return snapshot
        pairs = ", ".join(
            f"{quote_text(name)} = {quote_text(value)}" for name, value in new.items()
        )
        return self.run(
            snapshot, f"ALTER TABLE {table_sql(snapshot.uri)} SET TBLPROPERTIES ({pairs})"
        )

    def forget(self, snapshot: Snapshot, name: str) -> Snapshot:
        """Remove one property."""
        return self.run(
            snapshot,
            f"ALTER TABLE {table_sql(snapshot.uri)} UNSET TBLPROPERTIES ({quote_text(name)})",
        )

    def widen(self, snapshot: Snapshot, schema: pa.Schema) -> Snapshot:
        """Add those columns of *schema* that the table does not have."""
        there = protocol.column_names(snapshot)
        new = [field for field in schema if field.name not in there]
        if not new:
            return snapshot
        added = ", ".join(f"{quote_name(field.name)} {sql_type(field.type)}" for field in new)
        return self.run(snapshot, f"ALTER TABLE {table_sql(snapshot.uri)} ADD COLUMNS ({added})")

    def rewrite(self, snapshot: Snapshot, step: SchemaDelta, adoption: Adoption) -> Snapshot:
        """Rewrite all rows, with the columns and types of *step* and its defaults.

        Raises:
            HeldError: ``refused``, a value does not fit its column's new type.
        """
        self.session.conf.set("spark.sql.ansi.enabled", "true")  # or it would become NULL
        there = protocol.column_names(snapshot)
        kept = [quote_name(name) for name in there if name not in step.schema.names]
        cast = [
            f"CAST({quote_name(f.name) if f.name in there else 'NULL'} AS {sql_type(f.type)}) "
            f"AS {quote_name(f.name)}"
            for f in step.schema
        ]
        with translate_errors(snapshot.uri):
            reader = self.session.read.format("delta").option("versionAsOf", snapshot.version)
            rows = reader.load(snapshot.uri).selectExpr(*cast, *kept)
            if step.fills:
                rows = rows.mapInArrow(_filling(step.fills, adoption), rows.schema)
        self._name(snapshot, -1, {})
        with translate_errors(snapshot.uri):
            writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
            writer.partitionBy(*snapshot.metadata.partition_columns).save(snapshot.uri)
        return self._after(snapshot)

    def merge(
        self, snapshot: Snapshot, job: MergeJob[Snapshot], made: MergePlan, adoption: Adoption
    ) -> str:
        """The MERGE statement; creates its view ``changes``."""
        coded = np.full(len(RowVerdict), -1, np.int64)
        for verdict, act in _ACTS.items():
            coded[verdict] = act
        acts = coded[made.verdicts]
        rows = made.rows.filter(pa.array(acts >= 0))
        names = {name: f"c{i}" for i, name in enumerate(rows.column_names)}
        source = rows.rename_columns(list(names.values()))
        source = source.append_column("act", pa.array(acts[acts >= 0]))
        with translate_errors(snapshot.uri):
            create_view(self.session, source, "changes")
        on = [f"t.{quote_name(name)} = s.{names[name]}" for name in job.task.table.key]
        if not job.task.table.unique_across_shards:
            meta = names[SOURCE[0]]
            pairs = zip(owner_sql(adoption), (SOURCE, SHARD), strict=True)
            on += [f"{ours} = s.{meta}.{path[-1]}" for ours, path in pairs]
        gone = below_sql(made.raised, adoption) if made.raised else None
        return merge_statement(table_sql(snapshot.uri), names, on, gone)

    def run(
        self,
        snapshot: Snapshot,
        statement: str,
        *,
        batch: int = -1,
        note: Mapping[str, object] | None = None,
    ) -> Snapshot:
        """Run one commit, which states that it is ours and follows *snapshot*."""
        self._name(snapshot, batch, note or {})
        with translate_errors(snapshot.uri):
            self.session.sql(statement)
        return self._after(snapshot)

    def _name(self, snapshot: Snapshot, batch: int, note: Mapping[str, object]) -> None:
        seen = load_snapshot(self.store, snapshot)
        if seen is None or seen.version != snapshot.version:
            raise LostRaceError(f"{snapshot.uri}: another commit follows {snapshot.version}")
        said = following_note(snapshot, batch, self.lane, **note)
        self.session.conf.set(_NOTE, json.dumps(said, sort_keys=True))

    def _after(self, snapshot: Snapshot) -> Snapshot:
        for name in (_APP, _NUMBER, _NOTE):
            self.session.conf.unset(name)
        made = load_snapshot(self.store, snapshot)
        if made is None:
            raise HeldError("table_replaced", f"{snapshot.uri} is gone; restore it")
        return made


def _find(look: KeyLookup, keys: pa.Table, owners: RowOrigins | None) -> Found:
    return look.find(cast_keys(look.snapshot, keys), owners)


def _features(snapshot: Snapshot, schema: pa.Schema) -> dict[str, str]:
    """Properties that enable the table features that names and types of *schema* need."""
    mapped = protocol.mapping_needed(schema)
    found = {protocol.MODE: "name"} if mapped and protocol.MODE not in _known(snapshot) else {}
    asked = protocol.our_protocol(schema, {})["protocol"].get("readerFeatures", ())
    listed = snapshot.protocol.get("readerFeatures") or ()
    return found | {f"delta.feature.{name}": "supported" for name in asked if name not in listed}


def _known(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.metadata.configuration


def _filling(fills: Sequence[Fill], adoption: Adoption):  # type: ignore[no-untyped-def]
    """A function that fills in defaults, batch by batch."""

    def fill(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            yield from fill_defaults(rows, adoption.owners(rows), fills).to_batches()

    return fill
