"""Defines a mirror as of one version: its state, its commits, and what probes can read.

All that Sluice knows of a mirror is in the mirror's own commits: the applied batch, some short
properties, and a note on each commit. One property names the mirror's table. A commit of Sluice has
the note `{"sluice":{"after":N}}`, with more keys; N is the version before. A commit without it is
foreign. A foreign commit that changes data makes the mirror another table than the applied batch
describes, even with the same batch number.

Probes read one pinned version without Spark. Each of their reads may raise `UnreachableError`
or `ProofError`; both end as UNKNOWN. The row changes of a commit come in parts, and each part
is read only when it is used.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from pipeline.aggregates import AggregatedColumn, RangeAggregate, TimeSpan
from pipeline.apply.decide import Floors
from pipeline.changelog.table import build_app_id
from pipeline.image import IMAGES, Image, parse_images
from pipeline.minute_counts import MinuteCounts, parse_counts
from pipeline.model import Order, Shard
from pipeline.readings import LogKey
from pipeline.row_digest import Bucketing, DigestColumn, KeyedRow, KeyValues, RangeDigest

FLOORS, SCHEMAS, LIFE = "sluice.floors", "sluice.schemas", "sluice.life"  # names of properties
ARCHIVED = "sluice.archived"
STANDARDS = "sluice.standards"
TABLE = "sluice.table"
WRITTEN = "written"  # a key in the note of a merge
_images: dict[str, tuple[str, tuple[Image, ...]]] = {}  # by address; one for each mirror


class MirrorSnapshot(Protocol):
    """A mirror as of one version; it can be pickled, and is cached between looks."""

    @property
    def uri(self) -> str:
        """The mirror's address."""
        ...

    @property
    def version(self) -> int:
        """The version's number; versions count from 0 without gaps."""
        ...

    @property
    def entry(self) -> str:
        """Identifies this commit, even if another takes its version number later."""
        ...

    @property
    def id(self) -> str:
        """Identifies this mirror, even if another is created in its folder later."""
        ...

    @property
    def shape(self) -> str:
        """A digest of the columns and properties, which change independently of the rows."""
        ...

    @property
    def rows(self) -> int | None:
        """Number of rows; None if only the data files show it."""
        ...

    @property
    def transactions(self) -> Mapping[str, int]:
        """Numbers of applied batches, by the names of their applications."""
        ...

    @property
    def remembered(self) -> Mapping[str, str]:
        """The properties that Sluice has set, and perhaps others."""
        ...


@dataclass(frozen=True, slots=True)
class CommitStamp:
    """The lane that commits, and when; ``life`` is the landing incarnation of the applied batch."""

    lane: str
    at: datetime
    life: int | None = None


def batch_of(snapshot: MirrorSnapshot, lane: str) -> int:
    """The batch a mirror is applied through; -1 before the first."""
    return snapshot.transactions.get(build_app_id(lane), -1)


def floors_of(snapshot: MirrorSnapshot) -> dict[Shard, Order]:
    """The floors that the mirror stores: the highest truncate or settle of each shard."""
    text = snapshot.remembered.get(FLOORS, "{}")
    return {Shard.parse(name): Order(*parts) for name, parts in json.loads(text).items()}


def schemas_of(snapshot: MirrorSnapshot) -> dict[str, Order]:
    """``source/shard`` -> order of the schema change that the mirror follows."""
    text = snapshot.remembered.get(SCHEMAS, "{}")
    return {name: Order(*parts) for name, parts in json.loads(text).items()}


def floors_property(floors: Floors) -> dict[str, str]:
    """The property that stores *floors*."""
    return {FLOORS: _encode_orders({str(s): order for s, order in floors.items()})}


def images_of(snapshot: MirrorSnapshot) -> tuple[Image, ...]:
    """The versions of the mirror that are images of cuts, oldest cut first.

    Called in every merge run and every look, so the parsed text of each mirror is cached.
    """
    text = snapshot.remembered.get(IMAGES)
    if text is None:
        return ()
    known = _images.get(snapshot.uri)
    if known is None or known[0] != text:
        known = text, parse_images(text)
        _images[snapshot.uri] = known
    return known[1]


def standards_of(snapshot: MirrorSnapshot) -> str:
    """The digest of the standards by which its rows are written; empty without standards."""
    return snapshot.remembered.get(STANDARDS, "")


