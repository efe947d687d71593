"""Compares ranges of both sides, and the rows of ranges that differ.

A comparison has three steps, with a wait for the next heartbeat between them.

1. The ranges of the mirror are summed, and then those of the source, in one snapshot.
2. A differing range counts as equal if one position explains it (`find_position`).  The rows of the
   other ranges are read on both sides; those that differ are suspects.
3. The mirror has passed the position of step 2.  A suspect that still differs is wrong, unless a
   change of it has landed since, or the source now has a different row.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import compress, groupby, islice
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from msgspec import Raw

from checks.compare.coverage import halve_first, join_disjoint
from checks.compare.reconcile import (
    NO_ROW,
    RangeLook,
    RowChange,
    drop_redelivered,
    find_position,
    last_digests,
    split_changes,
)
from checks.counting import (
    NARROWER,
    Suspect,
    SuspectState,
    ask_suspects,
    judge_suspect,
    touched_suspects,
)
from checks.model import Undecided
from checks.world import Range, TableQueries, World
from pipeline.errors import ProofError, SlowError, TooManyRowsError, UnreachableError
from pipeline.finding import Effect
from pipeline.formats.json_text import parse_key, read_row
from pipeline.model import Order, Shard, Table
from pipeline.readings import RowVersion
from pipeline.row_digest import VERSION, DigestColumn, Form, RangeDigest, digest_row, sum_rows
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column, TableSchema

MOST_CHANGES = 100_000
"""Most changes since a look that are followed; with more, the rows are read instead."""
TYPED_AT_ONCE = 5_000
"""Rows of the change log whose values are in memory at once."""
MOST_ROWS = 50_000
"""Most rows of one range that are read one by one."""
MOST_NARROWED = 1_000
"""Most rows of one look whose differing columns are determined."""
MOST_SHOWN = 5
"""Most columns without comparison that a ruling names."""


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """The columns of a shard that are compared, and why others are not.

    ``since`` is the order since which no schema change has changed them or their values.
    """

    columns: tuple[DigestColumn, ...]
    left_out: Mapping[str, str]
    since: Order | None = None


def choose_columns(
    table: Table, shard: Shard, schema: TableSchema, world: World
) -> ComparedColumns:
    """Choose the columns of *schema* whose values have the same text at source and mirror.

    Three facts decide: the description in the log, that of the server, and whether the collector
    alters the column.

    Raises:
        UnreachableError: the source or its collector does not answer.
    """
    scope = world.collected(shard.source)
    server = {one.name: one for one in world.source(shard.source).columns(shard)}
    rewriting = [
        f"the collector rewrites values: {one.identity}"
        for one in scope.hazards
        if one.effect is Effect.REWRITES and one.affects(shard.name)
    ]
    columns, left_out = list[DigestColumn](), dict[str, str]()
    for one in schema.columns:
        form = _choose_form(one, server.get(one.name))
        by = scope.alters(f"{shard.name}.{one.name}") if scope.alters else ""
        if table.restates(one.name):
            left_out[one.name] = "a standard writes it"
        elif rewriting:
            left_out[one.name] = rewriting[0]
        elif by:
            left_out[one.name] = f"the collector alters it ({by})"
        elif isinstance(form, Form):
            columns.append(DigestColumn(one.name, form))
        else:
            left_out[one.name] = form
    described = {one.name for one in schema.columns}
    left_out |= dict.fromkeys(sorted(server.keys() - described), "the log does not describe it")
    return ComparedColumns(tuple(columns), left_out, schema.valid_from)


def choose_all_columns(table: Table, world: World) -> dict[Shard, ComparedColumns] | Undecided:
    """Return the compared columns of each shard, or why one shard has none."""
    columns = dict[Shard, ComparedColumns]()
    for shard in table.shards:
        schema = world.schema(shard)
        if schema is None:
            return Undecided("no_schema", f"no columns of {shard} have landed yet")
        columns[shard] = choose_columns(table, shard, schema, world)
        if not columns[shard].columns:
            why = next(iter(columns[shard].left_out.values()), "it has none")
            return Undecided("unsupported", f"no column of {shard} can be compared: {why}")
        if why := explain_key(table, columns[shard]):
            return Undecided("unsupported", why)
    return columns


def explain_key(table: Table, columns: ComparedColumns) -> str:
    """Return which column of the key is not among *columns*, and why; empty if all are.

    The key must be part of a row's digest. Otherwise two rows with swapped values have the same sum
    as before.
    """
    known = {one.name for one in columns.columns}
    for name in table.key:
        if name not in known:
            why = columns.left_out.get(name, "no column of that name has landed")
            return f"key column {name} cannot be compared: {why}"
    return ""


def digest_columns(listed: Sequence[str]) -> str:
    """Return a digest of the compared columns, which are *listed* with their forms."""
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


def load_asked(raw: Mapping[str, str | Sequence[str]]) -> dict[str, str]:
    """Read a stored `Comparison.asked`; earlier versions stored the columns instead of a digest."""
    return {own: one if isinstance(one, str) else digest_columns(one) for own, one in raw.items()}


def describe_since(columns: ComparedColumns) -> list[str]:
    """Return ``columns.since`` as text in a list; empty if there is no such order."""
    return [f"since {'.'.join(map(str, columns.since.parts))}"] if columns.since else []


def are_partial(columns: Mapping[Shard, ComparedColumns]) -> bool:
    """Whether some columns of a shard are not compared."""
    return any(own.left_out for own in columns.values())


def describe_left_out(columns: Mapping[Shard, ComparedColumns]) -> str:
    """Return the end of a sentence: columns that were not compared, why, and how many more.

    A reason that is not that of all shards names the first of its shards.
    """
    left = dict[tuple[str, str], list[Shard]]()
    for shard, own in columns.items():
        for one in own.left_out.items():
            left.setdefault(one, []).append(shard)
    texts = [
        f"{name}{_describe_part(shards, len(columns))}: {why}"
        for (name, why), shards in islice(left.items(), MOST_SHOWN)
    ]
    texts += [f"and {len(left) - MOST_SHOWN} more"] if len(left) > MOST_SHOWN else []
    return f"; not compared: {'; '.join(texts)}" if texts else ""


def _describe_part(shards: Sequence[Shard], of: int) -> str:
    """Name *shards* unless they are all of so many; only the first one if they are several."""
    if len(shards) == of:
        return ""
    return f" of {shards[0]}" + (f" and {len(shards) - 1} more shards" if shards[1:] else "")


def _choose_form(logged: Column, server: Column | None) -> Form | str:
    """Return the form of a column's values, from log and *server*, or why it has no form.

    *server* is None if the column no longer exists.
    """
    form = logged.dialect.digest_form(logged)
    if server is None or not isinstance(form, Form):
        return form
    there = server.dialect.digest_form(server)
    if isinstance(there, Form) and there.base is not form.base:
        return f"the log describes {form} values, the server {there}"
    return there


@dataclass(frozen=True, slots=True)
class Look:
    """The ranges of one shard that differed, and what is needed to explain them.

    ``version`` and ``batch`` are those of the mirror, which was read before the source.  ``ranges``
    and ``rows`` count everything that was read. ``counts`` has the rows of each range at the
    source; `dumps` leaves it out.
    """

    shard: Shard
    version: int
    batch: int
    ranges: int
    rows: int
    differing: tuple[RangeLook, ...]
    counts: tuple[int, ...] = field(default=(), compare=False)

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        differing = [
            [*one.span, one.mirror.rows, one.mirror.sum, one.source.rows, one.source.sum]
            for one in self.differing
        ]
        counts = {"version": self.version, "batch": self.batch, "rows": self.rows}
        return {"shard": str(self.shard), "ranges": self.ranges, "differing": differing, **counts}

    @classmethod
    def loads(cls, raw: Mapping[str, Any], table: Table) -> "Look | None":
        """Read back what :meth:`dumps` wrote; None if the shard no longer exists."""
        shard = next((one for one in table.shards if str(one) == raw["shard"]), None)
        if shard is None:
            return None
        differing = (
            RangeLook((low, high), RangeDigest(*mirror), RangeDigest(*source))
            for low, high, *sums in raw["differing"]
            for mirror, source in [(sums[:2], sums[2:])]
        )
        counts = (raw["version"], raw["batch"], raw["ranges"], raw["rows"])
        return cls(shard, *counts, tuple(differing))


@dataclass(frozen=True, slots=True)
class RowSuspects:
    """Rows that differed, with their digests at the source, read in one look.

    ``landed`` is the newest batch known before the look, ``ended`` the instant it ended.
    ``names`` has the names of rows whose id is the digest of a key.  ``cut`` counts differing rows
    that are not listed because there were too many; 0 if they are not counted.
    """

    rows: Mapping[Suspect, RangeDigest]
    landed: int
    ended: datetime
    tries: int = 0
    names: Mapping[Suspect, str] = field(default_factory=dict)
    cut: int = 0

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        rows = [
            [str(suspect[0]), suspect[1], one.rows, one.sum, *self._name(suspect)]
            for suspect, one in self.rows.items()
        ]
        counts = {"landed": self.landed, "tries": self.tries, "cut": self.cut}
        return {"rows": rows, "ended": self.ended.isoformat(), **counts}

    @classmethod
    def loads(cls, raw: Mapping[str, Any], table: Table) -> "RowSuspects":
        """Read back what :meth:`dumps` wrote; rows of shards that no longer exist are left out.

        Earlier versions wrote no ``cut`` for ids.
        """
        shards = {str(shard): shard for shard in table.shards}
        kept = [one for one in raw["rows"] if one[0] in shards]
        rows = {(shards[own], id_): RangeDigest(n, total) for own, id_, n, total, *_ in kept}
        names = {(shards[own], id_): name for own, id_, _, _, *more in kept for name in more}
        ended = datetime.fromisoformat(raw["ended"])
        return cls(rows, raw["landed"], ended, raw["tries"], names, raw.get("cut", 0))

    def _name(self, suspect: Suspect) -> list[str]:
        """Return the name of a row in a list; empty if it has none."""
        return [self.names[suspect]] if suspect in self.names else []


@dataclass(frozen=True, slots=True)
class DifferingRows:
    """Rows of a range that differ, by id, with their digests at the source.

    ``whole`` is False if the range has more rows than are read.
    """

    rows: Mapping[int, RangeDigest]
    whole: bool


@dataclass(frozen=True, slots=True)
class FoundSuspects:
    """Rows that differ, and the ranges that may have more of them.

    ``unread`` ranges were not read.  Ranges of ``partly`` have more differing rows than could be
    listed.  ``large`` ranges have more rows than the source lists at all, or in time.
    """

    rows: RowSuspects
    unread: Mapping[Shard, Sequence[Range]]
    partly: Mapping[Shard, Sequence[Range]]
    large: Mapping[Shard, Sequence[Range]]


@dataclass(frozen=True, slots=True)
class RowsBefore:
    """Rows of the mirror at the time of a look, by id: digests, and orders if they are known.

    ``top`` is the highest order applied by then. It is read only if a changed row did not exist.
    """

    digests: Mapping[int, RangeDigest]
    orders: Mapping[int, Order | None]
    top: Order | None

    def explain(
        self, look: RangeLook, changes: Sequence[RowChange]
    ) -> Mapping[int, RangeDigest] | None:
        """Return each row's digest after *changes*; None if they do not explain the range.

        They explain it if the mirror has the source's digest of the range after some of them.
        """
        applied = drop_redelivered(changes, self.orders, self.top)
        if applied is None or find_position(look, self.digests, applied) is None:
            return None
        return last_digests(applied)


A = TypeVar("A")
B = TypeVar("B")


class Together(Protocol):
    """Runs two independent queries and returns both answers."""

    def __call__(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Return the results of *first* and *second*; an exception of either is raised."""
        ...


