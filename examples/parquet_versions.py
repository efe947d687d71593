"""A table format: each version of a mirror is one Parquet file, named by a small manifest.

A manifest is put where none is, ``versions/7.json``, and says all that goes with the rows: whose
commit it is, the batch that is applied, what is to be remembered.  A turn writes all rows anew, so
this is for small tables; and for reading how a format is made.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.aggregates import AggregatedColumn, RangeAggregate, TimeSpan, add_up
from pipeline.apply.decide import Found, fill_defaults, is_below, removes_row, writes_row
from pipeline.apply.invariants import Occurrences, Search
from pipeline.apply.merge import (
    MergeFunction,
    MergeResult,
    MergeTask,
    account_for,
    count_rows,
    plan_merge,
)
from pipeline.apply.merge_job import MergeJob, describe_commit
from pipeline.apply.mirror import (
    Commit,
    CommitStamp,
    Range,
    RowChanges,
    RowPart,
    commit_note,
    digest_rewrites,
    following_note,
)
from pipeline.apply.row_metadata import SLUICE, Adoption, RowOrigins
from pipeline.apply.schema_evolution import SchemaDelta, TargetSchema, find_delta, lake_schema
from pipeline.apply.table_format import MaintenanceWork, TableFormat
from pipeline.changelog.table import build_app_id
from pipeline.delta.store import Store, open_store
from pipeline.errors import HeldError, LostRaceError, ProofError, UnreachableError
from pipeline.model import Order, Shard, Table
from pipeline.readings import LogKey
from pipeline.row_digest import (
    DigestColumn,
    ListedRows,
    RangeDigest,
    list_row_digests,
    sum_columns,
    sum_ids,
    sum_ranges,
)

VERSIONS, ROWS = "versions", "rows"


@dataclass(frozen=True, slots=True)
class Version:
    """A mirror as of one version: what its manifest says, and ``entry``, the manifest's digest."""

    uri: str
    version: int
    id: str
    file: str
    columns: str
    rows: int = 0
    transactions: Mapping[str, int] = field(default_factory=dict)
    remembered: Mapping[str, str] = field(default_factory=dict)
    entry: str = ""

    @property
    def shape(self) -> str:
        """All that goes with the rows, but for the batch."""
        return _digest(json.dumps([self.id, self.columns, sorted(self.remembered.items())]))