def standards_property(snapshot: MirrorSnapshot | None, digest: str) -> dict[str, str]:
    """The property that stores *digest*, if there is or was one."""
    known = snapshot is not None and STANDARDS in snapshot.remembered
    return {STANDARDS: digest} if digest or known else {}


def table_property(snapshot: MirrorSnapshot | None, table: str) -> dict[str, str]:
    """The property that names the table of a new mirror, or of one that does not name it yet."""
    known = snapshot is not None and TABLE in snapshot.remembered
    return {} if known else {TABLE: table}


def digest_rewrites(mirror: str, remembered: Mapping[str, str]) -> str:
    """Return a digest that changes if rows may have changed without a later batch.

    That is the case for another *mirror* (its id), and with other standards. It is also the case
    after a truncate, a settle or a rename, and after a schema change that fills a column.
    *remembered* are its properties.
    """
    known = (remembered.get(name, "") for name in (FLOORS, SCHEMAS, STANDARDS))
    return hashlib.sha256("\n".join([mirror, *known]).encode()).hexdigest()[:16]


def incarnation_of(snapshot: MirrorSnapshot) -> int | None:
    """The landing incarnation of the batch applied last; see :mod:`pipeline.checkpoint`."""
    text = snapshot.remembered.get(LIFE)
    return None if text is None else int(text)


def keeps_archived(snapshot: MirrorSnapshot) -> bool:
    """Whether it may hold archived rows; once set, this is never reset."""
    return ARCHIVED in snapshot.remembered


def archived_property() -> dict[str, str]:
    """The property that records that the mirror may hold archived rows."""
    return {ARCHIVED: "kept"}


def incarnation_property(life: int | None) -> dict[str, str]:
    """The property that stores a landing incarnation; empty without one."""
    return {} if life is None else {LIFE: str(life)}


def schemas_property(orders: Mapping[str, Order]) -> dict[str, str]:
    """The property that stores which schema changes the mirror follows."""
    return {SCHEMAS: _encode_orders(orders)}


def following_note(
    snapshot: MirrorSnapshot, batch: int, lane: str, **more: object
) -> dict[str, object]:
    """Like ``commit_note``, for a commit that follows *snapshot*; with its shape and row count.

    Foreign commits are found by comparison with these.
    """
    return commit_note(
        snapshot.version, batch, lane, shape=snapshot.shape, rows=snapshot.rows, **more
    )


def commit_note(after: int, batch: int, lane: str, **more: object) -> dict[str, object]:
    """Return the note of a commit of Sluice that follows version *after*."""
    return {"sluice": {"after": after, "batch": batch, "lane": lane, **more}}


def _encode_orders(orders: Mapping[str, Order]) -> str:
    return json.dumps({name: order.parts for name, order in orders.items()}, sort_keys=True)


