"""Compares the rows of a table whose key is not one integer: by buckets of the keys' digests.

Collations order text keys, and may take two of them for one, so ranges of them hold other rows at
the source than in the mirror. The digest of a key has no collation. Each look scans the whole table
once on each side. So it is for tables of some size, and at a slow pace.

1. The mirror's buckets are added up, and then the source's.
2. The mirror has passed that. A bucket that differs is equal if one position explains it
   (`find_position`). The rows of the others are read on both sides; those that differ are suspects.
3. The mirror has passed that, too. A suspect that still differs is wrong, unless a change of its
   key has landed since, or the source has another row by now.

Cannot see: two keys that differ only in what a form counts as equal (`pipeline.row_digest`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from checks.compare.look import (
    MOST_CHANGES,
    MOST_ROWS,
    ComparedColumns,
    Look,
    judge_row,
)
from checks.compare.reconcile import NO_ROW, RangeLook, RowChange, find_position
from checks.counting import (
    WRONG,
    Differences,
    Suspect,
    SuspectState,
    await_fences,
    fences_after,
)
from checks.model import NotYet, Undecided
from checks.world import MirrorSide, TableQueries, World
from pipeline.errors import UnreachableError
from pipeline.formats.json_text import canonical_key, parse_key
from pipeline.model import Shard, Table
from pipeline.readings import RowVersion
from pipeline.row_digest import VERSION, Bucketing, KeyedRow, RangeDigest, digest_row
from pipeline.schema.decode import type_rows

FEWEST, MOST = 16, 4096  # buckets
SOON = timedelta(minutes=1)  # until a table with a finding is scanned again
Names = dict[Suspect, str]
"""How people name a row: the values of its key."""


@dataclass(frozen=True, slots=True)
class KeyedSuspects:
    """Rows that differed, by the digest of their key, with what the source had for each.

    ``landed`` is the newest batch known before the reading, ``ended`` the instant it ended.
    ``cut`` counts rows that differed and were too many to be listed.
    """

    rows: Mapping[Suspect, RangeDigest]
    names: Mapping[Suspect, str]
    landed: int
    ended: datetime
    cut: int = 0
    tries: int = 0

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        told = [
            [str(shard), key, one.rows, one.sum, self.names.get((shard, key), "")]
            for (shard, key), one in self.rows.items()
        ]
        counts = {"landed": self.landed, "cut": self.cut, "tries": self.tries}
        return {"rows": told, "ended": self.ended.isoformat(), **counts}

    @classmethod
    def loads(cls, raw: Mapping[str, Any], table: Table) -> "KeyedSuspects":
        """Read back what :meth:`dumps` wrote; rows of shards that are gone are left out."""
        shards = {str(shard): shard for shard in table.shards}
        kept = [one for one in raw["rows"] if one[0] in shards]
        rows = {(shards[own], key): RangeDigest(n, total) for own, key, n, total, _ in kept}
        names = {(shards[own], key): name for own, key, _, _, name in kept}
        ended = datetime.fromisoformat(raw["ended"])
        return cls(rows, names, raw["landed"], ended, raw["cut"], raw["tries"])


@dataclass(frozen=True, slots=True)
class KeyedComparison:
    """One table in one round, by its key; ``by`` divides the rows of each shard."""

    table: Table
    world: World
    columns: Mapping[Shard, ComparedColumns]
    by: Mapping[Shard, Bucketing]
    known: dict[tuple[Shard, int, int], list[tuple[RowVersion, int]] | None] = field(
        default_factory=dict
    )

    def look_at(self, shard: Shard) -> Look:
        """Add up both sides of every bucket: the mirror first.

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

    def unexplained(self, look: Look) -> list[int]:
        """The buckets of *look* not equal at any position; the mirror has passed it."""
        buckets = [one.span[0] for one in look.differing]
        changes = self._changes(look) if buckets else None
        if not changes:
            return buckets
        top = self.world.log().highest_order(self.table, look.shard, look.batch)
        if top is not None and any(one.order <= top for one in changes):
            return buckets  # a change that is sent again would explain what it did not make
        by = self.by[look.shard]
        try:
            before = self._mirror().as_of(look.version)
            moved = {by.bucket_of(one.id) for one in changes} & {*buckets}
            rows = self._rows(before, look.shard, moved)
        except UnreachableError:  # the files of that version are gone
            return buckets
        if rows is None:
            return buckets
        found = list[int]()
        for one in look.differing:
            own = [change for change in changes if by.bucket_of(change.id) == one.span[0]]
            if find_position(one, rows, own) is None:
                found.append(one.span[0])
        return found

    def find_suspects(self, buckets: Mapping[Shard, Sequence[int]], most: int) -> KeyedSuspects:
        """Rows of *buckets* that the two sides do not hold alike, at *most* so many.

        Other ones come first each time, if there are more.
        """
        landed, mirror = self.world.landed_batch(), self._mirror()
        rows, names, cut = dict[Suspect, RangeDigest](), Names(), 0
        for shard, own in buckets.items():
            asked = (shard, self.by[shard], self.columns[shard].columns, own, MOST_ROWS)
            here, there = self._source(shard).bucket_rows(*asked), mirror.bucket_rows(*asked)
            source, other = _by_key(here), _by_key(there)
            found = sorted(
                key for key in source.keys() | other.keys() if source.get(key) != other.get(key)
            )
            whole = max(len(here), len(there)) < MOST_ROWS
            first, room = landed % max(len(found), 1), max(most - len(rows), 0)
            kept = (found[first:] + found[:first])[:room]
            cut += len(found) - len(kept) + (not whole)
            if not whole:  # rows that were not read on one side are not missing there
                kept = [key for key in kept if key in source and key in other]
            rows |= {(shard, key): source.get(key, NO_ROW) for key in kept}
            told = {row.key: row.name for row in (*there, *here)}
            names |= {(shard, key): self._name(shard, told[key]) for key in kept}
        return KeyedSuspects(rows, names, landed, self.world.clock(), cut)

    def read_again(self, seen: KeyedSuspects, suspects: Collection[Suspect]) -> KeyedSuspects:
        """Read *suspects* of *seen* at their source again."""
        landed = self.world.landed_batch()
        rows = self._digests(suspects, {s: self._source(s) for s in self.columns})
        names = {one: seen.names[one] for one in rows if one in seen.names}
        return KeyedSuspects(rows, names, landed, self.world.clock(), seen.cut, seen.tries + 1)

    def judge(self, seen: KeyedSuspects) -> dict[Suspect, SuspectState]:
        """What became of each suspect; only for a mirror that is newer than *seen*."""
        suspects = [one for one in seen.rows if one[0] in self.columns]
        there = self._digests(suspects, dict.fromkeys(self.columns, self._mirror()))
        differ = [one for one in suspects if there[one] != seen.rows[one]]
        touched = self._touched({shard for shard, _ in differ}, seen.landed)
        after = self._digests(differ, {shard: self._source(shard) for shard in self.columns})
        became = dict.fromkeys(suspects, SuspectState.CLEARED)
        for one in differ:
            own = touched[one[0]]
            moved = own is None or one[1] in own
            became[one] = judge_row(seen.rows[one], there[one], after[one], touched=moved)
        return became

    @property
    def asked(self) -> list[Any]:
        """What is compared, as JSON values; others after a new version."""
        return [
            [str(shard), VERSION, by.buckets, *(f"{one.name}:{one.form}" for one in by.key), "|"]
            + [f"{one.name}:{one.form}" for one in self.columns[shard].columns]
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
        """Rows by key of *buckets*; None if they are too many."""
        asked = (shard, self.by[shard], self.columns[shard].columns, sorted(buckets), MOST_ROWS)
        found = side.bucket_rows(*asked) if buckets else ()
        return None if len(found) >= MOST_ROWS else _by_key(found)

    def _digests(
        self,
        suspects: Collection[Suspect],
        sides: Mapping[Shard, MirrorSide | TableQueries],
    ) -> dict[Suspect, RangeDigest]:
        """What one side has for each of *suspects*.

        Raises:
            UnreachableError: their buckets hold too many rows.
        """
        found = dict[Suspect, RangeDigest]()
        for shard in sorted({shard for shard, _ in suspects}):
            keys = [key for own, key in suspects if own == shard]
            buckets = {self.by[shard].bucket_of(key) for key in keys}
            rows = self._rows(sides[shard], shard, buckets)
            if rows is None:
                raise UnreachableError(f"{len(buckets)} buckets of {shard} have too many rows")
            found |= {(shard, key): rows.get(key, NO_ROW) for key in keys}
        return found

    def _touched(self, shards: Iterable[Shard], after: int) -> dict[Shard, frozenset[int] | None]:
        """By shard the keys with a change in a batch above *after*; None if it is unknown."""
        until = max(self.world.landed_batch(), self._mirror().batch)
        found = dict[Shard, frozenset[int] | None]()
        for shard in shards:
            changes = self._versions(shard, after, until)
            found[shard] = None if changes is None else frozenset(key for _, key in changes)
        return found

    def _changes(self, look: Look) -> list[RowChange] | None:
        """Landed changes after the look's batch; None if they cannot be followed."""
        schema, columns = self.world.schema(look.shard), self.columns[look.shard].columns
        found = self._versions(look.shard, look.batch, self._mirror().batch)
        if schema is None or found is None:
            return None
        typed = type_rows(pa.array([one.after for one, _ in found], pa.string()), schema.columns)
        if any(typed.misread.to_pylist()):
            return None
        values = zip(*(typed.rows[one.name].to_pylist() for one in columns), strict=True)
        made = (
            RowChange(one.order, key, digest_row(columns, row) if one.after else NO_ROW)
            for (one, key), row in zip(found, values, strict=True)
        )
        return list(dict.fromkeys(sorted(made, key=lambda one: one.order)))

    def _versions(
        self, shard: Shard, after: int, until: int
    ) -> list[tuple[RowVersion, int]] | None:
        """Changes of batches in (*after*, *until*] with the digest of their key."""
        asked = shard, after, until
        if asked not in self.known:
            found = self.world.log().row_versions(self.table, *asked, most=MOST_CHANGES)
            keys = None if found is None else self._read_keys(shard, [one.key for one in found])
            told = None
            if found is not None and keys is not None:
                told = list(zip(found, keys, strict=True))
            self.known[asked] = told
        return self.known[asked]

    def _read_keys(self, shard: Shard, keys: Sequence[str]) -> list[int] | None:
        """Digests of *keys* of the change log; None if one cannot be read by its columns."""
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
        return [digest_row(by.key, row).sum for row in zip(*values, strict=True)]


@dataclass(frozen=True, slots=True)
class KeyedPace:
    """How often a table is scanned; see the probe's settings of the same names."""

    whole_every: timedelta
    suspects: int
    tries: int
    patience: timedelta


def measure_by_key(
    comparison: KeyedComparison, pace: KeyedPace, check: str
) -> Differences | NotYet | Undecided:
    """Take the next step of a cycle: look, explain and read rows, or rule on suspects."""
    table, world = comparison.table, comparison.world
    memory = world.recall(table, check) or {}
    if memory.get("keyed") != comparison.asked or _is_over(memory, world.now):
        return _begin(comparison, check)
    begun = datetime.fromisoformat(memory["ended"])
    if memory["rest"] is not None:
        return NotYet(f"the table was scanned at {begun:%H:%M:%S %Z}, and is not due yet")
    seen = KeyedSuspects.loads(memory["rows"], table) if memory["rows"] else None
    fences = await_fences(table, world, seen.ended if seen else begun, pace.patience)
    if isinstance(fences, NotYet | Undecided):
        return fences
    looks = [look for raw in memory["looks"] if (look := Look.loads(raw, table))]
    equal = Differences(fences, _told(looks, comparison))
    if seen is None:
        rows, reading = _explain(comparison, pace, looks, equal)
    else:
        rows, reading = _confirm(comparison, pace, seen, begun, equal)
    rest = None
    if isinstance(reading, Differences):
        settled = not (reading.found or reading.moving or reading.more)
        rest = (pace.whole_every if settled else min(pace.whole_every, SOON)).total_seconds()
        reading = replace(reading, ended=world.clock())
    world.remember(table, check, {**memory, "rows": rows and rows.dumps(), "rest": rest})
    return reading


Step = tuple[KeyedSuspects | None, Differences | NotYet]
"""Suspects to rule on later, or None with the reading that ends the cycle."""


def _is_over(memory: Mapping[str, Any], now: datetime) -> bool:
    """Whether a cycle has ended, and its rest, too."""
    if memory["rest"] is None:
        return False
    return now - datetime.fromisoformat(memory["ended"]) >= timedelta(seconds=memory["rest"])


def _explain(
    comparison: KeyedComparison, pace: KeyedPace, looks: Sequence[Look], reading: Differences
) -> Step:
    left = {look.shard: own for look in looks if (own := comparison.unexplained(look))}
    fresh = comparison.find_suspects(left, pace.suspects)
    if fresh.rows or fresh.cut:
        return fresh, NotYet(f"{len(fresh.rows)} rows differ; they are looked at again")
    return None, reading


def _confirm(
    comparison: KeyedComparison,
    pace: KeyedPace,
    seen: KeyedSuspects,
    begun: datetime,
    reading: Differences,
) -> Step:
    became = comparison.judge(seen)
    left = [one for one, state in became.items() if state is not SuspectState.CLEARED]
    moving = sum(became[one] is SuspectState.MOVING for one in left)
    if moving and seen.tries + 1 < pace.tries:
        return comparison.read_again(seen, left), NotYet(f"{moving} rows keep moving")
    found = tuple((one, state) for one, state in became.items() if state in WRONG)
    reading = replace(reading, found=found, moving=moving, more=seen.cut, names=seen.names)
    if not found:  # a PASS vouches for no more than what was compared
        fences = fences_after(comparison.table, comparison.world, begun)
        reading = replace(reading, as_of=fences or reading.as_of)
    return None, reading


def _begin(comparison: KeyedComparison, check: str) -> NotYet:
    world = comparison.world
    looks = [comparison.look_at(shard).dumps() for shard in comparison.table.shards]
    told = {"keyed": comparison.asked, "looks": looks, "ended": world.clock().isoformat()}
    world.remember(comparison.table, check, {**told, "rows": None, "rest": None})
    return NotYet("a cycle has begun")


def _told(looks: Sequence[Look], comparison: KeyedComparison) -> str:
    rows = sum(look.rows for look in looks)
    text = f"{rows} rows of {len(looks)} shards are equal on both sides, by their keys"
    left = {n: why for own in comparison.columns.values() for n, why in own.left_out.items()}
    if not left:
        return text
    shown = "; ".join(f"{name}: {why}" for name, why in list(left.items())[:5])
    return f"{text}; not compared: {shown}"


def choose_bucketing(
    table: Table, shard: Shard, columns: ComparedColumns, rows: int
) -> Bucketing | Undecided:
    """How *rows* of a shard are divided, about a hundred to a bucket."""
    forms = {one.name: one for one in columns.columns}
    if not table.key:
        return Undecided("unsupported", f"{shard} has no key")
    for name in table.key:
        if name not in forms:
            why = columns.left_out.get(name, "no column of that name has landed")
            return Undecided("unsupported", f"key column {name} cannot be compared: {why}")
    wanted = max(FEWEST, min(MOST, rows // 100))
    buckets = 1 << (wanted - 1).bit_length()
    return Bucketing(tuple(forms[name] for name in table.key), buckets)


def _by_key(rows: Iterable[KeyedRow]) -> dict[int, RangeDigest]:
    found = dict[int, RangeDigest]()
    for row in rows:
        found[row.key] = found.get(row.key, NO_ROW) + RangeDigest(1, row.digest)
    return found
