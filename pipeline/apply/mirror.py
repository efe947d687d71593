"""Defines a mirror as of one version: its state, its commits, and what probes can read.

All that Sluice knows of a mirror is in the mirror's own commits: the applied batch, some short
properties, and a note on each commit. A commit of Sluice has the note `{"sluice":{"after":N}}`,
with more keys; N is the version before. A commit without it is foreign. A foreign commit that
changes data makes the mirror another table than the applied batch describes, even with the same
batch number.

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

FLOORS, SCHEMAS, LIFE = "sluice.floors", "sluice.schemas", "sluice.life"  # names of texts
ARCHIVED = "sluice.archived"
STANDARDS = "sluice.standards"
WRITTEN = "written"  # in the note of a merge
_images: dict[str, tuple[str, tuple[Image, ...]]] = {}  # by address; as many as there are mirrors


class MirrorSnapshot(Protocol):
    """A mirror as of one version; it can be pickled, and is kept from look to look."""

    @property
    def uri(self) -> str:
        """The mirror's address."""
        ...

    @property
    def version(self) -> int:
        """From 0 on, without gaps."""
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
        """Another one where other columns, or other remembered texts, go with the same rows."""
        ...

    @property
    def rows(self) -> int | None:
        """Number of rows; None if only the data files show it."""
        ...

    @property
    def transactions(self) -> Mapping[str, int]:
        """Numbers of applied batches, by their applications."""
        ...

    @property
    def remembered(self) -> Mapping[str, str]:
        """The properties that Sluice has set; there may be others."""
        ...


@dataclass(frozen=True, slots=True)
class CommitStamp:
    """Who commits, and when; ``life`` is the landing incarnation of the applied batch."""

    lane: str
    at: datetime
    life: int | None = None


def batch_of(snapshot: MirrorSnapshot, lane: str) -> int:
    """The batch a mirror is applied through; -1 before the first."""
    return snapshot.transactions.get(build_app_id(lane), -1)


def floors_of(snapshot: MirrorSnapshot) -> dict[Shard, Order]:
    """The highest truncate or settle of each shard that the mirror remembers."""
    text = snapshot.remembered.get(FLOORS, "{}")
    return {Shard.parse(name): Order(*parts) for name, parts in json.loads(text).items()}


def schemas_of(snapshot: MirrorSnapshot) -> dict[str, Order]:
    """``source/shard`` -> order of the schema change that the mirror follows."""
    text = snapshot.remembered.get(SCHEMAS, "{}")
    return {name: Order(*parts) for name, parts in json.loads(text).items()}


def floors_property(floors: Floors) -> dict[str, str]:
    """The text that remembers *floors*."""
    return {FLOORS: _encode_orders({str(s): order for s, order in floors.items()})}