FileState = tuple[str, str | None]  # a file's path, and the id of what hides rows in it


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a mirror, read from its log.

    ``data_changing`` is false for compaction, and for a new schema or new properties. ``note`` is
    the writer's own, parsed if it is JSON. ``txns`` are numbers of applied batches by their
    applications. ``parameters`` and ``metrics`` are those of the operation, as its writer stored
    them. ``shape`` is the mirror's, if the commit changes it. ``came`` are files as they are after
    it, ``went`` files as they were before it. ``gained`` is the number of rows that it adds by its
    own statistics. ``entry`` is the digest of the commit's text, if known.
    """

    version: int
    operation: str
    at: datetime
    data_changing: bool = False
    note: Any = None
    txns: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    shape: str | None = None
    came: frozenset[FileState] = frozenset()
    went: frozenset[FileState] = frozenset()
    gained: int = 0
    entry: str = ""

    @property
    def own(self) -> Mapping[str, Any]:
        """The note of a commit of Sluice; empty for other commits."""
        own = self.note.get("sluice") if isinstance(self.note, dict) else None
        return own if isinstance(own, dict) else {}

    @property
    def after(self) -> int | None:
        """The version Sluice saw before this commit of its own; None for a foreign commit."""
        after = self.own.get("after")
        return after if isinstance(after, int) else None

    @property
    def written(self) -> MinuteCounts | None:
        """Counts of the rows that it changes, from its merge; None if they were not counted."""
        return parse_counts(self.own.get(WRITTEN)) if self.data_changing else {}


Range = tuple[int, int]
"""Ids, half open: ``(low, high)`` contains ``low`` but not ``high``."""


class MirrorSide(Protocol):
    """Reads one version of a mirror for probes.

    Every method may raise ``UnreachableError`` or ``ProofError``; both end as UNKNOWN.
    """

    @property
    def id(self) -> str:
        """Identifies the mirror, see :class:`MirrorSnapshot`."""
        ...

    @property
    def version(self) -> int:
        """The pinned version of the mirror."""
        ...

    @property
    def batch(self) -> int:
        """The batch of its lane through which it is applied."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its columns in order, without ``_sluice``."""
        ...

    @property
    def rewritten(self) -> str:
        """A digest that changes if rows change without a batch, see :func:`digest_rewrites`."""
        ...

    def rows(self) -> int:
        """Row count, from the table's own metadata if that is exact."""
        ...

    def rows_after(
        self, batch: int | None, columns: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows whose newest change is of a later batch, or all; archived ones are excluded.

        They have ``_sluice`` if the mirror has it. Without it, all rows are returned. Each batch
        has some thousands of rows. If there are no rows, one empty batch with the columns is
        returned.  Of the other columns they have those of *columns* that exist; None: all.
        """
        ...

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Highest id of the shard's rows; None if it has no rows."""
        ...

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        """Rows of the shard in each range."""
        ...

    def tallies(
        self,
        shards: Sequence[Shard],
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> dict[Shard, tuple[RangeAggregate, ...]]:
        """Rows and sums of *fields* by shard in each range of *column*; without archived rows."""
        ...

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        """Rows and digests of the shard in each range; ranges are ascending and disjoint."""
        ...

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        """Id and digest of each of the shard's rows in *span*, ascending, at most *limit*."""
        ...

    def id_digests(
        self,
        shard: Shard,
        column: str,
        ids: Sequence[int],
        columns: Sequence[DigestColumn],
        since: int | None = None,
    ) -> tuple[RangeDigest, ...]:
        """Rows and digest of each of the shard's *ids*, in their order.

        With *since*, an id with a row of a later batch may be answered from that row alone; an
        older duplicate of the row is then not found.
        """
        ...

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        """Rows and digest of each of *columns* separately, in their order, for each of *ids*."""
        ...

    def row_orders(self, shard: Shard, column: str, ids: Sequence[int]) -> Mapping[int, Order]:
        """Order of the change that wrote the row of each id; an id without a row is absent.

        A row of an adopted mirror has no order. If one id has several rows, it is the highest
        order.
        """
        ...

    def bucket_digests(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> dict[int, RangeDigest]:
        """Rows and digests of each bucket that has rows, all in one scan of the shard."""
        ...

    def bucket_rows(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        chosen: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        """Rows of the *chosen* buckets, in any order, at most *limit*."""
        ...

    def keyed_columns(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        """Rows whose key has one of the digests *keys*, with the digest of each of *columns* alone.

        Returns at most *limit* rows.
        """
        ...

    def rows_by_key(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Mapping[int, KeyValues],
    ) -> tuple[KeyedRow, ...]:
        """Rows with one of *keys* (digest -> values of the key), in any order."""
        ...

    def as_of(self, version: int) -> "MirrorSide":
        """The same mirror at an earlier version.

        Raises:
            UnreachableError: that version can no longer be read.
        """
        ...

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Ids of the shard's rows in *span*, ascending, duplicates kept, at most *limit*."""
        ...

    def rows_of(self, shard: Shard, column: str, span: Range) -> Sequence[Mapping[str, Any]]:
        """Whole rows of the shard whose ids are in *span*, with ``_sluice`` if they have it."""
        ...

    def rows_with_key(self, key: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Whole rows of any shard, also archived ones, whose columns have these typed values."""
        ...

    def has_keys(self, keys: Sequence[LogKey]) -> tuple[bool, ...]:
        """Whether each key has a row, in the order of *keys*."""
        ...

    def sample(self, limit: int) -> Sequence[Mapping[str, Any]]:
        """At most *limit* rows of the newest slice, columns without ``_sluice``."""
        ...


RowPart = Callable[[], Iterator[pa.Table]]
"""Reads the rows of one file, some thousands at a time, with ``_sluice`` if the mirror has it."""


@dataclass(frozen=True, slots=True, eq=False)
class RowChanges:
    """Rows that ``came`` with a commit, and those that ``went``, with only the key columns.

    A rewritten row is in both; a row that only moved to another file is in neither.
    """

    commit: Commit
    came: tuple[RowPart, ...] = ()
    went: tuple[RowPart, ...] = ()