@dataclass(frozen=True, slots=True)
class NewFile:
    """What a turn leaves: a file that no manifest names yet, and how many rows are in it."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class ParquetVersions:
    """``compression`` is that of the files; Spark's ``session`` is not needed."""

    session: Any
    compression: str = "zstd"

    def look(self, uri: str, known: Version | None) -> Version | None:
        """The highest manifest; the known one must still stand, or another mirror lies there."""
        store = open_store(uri)
        numbers = [int(name.removesuffix(".json")) for name in store.after(VERSIONS, "")]
        newest = _told(store, max(numbers))[0] if numbers else None
        if known is not None and (newest is None or newest.id != known.id):
            raise HeldError("table_replaced", f"{uri}: mirror {known.id} is gone; restore it")
        return newest

    def count(self, snapshot: Version) -> int:
        """As its manifest says."""
        return snapshot.rows

    def commits(self, uri: str, until: int) -> Iterator[Commit]:
        """Every manifest says what it came after."""
        store = open_store(uri)
        for number in range(until, -1, -1):
            made, told = _told(store, number)
            came, went = (frozenset({(one, None)}) for one in (made.file, told["replaced"]))
            yield Commit(
                version=number,
                operation=told["operation"],
                at=datetime.fromisoformat(told["at"]),
                data_changing=came != went,
                note=told["note"],
                txns=made.transactions,
                shape=made.shape,
                came=came,
                went=went,
                gained=told["gained"],
                entry=made.entry,
            )

    def rows(self, uri: str, version: int) -> Iterator[pa.RecordBatch]:
        """Of the file that it names; all at once, as everything here."""
        try:
            found = read(_told(open_store(uri), version)[0])
        except FileNotFoundError as error:
            raise UnreachableError(f"{uri}: version {version} is gone") from error
        yield from found.drop_columns([SLUICE]).to_batches()

    def frame(self, uri: str, version: int) -> Any:
        """Of the file that it names, if there is a session."""
        if self.session is None:
            return None
        return self.session.read.parquet(f"{uri}/{_told(open_store(uri), version)[0].file}")

    def contents(self, uri: str, version: int) -> tuple[RowPart, ...]:
        """One part, as there is one file."""
        try:
            found = _told(open_store(uri), version)[0]
        except HeldError as error:
            raise UnreachableError(f"{uri}: version {version} is gone") from error
        return (lambda: iter([read(found)]),)

    def changes(self, snapshot: Version, since: int, key: tuple[str, ...]) -> Iterator[RowChanges]:
        """By what is in one file and not, alike, in the one before."""
        store, commits = open_store(snapshot.uri), self.commits(snapshot.uri, snapshot.version)
        told = {one.version: one for one in commits if one.version > since}
        try:
            files = {n: read(_told(store, n)[0]) for n in range(since, snapshot.version + 1)}
        except (HeldError, UnreachableError) as error:
            raise ProofError(f"{snapshot.uri}: a version since {since} is gone") from error
        for version in range(since + 1, snapshot.version + 1):
            before, after = files[version - 1], files[version]
            came, went = _without(after, before), _without(before, after).select([*key, SLUICE])
            yield RowChanges(told[version], (partial(iter, [came]),), (partial(iter, [went]),))

    def cloned(
        self,
        uri: str,
        version: int,
        where: str,
        at: datetime,
        correct: Callable[[Version], MergeTask[Version]] | None = None,
    ) -> int:
        """All rows are copied, and then have their turn."""
        base, store = _told(open_store(uri), version)[0], open_store(where)
        store.make_folder(VERSIONS)
        made = replace(base, uri=where, id=uuid.uuid4().hex, transactions={}, remembered={})
        copied = replace(made, file=write(where, read(base), self.compression))
        if correct is not None:
            work = Rewrite(self.compression)(replace(correct(base), snapshot=copied)).work
            copied = replace(copied, file=work.name, rows=work.rows)
        return _put(copied, None, "CLONE", at, None).rows

    def reader(self, uri: str, table: Table, lane: str) -> "PinnedRows | None":
        """Its file is never changed, and stays for a week."""
        found = self.look(uri, None)
        return None if found is None else PinnedRows(found, table, build_app_id(lane))

    def shaped(
        self, uri: str, known: Version | None, shape: TargetSchema, stamp: CommitStamp
    ) -> Version:
        """Columns are added and widened with all rows; none is ever taken away."""
        if known is None:
            open_store(uri).make_folder(VERSIONS)
            none = lake_schema(shape.schema.columns).empty_table()
            file, told = write(uri, none, self.compression), shape.texts
            first = Version(uri, 0, uuid.uuid4().hex, file, str(none.schema), remembered=told)
            return _put(first, None, "CREATE", stamp.at, commit_note(-1, -1, stamp.lane))
        rows = read(known)
        kinds = partial(_kinds, rows.schema)
        if (step := find_delta(known, kinds, shape)) is None:
            return known
        grown = _grown(rows, step, Adoption.of(shape.table))
        file, told = write(uri, grown, self.compression), {**known.remembered, **step.remembered}
        made = replace(known, file=file, columns=str(grown.schema), remembered=told)
        said = following_note(known, -1, stamp.lane)
        return _put(made, known, "COLUMNS", stamp.at, said)

    def worker(self) -> MergeFunction:
        """It holds no session, so it can go where a task runs."""
        return Rewrite(self.compression)

    def engine(self, snapshot: Version) -> MergeFunction | None:
        """None."""

    def commit(
        self, job: MergeJob[Version], written: MergeResult[NewFile], stamp: CommitStamp
    ) -> Version:
        """Nothing but the manifest is left to be written."""
        known, told = job.task.snapshot, describe_commit(job, written, stamp)
        made = replace(
            known,
            file=written.work.name,
            rows=written.work.rows,
            transactions={**known.transactions, told.application: told.batch},
            remembered={**known.remembered, **told.remembered},
        )
        return _put(made, known, "TURN", stamp.at, told.note)

    def worn(self, snapshot: Version) -> bool:
        """Each version is as good as new."""
        return False

    def kept(self, snapshot: Version, work: MaintenanceWork) -> Version:
        """Files go that no version since then had; manifests stay."""
        if work.keep is not None:
            since, store = work.stamp.at - work.keep, open_store(snapshot.uri)
            needed = set()
            for one in self.commits(snapshot.uri, snapshot.version):
                needed |= {file for file, _ in one.came}
                if one.at < since:
                    break  # it was the newest at that moment
            for file in store.names(ROWS):
                if file.name not in needed and file.modified < since:
                    store.remove(file.name)
        return snapshot


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Works a turn out by reading the whole mirror, and writes the next one."""

    compression: str

    def __call__(self, task: MergeTask[Version]) -> MergeResult[NewFile]:
        """What becomes of each change is decided as in every other format."""
        rows = read(task.snapshot)
        owners = task.adoption.owners(rows)
        made = plan_merge(
            task, partial(stand, rows, task.adoption), searching, partial(peeked, rows)
        )
        stay = ~is_below(owners, made.raised) | owners.archived
        floored = len(rows) - int(stay.sum())
        stay[made.found.position[removes_row(made.verdicts)]] = False
        new = made.rows.filter(pa.array(writes_row(made.verdicts)))
        after = pa.concat_tables([rows.filter(pa.array(stay)), _fitting(new, rows.schema)])
        counts = count_rows(made.verdicts, floored)
        if len(after) != len(rows) + counts.inserted - counts.deleted - floored:
            raise HeldError("account", f"{task.snapshot.uri}: {counts}, but {len(after)} rows")
        file = write(task.snapshot.uri, after, self.compression)
        account = account_for(task, made, counts)
        new_file = NewFile(file, len(after))
        return MergeResult(task.snapshot.version, new_file, counts, account, made.floors)


def stand(rows: pa.Table, adoption: Adoption, keys: pa.Table, owners: RowOrigins | None) -> Found:
    """Where the *keys* stand in *rows*, of the same shard if that counts."""
    nobody = pa.Table.from_pylist([{}], rows.schema)
    whose = adoption.owners(pa.concat_tables([rows, nobody]))
    known = _tuples(rows.select(keys.column_names), None if owners is None else whose)
    at = {key: number for number, key in enumerate(known)}
    if len(at) < len(known):
        raise HeldError("duplicate_key", "the mirror has two rows with one key; rebuild it")
    wanted = _tuples(keys, owners)
    if any(None in key for key in wanted):
        raise HeldError("null_key", "a change has NULL in a key column; name another `key:`")
    place = np.array([at.get(key, len(rows)) for key in wanted], np.int64)
    return Found(np.where(place < len(rows), 0, -1).astype(np.int32), place, whose.take(place))


def peeked(rows: pa.Table, found: Found, names: Sequence[str]) -> pa.Table:
    """Columns *names* of those of *rows* that were found."""
    return rows.select(list(names)).take(pa.array(found.position))


def searching(snapshot: Version, adoption: Adoption) -> Search:
    """How values are found in a version, of this mirror or of another."""

    def search(values: pa.Table) -> Occurrences:
        rows = read(snapshot)
        return hold(rows, adoption.owners(rows), values)

    return search


def hold(rows: pa.Table, owners: RowOrigins, values: pa.Table) -> Occurrences:
    """All of *rows* that hold one of the *values*."""
    of = {value: number for number, value in enumerate(_tuples(values, None))}
    known = [of.get(one, -1) for one in _tuples(rows.select(values.column_names), None)]
    found = np.array(known, np.int64)
    place = np.flatnonzero(found >= 0)
    return Occurrences(found[place], np.zeros(len(place), np.int32), place, owners.take(place))


@dataclass(frozen=True, slots=True)
class PinnedRows(ListedRows):
    """What probes ask of one version; fits :class:`pipeline.apply.mirror.MirrorSide`."""

    snapshot: Version
    table: Table
    application: str

    @property
    def id(self) -> str:
        """Identifies this mirror."""
        return self.snapshot.id

    @property
    def version(self) -> int:
        """The pinned version."""
        return self.snapshot.version

    @property
    def batch(self) -> int:
        """Applied through this batch; -1 before the first."""
        return self.snapshot.transactions.get(self.application, -1)

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns in order."""
        return tuple(name for name in read(self.snapshot).column_names if name != SLUICE)

    @property
    def rewritten(self) -> str:
        """Another text where a batch does not tell which rows changed."""
        return digest_rewrites(self.snapshot.id, self.snapshot.remembered)

    def rows_after(
        self, batch: int | None, columns: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows whose newest change is of a later batch, or all; of *columns* those that exist."""
        read = (one for one in self.columns if columns is None or one in columns)
        rows = self._sourced([*read, SLUICE])
        later = None if batch is None else pc.struct_field(rows[SLUICE], "batch")
        kept = rows if later is None else rows.filter(pc.greater(later, batch))
        yield from kept.to_batches()

    def rows(self) -> int:
        """Rows of all shards."""
        return len(self._sourced([SLUICE]))

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Highest id of the shard; None when it has none."""
        found: int | None = pc.max(self._of(shard, [column])[column]).as_py()
        return found

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        """Rows in each half-open range."""
        ids = np.sort(self._of(shard, [column])[column].to_numpy())
        return tuple(int(np.diff(np.searchsorted(ids, span))[0]) for span in ranges)

    def tallies(
        self,
        shards: Sequence[Shard],
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> dict[Shard, tuple[RangeAggregate, ...]]:
        """Of each shard rows and sums of *fields* in each span of *column*."""
        names = [column, *(one.name for one in fields)]
        rows = {shard: self._of(shard, names).to_pylist() for shard in shards}
        return {
            shard: tuple(add_up(own, column, span, fields) for span in spans)
            for shard, own in rows.items()
        }

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        """Rows and digests in each range."""
        return sum_ranges(self._digested(shard, column, columns), ranges)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        """Id and digest of each row in *span*, ascending, at most *limit*."""
        rows = self._digested(shard, column, columns)
        return tuple([one for one in rows if span[0] <= one[0] < span[1]][:limit])

    def id_digests(
        self,
        shard: Shard,
        column: str,
        ids: Sequence[int],
        columns: Sequence[DigestColumn],
        since: int | None = None,
    ) -> tuple[RangeDigest, ...]:
        """Rows and digest of each of *ids*."""
        return sum_ids(self._digested(shard, column, columns), ids)

    def row_orders(self, shard: Shard, column: str, ids: Sequence[int]) -> Mapping[int, Order]:
        """Order of the row of each of *ids*."""
        rows = self.rows_of(shard, column, (min(ids), max(ids) + 1)) if ids else ()
        own = [row for row in rows if row[column] in ids and row[SLUICE]["order"]]
        return {row[column]: Order(**row[SLUICE]["order"]) for row in own}

    def list_rows(self, shard: Shard, names: Collection[str]) -> Iterable[Mapping[str, Any]]:
        """Rows of the shard with these columns."""
        found: list[dict[str, Any]] = self._of(shard, sorted(names)).to_pylist()
        return found

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        """Rows and digest of each of *columns* alone, of each of *ids*."""
        return sum_columns([self._digested(shard, column, [one]) for one in columns], ids)

    def as_of(self, version: int) -> "PinnedRows":
        """Versions are kept, but only the newest is opened here."""
        raise UnreachableError(f"{self.table.name}: version {version} is not opened")

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Ids in *span*, ascending, at most *limit*."""
        ids = sorted(self._of(shard, [column])[column].to_pylist())
        return tuple([one for one in ids if span[0] <= one < span[1]][:limit])

    def rows_of(self, shard: Shard, column: str, span: Range) -> Sequence[Mapping[str, Any]]:
        """Whole rows of the shard in *span*, with ``_sluice``."""
        rows = [row for row in self._sourced().to_pylist() if span[0] <= row[column] < span[1]]
        own, only = (shard.source, shard.name), len(self.table.shards) == 1
        return [one for one in rows if only or (one[SLUICE]["source"], one[SLUICE]["shard"]) == own]

    def _digested(
        self, shard: Shard, column: str, columns: Sequence[DigestColumn]
    ) -> list[tuple[int, int]]:
        names = [column, *(one.name for one in columns)]
        rows = self._of(shard, list(dict.fromkeys(names))).to_pylist()
        return list_row_digests(rows, column, columns)

    def rows_with_key(self, key: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Whole rows of any shard with these values, with ``_sluice``."""
        rows = read(self.snapshot).to_pylist()
        return [one for one in rows if all(one[name] == value for name, value in key.items())]

    def has_keys(self, keys: Sequence[LogKey]) -> tuple[bool, ...]:
        """Whether each key's row is there; whole numbers and texts are written alike."""
        names, found = list(self.table.key), {}
        for shard in {key.shard for key in keys}:
            rows = self._of(shard, names)
            kinds = {rows.schema.field(name).type for name in names}
            if not all(pa.types.is_integer(one) or pa.types.is_string(one) for one in kinds):
                raise ProofError(f"{self.table.name}: systems write its key in different ways")
            found[shard] = {tuple(map(str, one.values())) for one in rows.to_pylist()}
        first = 0 if self.table.unique_across_shards else 2  # source and shard come before
        return tuple(tuple(json.loads(key.key)[first:]) in found[key.shard] for key in keys)

    def sample(self, limit: int) -> Sequence[Mapping[str, Any]]:
        """At most *limit* rows of the newest batch that has left any."""
        rows = self._sourced()
        batch = pc.struct_field(rows[SLUICE], "batch")
        newest = rows.filter(pc.equal(batch, pc.max(batch))).slice(0, limit)
        found: list[dict[str, Any]] = newest.drop_columns([SLUICE]).to_pylist()
        return found

    def _sourced(self, names: Sequence[str] | None = None) -> pa.Table:
        """Rows that their source has, too: no archived ones."""
        rows = read(self.snapshot, names)
        return rows.filter(pa.array(~Adoption().owners(rows).archived))

    def _of(self, shard: Shard, names: Sequence[str]) -> pa.Table:
        rows = self._sourced([*names, SLUICE])
        source, name = (pc.struct_field(rows[SLUICE], part) for part in ("source", "shard"))
        own = pc.and_(pc.equal(source, shard.source), pc.equal(name, shard.name))
        only = len(self.table.shards) == 1
        return (rows if only else rows.filter(own)).drop_columns([SLUICE])


def read(snapshot: Version, names: Sequence[str] | None = None) -> pa.Table:
    """The rows of a version, or some of their columns."""
    try:
        with open_store(snapshot.uri).source(snapshot.file) as source:
            return pq.ParquetFile(source).read(names)
    except OSError as error:
        raise UnreachableError(f"{snapshot.uri}: {snapshot.file}: {error}") from error


def write(uri: str, rows: pa.Table, compression: str) -> str:
    """Leave a file that no version names yet; its name."""
    name = f"{ROWS}/{uuid.uuid4()}.parquet"
    with open_store(uri).sink(name) as output:
        pq.write_table(rows, output, compression=compression)
    return name


def _put(
    made: Version, known: Version | None, operation: str, at: datetime, said: object
) -> Version:
    """Make the manifest of the version after *known*, unless there is one."""
    store, before = open_store(made.uri), Version(made.uri, -1, made.id, "", "")
    if known is not None:
        before = _told(store, known.version)[0]
        if before.entry != known.entry:
            msg = f"{made.uri}: another version {known.version} is there; restore it"
            raise HeldError("table_replaced", msg)
    made = replace(made, version=before.version + 1, entry="")
    name, gained = f"{VERSIONS}/{made.version}.json", made.rows - before.rows
    told = {"operation": operation, "at": at.isoformat(), "note": said, "gained": gained}
    text = json.dumps({**asdict(made), **told, "replaced": before.file})
    if not store.exists(made.file):
        raise HeldError("missing_file", f"{made.uri}: {made.file} is gone; restore it")
    try:
        store.put_new(name, text.encode())
    except FileExistsError as error:
        if store.read(name) != text.encode():
            raise LostRaceError(f"{made.uri}: another commit is version {made.version}") from error
    return replace(made, entry=_digest(text))


def _told(store: Store, number: int) -> tuple[Version, Mapping[str, Any]]:
    """A version, and what else its manifest says."""
    try:
        text = store.read(f"{VERSIONS}/{number}.json").decode()
    except FileNotFoundError as error:
        msg = f"{store.uri}: version {number} is not there; restore it"
        raise HeldError("log_damaged", msg) from error
    told = json.loads(text)
    own = {
        name: told[name] for name in ("id", "file", "rows", "columns", "transactions", "remembered")
    }
    return Version(store.uri, number, **own, entry=_digest(text)), told


def _grown(rows: pa.Table, step: SchemaDelta, adoption: Adoption) -> pa.Table:
    """The rows with the columns, types and defaults of today."""
    old = [
        step.schema.field(n) if n in step.schema.names else rows.field(n) for n in rows.schema.names
    ]
    new = [one for one in step.schema if one.name not in rows.schema.names]
    grown = _fitting(rows, pa.schema([*old, *new]))
    return fill_defaults(grown, adoption.owners(grown), step.fills)


def _fitting(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the columns and types of *schema*; what they lack is null."""
    there = rows.schema.names
    try:
        columns = [
            rows[one.name].cast(one.type) if one.name in there else pa.nulls(len(rows), one.type)
            for one in schema
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise HeldError("schema", f"a column does not fit: {error}; rebuild the mirror") from error
    return pa.Table.from_arrays(columns, schema=schema)


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Those of *rows* that are not among *others*."""
    known = {repr(one) for one in _fitting(others, rows.schema).to_pylist()}
    return rows.filter(pa.array([repr(one) not in known for one in rows.to_pylist()], pa.bool_()))


def _kinds(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names if name in schema.names])


def _tuples(rows: pa.Table, owners: RowOrigins | None) -> list[tuple[Any, ...]]:
    """Keys as tuples, with source and shard if *owners* count; these may be more than the rows."""
    columns = [rows[name].to_pylist() for name in rows.column_names]
    if owners is not None:
        columns += [part.to_pylist()[: len(rows)] for part in (owners.source, owners.shard)]
    return list(zip(*columns, strict=True))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


TABLE_FORMAT: type[TableFormat[Version, NewFile]] = ParquetVersions