def images_of(snapshot: MirrorSnapshot) -> tuple[Image, ...]:
    """The versions of the mirror that are images of cuts, oldest cut first.

    Asked for in every pass and every look: the newest text of each mirror is kept as it was read.
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
    """The digest of the standards by which its rows are written; empty if by none."""
    return snapshot.remembered.get(STANDARDS, "")


def standards_property(snapshot: MirrorSnapshot | None, digest: str) -> dict[str, str]:
    """The text that remembers *digest*, where there is or was one."""
    known = snapshot is not None and STANDARDS in snapshot.remembered
    return {STANDARDS: digest} if digest or known else {}


def digest_rewrites(mirror: str, remembered: Mapping[str, str]) -> str:
    """Return another text where rows may have changed without a later batch.

    That is so for another *mirror* (its id), after a truncate, a settle or a rename, after a
    schema change that fills a column, and with other standards. *remembered* are its properties.
    """
    known = (remembered.get(name, "") for name in (FLOORS, SCHEMAS, STANDARDS))
    return hashlib.sha256("\n".join([mirror, *known]).encode()).hexdigest()[:16]


def incarnation_of(snapshot: MirrorSnapshot) -> int | None:
    """The landing incarnation of the batch applied last; see :mod:`pipeline.checkpoint`."""
    text = snapshot.remembered.get(LIFE)
    return None if text is None else int(text)


def keeps_archived(snapshot: MirrorSnapshot) -> bool:
    """Whether it may hold rows that went to an archive; once it may, it says so for good."""
    return ARCHIVED in snapshot.remembered


def archived_property() -> dict[str, str]:
    """The text that remembers it."""
    return {ARCHIVED: "kept"}


def incarnation_property(life: int | None) -> dict[str, str]:
    """The text that remembers it."""
    return {} if life is None else {LIFE: str(life)}


def schemas_property(orders: Mapping[str, Order]) -> dict[str, str]:
    """The text that remembers which schema changes are followed."""
    return {SCHEMAS: _encode_orders(orders)}


def following_note(
    snapshot: MirrorSnapshot, batch: int, lane: str, **more: object
) -> dict[str, object]:
    """As ``note``, of a commit that follows *snapshot*; with its shape and how many rows it has.

    Others' commits are held against these.
    """
    return commit_note(
        snapshot.version, batch, lane, shape=snapshot.shape, rows=snapshot.rows, **more
    )


def commit_note(after: int, batch: int, lane: str, **more: object) -> dict[str, object]:
    """Return the note of a commit of Sluice that follows version *after*."""
    return {"sluice": {"after": after, "batch": batch, "lane": lane, **more}}


def _encode_orders(orders: Mapping[str, Order]) -> str:
    return json.dumps({name: order.parts for name, order in orders.items()}, sort_keys=True)


FileState = tuple[str, str | None]  # a file's path, and what hides rows of it


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a mirror, read from its log.

    ``data_changing`` is false for compaction, and for a new schema or new properties.  ``note`` is
    the writer's own, parsed if it is JSON; ``txns`` are numbers of applied batches by their
    applications; ``parameters`` and ``metrics`` those of the operation, as its writer stored
    them.  ``shape`` is the mirror's, where the commit changes it; ``came`` and ``went`` are files
    as they stand after it and stood before it; ``gained`` is the number of rows that it adds by its
    own statistics; ``entry`` is the digest of the commit's text, if known.
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
        """The rows that it changes, as its merge counted them; None if they were not counted."""
        return parse_counts(self.own.get(WRITTEN)) if self.data_changing else {}


Range = tuple[int, int]
"""Ids, half open: ``(low, high)`` holds ``low`` and not ``high``."""


class MirrorSide(Protocol):
    """Every method may raise ``UnreachableError`` or ``ProofError``; both end as UNKNOWN."""

    @property
    def version(self) -> int:
        """The pinned version of the mirror."""
        ...

    @property
    def batch(self) -> int:
        """Applied through this batch of its lane."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its columns in order, without ``_sluice``."""
        ...

    @property
    def rewritten(self) -> str:
        """Another text where no batch shows which rows changed, see :func:`digest_rewrites`."""
        ...

    def rows(self) -> int:
        """Rows, from the table's own metadata where it is exact."""
        ...

    def rows_after(self, batch: int | None) -> Iterator[pa.RecordBatch]:
        """Rows whose newest change is of a later batch, or all; no archived ones.

        They have ``_sluice`` where the mirror has it. Without it, all rows are returned. They come
        some thousands at a time; without any, one batch without rows has the columns.
        """
        ...

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Highest id of the shard's rows; None when it has none."""
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
        """Rows and sums of *fields* by shard in each range of *column*; no archived rows."""
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

        With *since*, an id with a row that a later batch has written may be answered by that row
        alone: a second row of it that is older is not looked for.
        """
        ...

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        """Rows and digest of each of *columns* alone, in their order, of each of *ids*."""
        ...

    def row_orders(self, shard: Shard, column: str, ids: Sequence[int]) -> Mapping[int, Order]:
        """Order of the change that wrote the row of each id; an id without a row is absent.

        A row of an adopted mirror has no order.  Of several rows of one id it is the highest.
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

        At most *limit* rows.
        """
        ...

    def rows_by_key(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Mapping[int, KeyValues],
    ) -> tuple[KeyedRow, ...]:
        """Rows with one of *keys*, which are the values of keys by their digests; in any order."""
        ...

    def as_of(self, version: int) -> "MirrorSide":
        """The same mirror at an earlier version.

        Raises:
            UnreachableError: that version cannot be read any more.
        """
        ...

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Ids of the shard's rows in *span*, ascending, duplicates kept, at most *limit*."""
        ...

    def rows_of(self, shard: Shard, column: str, span: Range) -> Sequence[Mapping[str, Any]]:
        """Whole rows of the shard whose ids are in *span*, with ``_sluice`` if they have it."""
        ...

    def rows_with_key(self, key: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Whole rows of any shard, archived ones too, whose columns have these typed values."""
        ...

    def has_keys(self, keys: Sequence[LogKey]) -> tuple[bool, ...]:
        """Whether each key's row is there, in the order asked."""
        ...

    def sample(self, limit: int) -> Sequence[Mapping[str, Any]]:
        """At most *limit* rows of the newest slice, columns without ``_sluice``."""
        ...


RowPart = Callable[[], Iterator[pa.Table]]
"""Rows of one file, some thousands at a time, with ``_sluice`` where the mirror has it."""


@dataclass(frozen=True, slots=True, eq=False)
class RowChanges:
    """Rows that ``came`` with a commit, and those that ``went``: of these the key's columns only.

    A rewritten row is in both; a row that only moved to another file is in neither.
    """

    commit: Commit
    came: tuple[RowPart, ...] = ()
    went: tuple[RowPart, ...] = ()