class Narrowing(Protocol):
    """A comparison that can find the columns in which rows differ."""

    def differing_columns(self, suspects: Iterable[Suspect]) -> dict[Suspect, tuple[str, ...]]:
        """Return the columns in which each row differs now, for `MOST_NARROWED` rows at most."""
        ...


def name_columns(
    comparison: Narrowing, wrong: Iterable[tuple[Suspect, SuspectState]]
) -> dict[Suspect, tuple[str, ...]]:
    """Return the columns in which the DIFFERENT rows of *wrong* differ.

    Empty if a side does not answer: the confirmed rows are reported nevertheless.
    """
    different = [one for one, state in wrong if state is SuspectState.DIFFERENT]
    with suppress(UnreachableError, ProofError):
        return comparison.differing_columns(different)
    return {}


def ask_one_by_one(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Call *first*, then *second*, and return both results."""
    return first(), second()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares one table in one round, by the newest landed schema of each shard.

    ``known`` caches the changes read in this round, by shard and batches.  ``together`` reads the
    ranges of both sides.  ``at_once`` is how many rows one query reads by their ids; None: all.
    """

    table: Table
    world: World
    columns: Mapping[Shard, ComparedColumns]
    known: dict[tuple[Shard, int, int], tuple[RowVersion, ...] | None] = field(
        default_factory=dict, repr=False
    )
    together: Together = ask_one_by_one
    at_once: int | None = None

    @property
    def asked(self) -> dict[str, str]:
        """A digest of what is compared, by shard; it changes with columns, forms and `VERSION`.

        It also changes with the order of the newest schema change that may have changed values. A
        column may be altered, or dropped and added again, and keep the same form.
        """
        return {
            str(shard): digest_columns(
                [
                    *(f"{one.name}:{one.form}:{VERSION}" for one in own.columns),
                    *describe_since(own),
                ]
            )
            for shard, own in self.columns.items()
        }

    def look_at(self, shard: Shard, ranges: Sequence[Range]) -> Look:
        """Sum both sides of *ranges*, which are ascending and disjoint.

        The version of the mirror is fixed before the source is read.

        Raises:
            TooManyRowsError: a range is too large to be read without harm.
        """
        mirror, source = self.world.mirror(self.table), self._source(shard)
        asked = (shard, self._id, ranges, self.columns[shard].columns)
        there, here = self.together(lambda: mirror.digests(*asked), lambda: source.digests(*asked))
        looks = [RangeLook(*one) for one in zip(ranges, there, here, strict=True)]
        counts = tuple(one.source.rows for one in looks)
        differing = tuple(one for one in looks if not one.equal)
        batch, rows = mirror.batch, sum(counts)
        return Look(shard, mirror.version, batch, len(looks), rows, differing, counts)

    def look_at_rows(self, shard: Shard, ids: Sequence[int], since: int) -> Look:
        """Read the rows of *ids*, which ascend, on both sides: the mirror first.

        Most of them were written by batches after *since*, so the mirror is searched there first.
        """
        mirror, columns = self.world.mirror(self.table), self.columns[shard].columns
        there = mirror.id_digests(shard, self._id, ids, columns, since)
        here = self._digests_at_source(shard, ids)
        spans = [(id_, id_ + 1) for id_ in ids]
        looks = [RangeLook(*one) for one in zip(spans, there, here, strict=True)]
        differing = tuple(one for one in looks if not one.equal)
        rows = sum(one.source.rows for one in looks)
        return Look(shard, mirror.version, mirror.batch, len(looks), rows, differing)

    def look_at_newest(self, shard: Shard, span: Range, most: int) -> tuple[Look, int]:
        """Read the rows of *span* on both sides; also return the id below which all were read.

        That is the end of *span*, unless a side has more than *most* rows in it, or the source
        does not allow reading that many.

        Raises:
            TooManyRowsError: the source does not allow reading even one row.
        """
        asked, columns = (shard, self._id, span), self.columns[shard].columns
        mirror = self.world.mirror(self.table)
        while True:
            try:
                here = self._source(shard).row_digests(*asked, columns, most)
                break
            except TooManyRowsError:
                if most == 1:
                    raise
                most = max(most // NARROWER, 1)
        there = mirror.row_digests(*asked, columns, most)
        cuts = [max(rows[-1][0], span[0] + 1) for rows in (here, there) if len(rows) >= most]
        until = min([span[1], *cuts])  # the last id of a cut list may have more rows
        source, copied = (sum_rows(one for one in rows if one[0] < until) for rows in (here, there))
        looks = [
            RangeLook((id_, id_ + 1), copied.get(id_, NO_ROW), source.get(id_, NO_ROW))
            for id_ in sorted(source.keys() | copied.keys())
        ]
        differing = tuple(one for one in looks if not one.equal)
        rows = sum(one.source.rows for one in looks)
        return Look(shard, mirror.version, mirror.batch, len(looks), rows, differing), until

    def first_id(self, shard: Shard, span: Range) -> int | None:
        """Return the lowest id in *span* at the source; None without any."""
        return next(iter(self._source(shard).ids(shard, self._id, span, 1)), None)

    def read_no_row(self, shard: Shard) -> None:
        """Query the source for an id that it does not have, with the query for rows.

        Raises:
            SlowError: even that takes too long.
        """
        highest = self._source(shard).max_id(shard, self._id) or 0
        self._digests_at_source(shard, [highest + 1])

    def read_ids(self, shard: Shard, keys: Sequence[str]) -> list[int | None]:
        """Return the ids that *keys* of the change log spell; None for a key that is no integer.

        Raises:
            ProofError: the id column has not landed.
        """
        schema = self.world.schema(shard)
        column = schema.column(self._id) if schema else None
        if column is None:
            raise ProofError(f"{shard}: no column {self._id} has landed")
        texts = pa.array([parse_key(key)[-1] for key in keys], pa.string())
        return [_whole_number(one) for one in column.dialect.values(column, texts).to_pylist()]

    def unexplained(self, look: Look) -> tuple[Range, ...]:
        """Return the ranges of *look* that no position explains; the mirror must have passed it."""
        spans = tuple(one.span for one in look.differing)
        changes = self._changes(look) if spans else None
        if not changes:  # no change may explain them, or the changes cannot be followed
            return spans
        found = split_changes(spans, changes)
        try:
            before = self._rows_before(look, [one for own in found.values() for one in own])
        except UnreachableError:  # the files of that version were deleted
            return spans
        looks = {one.span: one for one in look.differing}
        made = {span: before.explain(looks[span], found[span]) for span in spans}
        ids = sorted({id_ for own in made.values() for id_ in own or ()})
        now = dict(zip(ids, self._digests_in_mirror(look.shard, ids), strict=True))
        return tuple(
            span
            for span, own in made.items()
            if own is None or any(now[id_] != digest for id_, digest in own.items())
        )

    def find_suspects(
        self, spans: Mapping[Shard, Sequence[Range]], most: int, ranges: int | None = None
    ) -> "FoundSuspects":
        """Find rows of *spans* that differ, at *most* that many; each shard has a share of them.

        If there are more, each batch selects others.  At most *ranges* ranges of a shard are read,
        in order, and none after one that takes too long.  None: as many as *most* allows.

        Raises:
            SlowError: the source takes too long to list a range, and *ranges* is None.
        """
        landed, rows = self.world.landed_batch(), dict[Suspect, RangeDigest]()
        unread, partly = dict[Shard, list[Range]](), dict[Shard, list[Range]]()
        large = dict[Shard, list[Range]]()
        share = max(most // max(len(spans), 1), 1)
        for shard, own in spans.items():
            room = min(share, most - len(rows))
            for number, span in enumerate(own):
                if room <= 0 or (ranges is not None and number >= ranges):
                    unread.setdefault(shard, []).append(span)
                    continue
                try:
                    found = self._differing_rows(shard, span)
                except (TooManyRowsError, SlowError) as error:  # although its digest was readable
                    if isinstance(error, SlowError):
                        if ranges is None:
                            raise
                        room = 0
                    large.setdefault(shard, []).append(span)
                    continue
                if not found.whole:
                    large.setdefault(shard, []).append(span)
                elif len(found.rows) > room:
                    partly.setdefault(shard, []).append(span)
                kept = choose_rows(found.rows, landed, room)
                rows |= {(shard, id_): one for id_, one in kept}
                room -= len(kept)
        return FoundSuspects(RowSuspects(rows, landed, self.world.clock()), unread, partly, large)

    def _differing_rows(self, shard: Shard, span: Range) -> "DifferingRows":
        """Return the rows of *span* that differ."""
        asked = (shard, self._id, span, self.columns[shard].columns, MOST_ROWS)
        here = self._source(shard).row_digests(*asked)
        there = self.world.mirror(self.table).row_digests(*asked)
        whole = max(len(here), len(there)) < MOST_ROWS
        return DifferingRows(differing_rows(here, there), whole=whole)

    def read_again(self, suspects: Iterable[Suspect], tries: int) -> RowSuspects:
        """Read the *suspects* at their source."""
        ordered, landed = sorted(suspects), self.world.landed_batch()
        rows = self._digests(ordered, self._digests_at_source)
        return RowSuspects(rows, landed, self.world.clock(), tries)

    def judge(self, seen: RowSuspects) -> dict[Suspect, SuspectState]:
        """Judge each suspect; the mirror must have passed *seen*."""
        ordered = sorted(one for one in seen.rows if one[0] in self.columns)
        there = self._digests(ordered, self._digests_in_mirror)
        differ = [one for one in ordered if there[one] != seen.rows[one]]
        touched = touched_suspects(self.table, self.world, differ, seen.landed)
        return judge_rows(seen, there, self._digests(differ, self._digests_at_source), touched)

    def differing_columns(self, suspects: Iterable[Suspect]) -> dict[Suspect, tuple[str, ...]]:
        """Return the columns in which each row differs now, for `MOST_NARROWED` rows at most."""
        ordered, mirror = sorted(islice(suspects, MOST_NARROWED)), self.world.mirror(self.table)
        found = dict[Suspect, tuple[str, ...]]()
        for shard, rows in groupby(ordered, key=lambda one: one[0]):
            ids, columns = [id_ for _, id_ in rows], self.columns[shard].columns
            there = mirror.column_digests(shard, self._id, ids, columns)
            here = [
                one
                for some in self._in_parts(ids)
                for one in self._source(shard).column_digests(shard, self._id, some, columns)
            ]
            for id_, own, other in zip(ids, here, there, strict=True):
                wrong = (a != b for a, b in zip(own, other, strict=True))
                found[shard, id_] = tuple(one.name for one in compress(columns, wrong))
        return found

    @property
    def _id(self) -> str:
        return self.table.id_column or ""

    def _source(self, shard: Shard) -> TableQueries:
        return self.world.source(shard.source)

    def _in_parts(self, ids: Sequence[int]) -> Iterator[Sequence[int]]:
        """Divide *ids* into the parts that one query reads, each in one snapshot."""
        size = self.at_once or max(len(ids), 1)
        return (ids[at : at + size] for at in range(0, len(ids), size))

    def _digests_at_source(self, shard: Shard, ids: Sequence[int]) -> list[RangeDigest]:
        source, columns = self._source(shard), self.columns[shard].columns
        parts = (source.id_digests(shard, self._id, some, columns) for some in self._in_parts(ids))
        return [one for part in parts for one in part]

    def _digests_in_mirror(self, shard: Shard, ids: Sequence[int]) -> Sequence[RangeDigest]:
        mirror = self.world.mirror(self.table)
        return mirror.id_digests(shard, self._id, ids, self.columns[shard].columns)

    def _digests(
        self,
        suspects: Sequence[Suspect],
        read: Callable[[Shard, Sequence[int]], Sequence[RangeDigest]],
    ) -> dict[Suspect, RangeDigest]:
        return ask_suspects(suspects, lambda own, spans: read(own, [id_ for id_, _ in spans]))

    def _rows_before(self, look: Look, changes: Sequence[RowChange]) -> "RowsBefore":
        """Return the mirror's rows that *changes* concern, as they were at *look*."""
        mirror, shard = self.world.mirror(self.table).as_of(look.version), look.shard
        ids = sorted({change.id for change in changes})
        digests = mirror.id_digests(shard, self._id, ids, self.columns[shard].columns)
        found = {id_: one for id_, one in zip(ids, digests, strict=True) if one.rows}
        orders = mirror.row_orders(shard, self._id, [*found])
        created = any(one.id not in found and one.digest != NO_ROW for one in changes)
        top = self.world.log().highest_order(self.table, shard, look.batch) if created else None
        return RowsBefore(found, {id_: orders.get(id_) for id_ in found}, top)

    def _changes(self, look: Look) -> list[RowChange] | None:
        """Return the changes of the shard merged after *look*; None if they cannot be followed."""
        schema, columns = self.world.schema(look.shard), self.columns[look.shard].columns
        until = self.world.mirror(self.table).batch
        asked = look.shard, look.batch, until
        if asked not in self.known:
            self.known[asked] = self.world.log().row_versions(self.table, *asked, most=MOST_CHANGES)
        found = self.known[asked]
        if found is None or schema is None:
            return None
        try:
            ids = self.read_ids(look.shard, [one.key for one in found])
        except ProofError:
            return None
        known = [id_ for id_ in ids if id_ is not None]
        return digest_changes(found, known, schema, columns) if len(known) == len(ids) else None


@dataclass(frozen=True, slots=True)
class LookedAgain:
    """A look at ``ranges``, which are open ranges of a shard; empty without any.

    ``opened`` are all open ranges of the shard; those that were too large are narrower now.
    """

    looks: Sequence[Look]
    ranges: Sequence[Range]
    opened: Sequence[Range]


def look_again(
    comparison: Comparison, shard: Shard, opened: Sequence[Range], most: int
) -> LookedAgain:
    """Read the first *most* of the ranges *opened*; fewer if that is too much.

    A range that is too large even alone is divided. It may have grown, or been opened when a higher
    limit was configured.

    Raises:
        SlowError: the source takes too long for so many ranges.
    """
    most = min(most, len(opened))
    while most:
        ranges = join_disjoint(opened[:most], ())
        try:
            return LookedAgain([comparison.look_at(shard, ranges)], ranges, opened)
        except TooManyRowsError:
            if most > 1:
                most //= 2
                continue
        halved = halve_first(opened, 1)
        opened, most = halved, len(halved) - len(opened)
    return LookedAgain((), (), opened)


def _whole_number(value: object) -> int | None:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else None
    return value if isinstance(value, int) else None


def digest_changes(
    versions: Sequence[RowVersion],
    ids: Sequence[int],
    schema: TableSchema,
    columns: Sequence[DigestColumn],
) -> list[RowChange] | None:
    """Return *versions* of the rows *ids* as changes with digests of *columns*.

    None if a value cannot be read.
    """
    names, changes = {one.name for one in columns}, list[RowChange]()
    for start in range(0, len(versions), TYPED_AT_ONCE):
        some = versions[start : start + TYPED_AT_ONCE]
        typed = type_rows(pa.array([one.after for one in some], pa.string()), schema.columns)
        if any(typed.misread.to_pylist()):
            return None
        values = zip(*(typed.rows[one.name].to_pylist() for one in columns), strict=True)
        own = ids[start : start + TYPED_AT_ONCE]
        for one, id_, row in zip(some, own, values, strict=True):
            if one.after:
                is_partial = not names <= _name_columns(one.after)
                changes.append(RowChange(one.order, id_, digest_row(columns, row), is_partial))
            else:
                changes.append(RowChange(one.order, id_, NO_ROW))
    return changes


def _name_columns(row: str) -> AbstractSet[str]:
    """Return the columns of a row of the change log."""
    return (read_row(Raw(row.encode())) or {}).keys()


def differing_rows(
    here: Iterable[tuple[int, int]], there: Iterable[tuple[int, int]]
) -> dict[int, RangeDigest]:
    """Return the ids whose rows differ, with their digests at the source (*here*)."""
    source, mirror = sum_rows(here), sum_rows(there)
    return {
        id_: source.get(id_, NO_ROW)
        for id_ in sorted(source.keys() | mirror.keys())
        if source.get(id_) != mirror.get(id_)
    }


def choose_rows(
    found: Mapping[int, RangeDigest], batch: int, room: int
) -> list[tuple[int, RangeDigest]]:
    """Return at most *room* of the rows *found*; each *batch* starts at another row."""
    rows = [*found.items()]
    first = batch % max(len(rows), 1)
    return [*rows[first:], *rows[:first]][: max(room, 0)]


def judge_rows(
    seen: RowSuspects,
    there: Mapping[Suspect, RangeDigest],
    after: Mapping[Suspect, RangeDigest],
    touched: Collection[Suspect],
) -> dict[Suspect, SuspectState]:
    """Judge rows of *seen*; *there* has their digests in a mirror that has passed *seen*.

    *after* has the digests at the source since then, of the rows that differ.  *touched* are rows
    with a change that has landed since *seen*.
    """
    return {
        one: judge_row(seen.rows[one], digest, after[one], touched=one in touched)
        if one in after
        else SuspectState.CLEARED
        for one, digest in there.items()
    }


def judge_row(
    before: RangeDigest, there: RangeDigest, after: RangeDigest, *, touched: bool
) -> SuspectState:
    """Judge one id from its digests.

    *before*: at the source. *there*: in a mirror that has passed that reading. *after*: at the
    source again. *touched*: a change of the id has landed since the first reading.
    """
    if there == before:
        return SuspectState.CLEARED
    moved = touched or after != before
    if there.rows == before.rows:
        return SuspectState.MOVING if moved else SuspectState.DIFFERENT
    return judge_suspect(before.rows, there.rows, before.rows, touched=moved)
