"""Compares the rows of a table whose key is not one integer: by the digests of their keys.

Collations order text keys and may treat two keys as equal. So a range of text keys has different
rows at the source and in the mirror. The digest of a key has no collation. Rows are summed by
buckets of that digest, in one scan of the table on each side (`KeyedComparison.look_at`). Rows of
buckets that differ are read on both sides. Changed rows are read by the values of their keys, if
these are integers and texts (`KeyedComparison.look_at_changes`).

A differing bucket or row counts as equal under two conditions. The changes that landed after the
look explain it at one position. And the mirror, which has merged them all, has the rows as the last
changes left them. `checks.compare.keyed_cycle` decides when each step is taken.

Cannot detect: two keys that differ only in what a form counts as equal (`pipeline.row_digest`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, groupby, islice
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from checks.compare.look import (
    MOST_CHANGES,
    MOST_NARROWED,
    MOST_ROWS,
    ComparedColumns,
    Look,
    RowSuspects,
    choose_rows,
    describe_since,
    differing_rows,
    digest_changes,
    judge_rows,
)
from checks.compare.reconcile import NO_ROW, RangeLook, RowChange, find_position, last_digests
from checks.counting import (
    Suspect,
    SuspectState,
)
from checks.model import Undecided
from checks.world import MirrorSide, TableQueries, World
from pipeline.errors import TooManyRowsError, UnreachableError
from pipeline.formats.json_text import canonical_key, parse_key
from pipeline.model import Shard, Table
from pipeline.readings import RowVersion
from pipeline.row_digest import (
    VERSION,
    Bucketing,
    Form,
    KeyedRow,
    KeyValues,
    RangeDigest,
    digest_row,
    is_plain_value,
    name_key,
    sum_rows,
)

FEWEST, MOST = 16, 4096  # buckets
MOST_KEYS = 20_000  # most changed rows that are read by their keys at once
NO_MEMORY: Mapping[str, Any] = MappingProxyType({})
KeyedVersions = tuple[Sequence[RowVersion], Sequence[int]]
"""Changes, and the digest of the key of each."""
ChangedKeys = dict[Shard, dict[int, KeyValues]]
"""Shard -> digest of a key -> values of the key."""


@dataclass(frozen=True, slots=True)
class KeyedComparison:
    """Compares one table in one round by its key; ``by`` divides each shard into buckets."""

    table: Table
    world: World
    columns: Mapping[Shard, ComparedColumns]
    by: Mapping[Shard, Bucketing]
    known: dict[tuple[Shard, int, int], KeyedVersions | None] = field(default_factory=dict)

    def look_at(self, shard: Shard) -> Look:
        """Sum both sides of every bucket: the mirror first.

        Raises:
            TooManyRowsError: the table is too large to be read without harm.
        """
        mirror, asked = self._mirror(), (shard, self.by[shard], self.columns[shard].columns)
        there, here = mirror.bucket_digests(*asked), self._source(shard).bucket_digests(*asked)
        looks = [
            RangeLook((one, one + 1), there.get(one, NO_ROW), here.get(one, NO_ROW))
            for one in sorted(there.keys() | here.keys())
        ]
        rows = sum(one.rows for one in here.values())
        differing = tuple(one for one in looks if not one.equal)
        return Look(shard, mirror.version, mirror.batch, len(looks), rows, differing)

    def unexplained(self, look: Look) -> tuple[RangeLook, ...]:
        """Return the buckets of *look* that no position explains; the mirror has passed it."""
        changes = self._changes(look.shard, look.batch) if look.differing else None
        if not changes:
            return look.differing
        top = self.world.log().highest_order(self.table, look.shard, look.batch)
        if top is not None and any(one.order <= top for one in changes):
            return look.differing  # a redelivered change must not explain a difference
        own = dict[int, list[RowChange]]()
        for one in changes:
            own.setdefault(self.by[look.shard].bucket_of(one.id), []).append(one)
        try:
            before, buckets = self._mirror().as_of(look.version), {*map(_bucket, look.differing)}
            rows = self._rows(before, look.shard, own.keys() & buckets)
        except UnreachableError:  # the files of that version were deleted
            return look.differing
        if rows is None:
            return look.differing
        explained = {
            _bucket(one)
            for one in look.differing
            if find_position(one, rows, own.get(_bucket(one), ())) is not None
        }
        now = self._rows(self._mirror(), look.shard, explained)
        if now is None:
            return look.differing
        last = {number: last_digests(own[number]) for number in explained}
        kept = {
            number
            for number, made in last.items()
            if all(now.get(key, NO_ROW) == digest for key, digest in made.items())
        }
        return tuple(one for one in look.differing if _bucket(one) not in kept)

    def find_suspects(
        self, differing: Mapping[Shard, Sequence[RangeLook]], most: int
    ) -> RowSuspects:
        """Find rows of the *differing* buckets that differ, at *most* that many.

        Reads only as many buckets as can be read at once.  If there are more, each batch starts at
        another bucket.
        """
        landed, mirror = self.world.landed_batch(), self._mirror()
        rows, names, cut = dict[Suspect, RangeDigest](), dict[Suspect, str](), 0
        for shard, every in differing.items():
            own = choose_buckets(every, landed)
            cut += sum(
                max(abs(one.source.rows - one.mirror.rows), 1)
                for one in every
                if _bucket(one) not in own
            )
            if not own:
                continue
            asked = (shard, self.by[shard], self.columns[shard].columns, own, MOST_ROWS)
            here, there = self._source(shard).bucket_rows(*asked), mirror.bucket_rows(*asked)
            found = differing_rows(_digests_by_key(here), _digests_by_key(there))
            kept = dict(choose_rows(found, landed, most - len(rows)))
            whole = max(len(here), len(there)) < MOST_ROWS
            cut += len(found) - len(kept) + (not whole)
            if not whole:  # a row that was not read on one side may exist there
                both = {row.key for row in here} & {row.key for row in there}
                kept = {key: one for key, one in kept.items() if key in both}
            rows |= {(shard, key): one for key, one in kept.items()}
            values = {row.key: row.name for row in (*there, *here)}
            names |= {(shard, key): self._name(shard, values[key]) for key in kept}
        return RowSuspects(rows, landed, self.world.clock(), names=names, cut=cut)

    def read_again(self, seen: RowSuspects, suspects: Collection[Suspect]) -> RowSuspects:
        """Read *suspects* of *seen* at their source again."""
        landed = self.world.landed_batch()
        rows = self._digests(suspects, {s: self._source(s) for s in self.columns})
        names = {one: seen.names[one] for one in rows if one in seen.names}
        tries, ended = seen.tries + 1, self.world.clock()
        return RowSuspects(rows, landed, ended, tries, names, seen.cut)

    def judge(self, seen: RowSuspects) -> dict[Suspect, SuspectState]:
        """Judge each suspect; the mirror must have passed *seen*."""
        suspects = [one for one in seen.rows if one[0] in self.columns]
        there = self._digests(suspects, dict.fromkeys(self.columns, self._mirror()))
        differ = [one for one in suspects if there[one] != seen.rows[one]]
        touched = self._touched(differ, seen.landed)
        after = self._digests(differ, {shard: self._source(shard) for shard in self.columns})
        return judge_rows(seen, there, after, touched)

    def look_at_changes(
        self, after: int, until: int, only: Iterable[Suspect] | None = None
    ) -> tuple[int, RowSuspects] | None:
        """Read rows changed in batches in (*after*, *until*] by their keys, or *only* some of them.

        Returns how many were read, and which of them differ.  None if the changes cannot be
        followed.
        """
        keys = self._changed_keys(after, until)
        if keys is None:
            return None
        if only is not None:
            keys = choose_keys(keys, only)
        landed, names = self.world.landed_batch(), dict[Suspect, str]()
        there = self._read_by_key(keys, dict.fromkeys(keys, self._mirror()))
        here = self._read_by_key(keys, {shard: self._source(shard) for shard in keys})
        rows = {one: digest for one, digest in here.items() if digest != there[one]}
        for shard, key in rows:
            names[shard, key] = self._name(shard, name_key(keys[shard][key]))
        return len(here), RowSuspects(rows, landed, self.world.clock(), names=names)

    def judge_changes(
        self, seen: RowSuspects, after: int, until: int, batch: int
    ) -> dict[Suspect, SuspectState] | None:
        """Judge the suspects *seen*, which were read when the mirror was applied through *batch*.

        The mirror must have passed *seen*.  None if the changes can no longer be followed.
        """
        every, made = self._changed_keys(after, until), self._rows_made(seen.rows, batch)
        if every is None or made is None:
            return None
        keys = choose_keys(every, seen.rows)
        there = self._read_by_key(keys, dict.fromkeys(keys, self._mirror()))
        differ = [
            one
            for one, digest in there.items()
            if digest != seen.rows[one] and not is_made(seen.rows[one], digest, made.get(one, ()))
        ]
        left = choose_keys(keys, differ)
        since = self._read_by_key(left, {shard: self._source(shard) for shard in left})
        return judge_rows(seen, there, since, self._touched(differ, seen.landed))

    def differing_columns(self, suspects: Iterable[Suspect]) -> dict[Suspect, tuple[str, ...]]:
        """Return the columns in which each row differs now, for `MOST_NARROWED` rows at most.

        A row that a side does not have, or has twice, is left out.
        """
        ordered, found = sorted(islice(suspects, MOST_NARROWED)), dict[Suspect, tuple[str, ...]]()
        for shard, rows in groupby(ordered, key=lambda one: one[0]):
            keys, columns = {key for _, key in rows}, self.columns[shard].columns
            asked = (shard, self.by[shard], columns, keys, MOST_ROWS)
            there = _single_rows(self._mirror().keyed_columns(*asked))
            here = _single_rows(self._source(shard).keyed_columns(*asked))
            for key in sorted(here.keys() & there.keys()):
                wrong = (a != b for a, b in zip(here[key], there[key], strict=True))
                found[shard, key] = tuple(one.name for one in compress(columns, wrong))
        return found

    @property
    def asked(self) -> list[Any]:
        """What is compared, as JSON values; they change with key, columns, forms and `VERSION`."""
        return [
            [str(shard), VERSION, by.buckets, *(f"{one.name}:{one.form}" for one in by.key), "|"]
            + [f"{one.name}:{one.form}" for one in self.columns[shard].columns]
            + describe_since(self.columns[shard])
            for shard, by in self.by.items()
        ]

    def _name(self, shard: Shard, values: Sequence[str]) -> str:
        unique = self.table.unique_across_shards
        return canonical_key(list(values), shard.source, shard.name, unique=unique)

    def _mirror(self) -> MirrorSide:
        return self.world.mirror(self.table)

    def _source(self, shard: Shard) -> TableQueries:
        return self.world.source(shard.source)

    def _rows(
        self, side: MirrorSide | TableQueries, shard: Shard, buckets: Collection[int]
    ) -> dict[int, RangeDigest] | None:
        """Return the digests of the rows of *buckets* by key; None if there are too many rows."""
        asked = (shard, self.by[shard], self.columns[shard].columns, sorted(buckets), MOST_ROWS)
        found = side.bucket_rows(*asked) if buckets else ()
        return None if len(found) >= MOST_ROWS else sum_rows(_digests_by_key(found))

    def _digests(
        self,
        suspects: Collection[Suspect],
        sides: Mapping[Shard, MirrorSide | TableQueries],
    ) -> dict[Suspect, RangeDigest]:
        """Return the digest of each of *suspects* on one side.

        Raises:
            TooManyRowsError: their buckets have too many rows.
        """
        found = dict[Suspect, RangeDigest]()
        for shard in sorted({shard for shard, _ in suspects}):
            keys = [key for own, key in suspects if own == shard]
            buckets = {self.by[shard].bucket_of(key) for key in keys}
            rows = self._rows(sides[shard], shard, buckets)
            if rows is None:
                raise TooManyRowsError(f"{len(buckets)} buckets of {shard} have too many rows")
            found |= {(shard, key): rows.get(key, NO_ROW) for key in keys}
        return found

    def _changed_keys(self, after: int, until: int) -> ChangedKeys | None:
        """Return the keys, with values, of rows changed in batches in (*after*, *until*].

        None if there are too many, if a shard was emptied or got a new base, if some of these
        batches were dropped, or if a value is neither an integer nor a text at its source.
        """
        log, found = self.world.log(), ChangedKeys()
        if after < log.dropped or log.emptied_shards(self.table, after, until):
            return None
        changed = log.changed_keys(self.table, after, until, most=MOST_KEYS + 1)
        if len(changed) > MOST_KEYS:
            return None
        by_shard = dict[Shard, list[str]]()
        for shard, key in changed:
            by_shard.setdefault(shard, []).append(key)
        for shard in self.by.keys() & by_shard.keys():
            by, values = self.by[shard], self._key_values(shard, by_shard[shard])
            if values is None or not self._are_integers_whole(shard):
                return None
            for row in values:
                plain = tuple(filter(is_plain_value, row))
                if len(plain) < len(row):
                    return None
                found.setdefault(shard, {})[digest_row(by.key, row).sum] = plain
        return found

    def _are_integers_whole(self, shard: Shard) -> bool:
        """Whether the integers of a key are integers at the source, too.

        A TIME is not: no row is found by its microseconds, as if the row were deleted.
        """
        schema = self.world.schema(shard)
        names = [one.name for one in self.by[shard].key if one.form is Form.INTEGER]
        columns = [schema.column(name) if schema else None for name in names]
        return all(one is not None and one.dialect.whole(one) for one in columns)

    def _rows_made(
        self, suspects: Iterable[Suspect], after: int
    ) -> dict[Suspect, list[RowChange]] | None:
        """Return the changes of each row after batch *after*; None if they cannot be followed.

        They are in log order, and the mirror has merged all of them.  Redelivered changes are left
        out: their order is not above the highest one up to *after*.
        """
        found = dict[Suspect, list[RowChange]]()
        for shard in {shard for shard, _ in suspects}:
            changes = self._changes(shard, after)
            if changes is None:
                return None
            top = self.world.log().highest_order(self.table, shard, after) if changes else None
            for one in changes:
                if top is None or one.order > top:
                    found.setdefault((shard, one.id), []).append(one)
        return found

    def _read_by_key(
        self, keys: ChangedKeys, sides: Mapping[Shard, MirrorSide | TableQueries]
    ) -> dict[Suspect, RangeDigest]:
        """Return the digest of the row of each of *keys* on one side."""
        found = dict[Suspect, RangeDigest]()
        for shard, own in keys.items():
            asked = (shard, self.by[shard], self.columns[shard].columns, own)
            rows = sum_rows(_digests_by_key(sides[shard].rows_by_key(*asked)))
            found |= {(shard, key): rows.get(key, NO_ROW) for key in own}
        return found

    def _touched(self, suspects: Sequence[Suspect], after: int) -> set[Suspect]:
        """Return suspects with a change in a batch above *after*; all of a shard if unknown."""
        until, found = max(self.world.landed_batch(), self._mirror().batch), set[Suspect]()
        for shard in {shard for shard, _ in suspects}:
            own = {one for one in suspects if one[0] == shard}
            known = self._versions(shard, after, until)
            found |= own if known is None else own & {(shard, key) for key in known[1]}
        return found

    def _changes(self, shard: Shard, after: int) -> list[RowChange] | None:
        """Return the changes in batches after *after* that the mirror has merged, each once.

        They have log order.  None if they cannot be followed.
        """
        schema, columns = self.world.schema(shard), self.columns[shard].columns
        known = self._versions(shard, after, self._mirror().batch)
        if schema is None or known is None:
            return None
        changes = digest_changes(*known, schema, columns)
        return changes and list(dict.fromkeys(sorted(changes, key=lambda one: one.order)))

    def _versions(self, shard: Shard, after: int, until: int) -> KeyedVersions | None:
        """Return the changes of batches in (*after*, *until*], with the digests of their keys.

        None if they cannot be followed, or if a key cannot be read.
        """
        asked = shard, after, until
        if asked not in self.known:
            found = self.world.log().row_versions(self.table, *asked, most=MOST_CHANGES)
            values = None if found is None else self._key_values(shard, [one.key for one in found])
            self.known[asked] = None
            if found is not None and values is not None:
                key = self.by[shard].key
                self.known[asked] = (found, [digest_row(key, row).sum for row in values])
        return self.known[asked]

    def _key_values(self, shard: Shard, keys: Sequence[str]) -> list[tuple[Any, ...]] | None:
        """Return the values of *keys* of the change log; None if one cannot be read."""
        schema, by = self.world.schema(shard), self.by[shard]
        if schema is None:
            return None
        parts = [parse_key(key)[-len(by.key) :] for key in keys]
        values = list[list[Any]]()
        for place, name in enumerate(self.table.key):
            column = schema.column(name)
            if column is None:
                return None
            texts = pa.array([one[place] for one in parts], pa.string())
            values.append(column.dialect.values(column, texts).to_pylist())
        if any(None in own for own in values):
            return None
        return [*zip(*values, strict=True)]


def choose_bucketing(
    table: Table,
    shard: Shard,
    columns: ComparedColumns,
    rows: int,
    memory: Mapping[str, Any] = NO_MEMORY,
) -> Bucketing | Undecided:
    """Choose how to divide *rows* of a shard, with about a hundred rows per bucket.

    *columns* have the key of *table*, if it has one.
    If the source had more rows in the last scan, which *memory* has, that number counts.  The
    previous number of buckets is kept if it is about right, because a new number restarts the scan.
    """
    forms = {one.name: one for one in columns.columns}
    if not table.key:
        return Undecided("unsupported", f"{shard} has no key")
    at_source, before = _last_size(memory, shard)
    wanted = max(FEWEST, min(MOST, max(rows, at_source) // 100))
    buckets = 1 << (wanted - 1).bit_length()
    if buckets // 2 <= before <= buckets * 2:
        buckets = before
    return Bucketing(tuple(forms[name] for name in table.key), buckets)


def _last_size(memory: Mapping[str, Any], shard: Shard) -> tuple[int, int]:
    """Return rows of *shard* at the source in the last scan, and its buckets; 0 before one."""
    own = str(shard)
    rows = (look["rows"] for look in memory.get("looks", ()) if look["shard"] == own)
    buckets = (asked[2] for asked in memory.get("keyed", ()) if asked[0] == own)
    return next(rows, 0), next(buckets, 0)


def choose_buckets(differing: Sequence[RangeLook], batch: int) -> list[int]:
    """Return the numbers of *differing* buckets that can be read at once, even if they grow.

    Each *batch* starts at another bucket.
    """
    first, room, chosen = batch % max(len(differing), 1), MOST_ROWS // 2, list[int]()
    for one in (*differing[first:], *differing[:first]):
        rows = max(one.source.rows, one.mirror.rows)
        if rows <= room:
            chosen.append(_bucket(one))
            room -= rows
    return sorted(chosen)


def _bucket(look: RangeLook) -> int:
    """Return the number of a bucket."""
    return look.span[0]


def choose_keys(keys: ChangedKeys, suspects: Iterable[Suspect]) -> ChangedKeys:
    """Return those of *keys* that belong to *suspects*; shards without any are left out."""
    found = ChangedKeys()
    for shard, key in suspects:
        if key in keys.get(shard, {}):
            found.setdefault(shard, {})[key] = keys[shard][key]
    return found


def is_made(source: RangeDigest, mirror: RangeDigest, changes: Sequence[RowChange]) -> bool:
    """Whether *changes* explain the difference of a row.

    One of them must have made the row that the *source* had, and the *mirror* must have the last
    one.  Without the second condition, a doubled or unmerged row would count as equal as long as it
    changes.
    """
    made = source in [one.digest for one in changes if not one.partial]
    return made and {mirror} >= {*last_digests(changes).values()}


def _single_rows(rows: Iterable[KeyedRow]) -> dict[int, tuple[int, ...]]:
    """Return the column digests of each row whose key occurs once."""
    found = dict[int, list[tuple[int, ...]]]()
    for row in rows:
        found.setdefault(row.key, []).append(row.columns)
    return {key: own[0] for key, own in found.items() if len(own) == 1}


def _digests_by_key(rows: Iterable[KeyedRow]) -> Iterator[tuple[int, int]]:
    return ((row.key, row.digest) for row in rows)
